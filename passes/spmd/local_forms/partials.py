"""What local forms share that gather what each device found: a dimension made whole, and what that costs."""

from __future__ import annotations

from dataclasses import replace

from ....ir.graph.instruction import Instruction
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape
from ...op_sharding.assignment import OpSharding
from ..emit.emitter import LocalValue
from ..emit.local_op import LocalOp


def replicated_along(tiling: Tiling, dims: set[int]) -> Tiling:
    """The tiling without the digits of some dimensions."""
    kept = tuple(() if d in dims else digits for d, digits in enumerate(tiling.dims))
    return replace(tiling, dims=kept).canonical()


def gathered_time(op: OpSharding, shape: Shape, tiling: Tiling, dims: set[int]) -> float:
    """The time of making dimensions of an array whole."""
    return op.plan(tiling, replicated_along(tiling, dims), shape).cost


def gathered(local: LocalOp, value: Instruction, shape: Shape, tiling: Tiling, dims: set[int]) -> Instruction:
    """The array of global shape `shape`, of which `value` is the tile, with these dimensions whole."""
    target = replicated_along(tiling, dims)
    return local.resharder.reshard(LocalValue(value, shape, tiling), target, f"merge of {local.why}").instruction
