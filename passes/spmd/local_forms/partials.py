"""Helpers of local forms that gather each device's own result: the gather, and its cost."""

from __future__ import annotations

from dataclasses import replace

from ....ir.graph.instruction import Instruction
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape
from ...op_sharding.assignment import OpSharding
from ..emit.emitter import LocalValue
from ..emit.local_op import LocalOp


def replicated_along(tiling: Tiling, dims: set[int]) -> Tiling:
    """Returns the tiling without the digits of some dimensions."""
    kept = tuple(() if d in dims else digits for d, digits in enumerate(tiling.dims))
    return replace(tiling, dims=kept).canonical()


def gathered_time(op: OpSharding, shape: Shape, tiling: Tiling, dims: set[int]) -> float:
    """Returns the time to gather dimensions of an array."""
    return op.plan(tiling, replicated_along(tiling, dims), shape).cost


def gathered(local: LocalOp, value: Instruction, shape: Shape, tiling: Tiling, dims: set[int]) -> Instruction:
    """Gathers these dimensions of an array of global shape `shape`, of which `value` is the tile."""
    target = replicated_along(tiling, dims)
    return local.resharder.reshard(LocalValue(value, shape, tiling), target, f"merge of {local.why}").instruction
