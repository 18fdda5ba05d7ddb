"""The targets of custom-calls that Hloom knows, as one table: here those of XLA and JAX that are no routines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...factors.sharding_rule import RuleBuilder, ShardingRule
from ...graph.op import Algebra, Compile, Kernel, NotEvaluable, ShapeError
from ...types.element_type import S32
from ...types.shape import Shape
from ..checks import text
from ..structure import leaf_rule, leaves_of, unchanged
from ..topk import descending_order, largest_rule
from . import lapack, sparse
from .behaviour import Behaviour, Call

if TYPE_CHECKING:
    pass


class Identity(Behaviour):
    """A target that returns its operand. `only_annotates` marks targets that only annotate for the partitioner."""

    has_rule = True
    reads_format = False
    is_identity = True
    algebra = Algebra.MOVE

    def __init__(self, only_annotates: bool = False) -> None:
        self.only_annotates = only_annotates

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        if len(operands) != 1:
            raise ShapeError(f"custom-call {target} takes one operand, found {len(operands)}")
        if not operands[0].compatible(result):
            raise ShapeError(f"custom-call {target}: the operand is {text(operands[0])}, the result is {text(result)}")

    def sharding_rule(self, call: Call) -> ShardingRule:
        return leaf_rule(leaves_of(call.operands), leaves_of([call.shape]))

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        return unchanged


class ManualBoundary(Behaviour):
    """A target at the boundary of a manual region, which converts between global and per-device shapes. The partitioner
    removes it.
    """

    is_manual_boundary = True
    reads_format = False
    algebra = None

    def __init__(self, leaves_region: bool) -> None:
        self.leaves_region = leaves_region

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        target = call.attributes.custom_call_target
        raise NotEvaluable(f"custom-call {target} cannot stand inside a computation that is applied to elements")


class Annotation(Behaviour):
    """A target that annotates for the partitioner and computes nothing."""

    only_annotates = True
    reads_format = False
    algebra = Algebra.MOVE

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        return lambda *values: values[: len(call.shape.elements)] if call.shape.is_tuple else values[0]


class PythonCallback(Behaviour):
    """A call of a Python function of the process that lowered the program (JAX's `debug.print`, `pure_callback`,
    `io_callback`), which the text identifies only by number. Without results it does nothing. Users may define it.
    """

    is_callback = True

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        if not any(leaf.is_array for leaf in call.shape.leaves()):
            return lambda *_: _nothing(call.shape)
        target = call.attributes.custom_call_target
        raise NotEvaluable(
            f"the Python function called by {target} is not part of the program, so it cannot be evaluated",
            f'define it in Python, for the command line in a file given to --import: @hloom.custom_call("{target}") '
            f"above a function of the operands; a parameter `config` identifies the callback, here {call.config!r}",
        )


class TileCallback(PythonCallback):
    """A call of a Python function for each device's tiles, which returns nothing (`partitioned=True` of JAX's
    callbacks).
    """

    has_rule = True
    acts_on_tiles = True

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        if any(leaf.is_array for leaf in result.leaves()):
            raise ShapeError(f"custom-call {target} returns nothing, found {text(result)}")

    def sharding_rule(self, call: Call) -> ShardingRule:
        b = RuleBuilder()
        return b.rule([b.dims(leaf) for leaf in leaves_of(call.operands)], [[] for _ in leaves_of([call.shape])])


def _nothing(shape: Shape) -> Any:
    """Returns the value of a shape without arrays."""
    return tuple(map(_nothing, shape.elements)) if shape.is_tuple else None


class TopKTarget(Behaviour):
    """A target that returns the k greatest elements along the last dimension, in descending order, and their indices
    (s32).
    """

    has_rule = True
    reads_format = False
    algebra = Algebra.ORDER

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        parts = result.elements
        if len(operands) != 1 or not operands[0].rank or len(parts) != 2:
            raise ShapeError(f"custom-call {target} takes one array of rank 1 or more and returns values and indices")
        values, places = parts
        (operand,) = operands
        if values.element is not operand.element or places.element is not S32 or values.dims != places.dims:
            raise ShapeError(f"custom-call {target}: {text(result)} are not values and indices of {text(operand)}")
        if values.dims[:-1] != operand.dims[:-1] or values.dims[-1] > operand.dims[-1]:
            raise ShapeError(f"custom-call {target}: {text(values)} cannot be elements of {text(operand)}")

    def sharding_rule(self, call: Call) -> ShardingRule:
        return largest_rule(call.operands[0], call.shape.elements[0].dims[-1])

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        k = call.shape.elements[0].dims[-1]

        def run(x: Any) -> Any:
            places = descending_order(x)[..., :k]
            return np.take_along_axis(x, places, -1), places.astype(np.int32)

        return run


class Allocation(Behaviour):
    """A target that returns memory in which a library works; its content means nothing."""

    has_rule = True
    reads_format = False

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        if operands or not result.is_array:
            raise ShapeError(f"custom-call {target} takes no operands and returns one array, found {text(result)}")

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        return lambda: np.zeros(call.shape.dims, call.shape.element.numpy)


ALLOCATION = "AllocateBuffer"

BEHAVIOURS: dict[str, Behaviour] = {
    ALLOCATION: Allocation(),
    **dict.fromkeys(
        (
            "InspectSharding",
            "Sharding",
            "ShardBarrierFrom",
            "ShardBarrierTo",
            "xla.sdy.FuncResultSharding",
            "xla.sdy.PropagationBarrier",
        ),
        Identity(only_annotates=True),
    ),
    **dict.fromkeys(("MoveToHost", "MoveToDevice", "PinToDevice", "annotate_device_placement"), Identity()),
    **dict.fromkeys(("SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"), ManualBoundary(leaves_region=False)),
    **dict.fromkeys(("SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape"), ManualBoundary(leaves_region=True)),
    "xla.sdy.ShardingGroup": Annotation(),
    "TopK": TopKTarget(),
    **lapack.BEHAVIOURS,
    **sparse.BEHAVIOURS,
}
"""The behaviours of the targets that Hloom knows."""
