"""custom-call: an op identified only by the name of its target.

Targets known to Hloom have a behaviour object in `BEHAVIOURS` (LAPACK's are in `lapack`), user-defined targets
(`user_calls`) one in `USER_BEHAVIOURS`. For any other target the declared shape is trusted, no dimension may be
sharded, and there is no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ...factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule, replicated_rule
from ...factors.shardy_rule import shardy_rule
from ...graph.attributes import Attributes, DimLabels, Window
from ...graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, ShapeError, Use, register
from ...graph.value_range import Demand, Fact, Visitor
from ...strings import BracedText
from ...types.element_type import S32
from ...types.literal import Literal
from ...types.shape import Shape
from ..checks import text
from ..dot import Precisions
from ..structure import leaf_rule, leaves_of, unchanged
from ..topk import descending_order

if TYPE_CHECKING:
    from ...graph.computation import Computation
    from ...graph.instruction import Instruction


class PaddingType(Enum):
    """The padding of a convolution behind the call."""

    INVALID = "PADDING_INVALID"
    VALID = "PADDING_VALID"
    SAME = "PADDING_SAME"


class Schedule(Enum):
    """The position of the call in the schedule."""

    NONE = "SCHEDULE_NONE"
    LATEST = "SCHEDULE_LATEST"
    EARLIEST = "SCHEDULE_EARLIEST"


class ApiVersion(Enum):
    """The calling convention of XLA for the function behind the call."""

    UNSPECIFIED = "API_VERSION_UNSPECIFIED"
    ORIGINAL = "API_VERSION_ORIGINAL"
    STATUS_RETURNING = "API_VERSION_STATUS_RETURNING"
    STATUS_RETURNING_UNIFIED = "API_VERSION_STATUS_RETURNING_UNIFIED"
    TYPED_FFI = "API_VERSION_TYPED_FFI"


@dataclass(frozen=True, slots=True)
class CustomCallAttributes(Attributes):
    custom_call_target: str
    window: Window | None = None
    dim_labels: DimLabels | None = None
    feature_group_count: int = 1
    batch_group_count: int = 1
    operand_precision: Precisions = ()
    padding_type: PaddingType = PaddingType.INVALID
    operand_layout_constraints: tuple[Shape, ...] | None = None
    custom_call_has_side_effect: bool = False
    literal: Literal | None = None
    output_to_operand_aliasing: BracedText | None = None
    schedule: Schedule = Schedule.NONE
    to_apply: Computation | None = None
    called_computations: tuple[Computation, ...] = ()
    api_version: ApiVersion = ApiVersion.ORIGINAL


Call = OpCall[CustomCallAttributes]


class Behaviour:
    """The properties of a target, by default of an unknown one. The methods are those of `Op`.

    `has_rule` means that the sharding rule allows some dimension to be sharded. `reads_format` means that the target is
    specific to the element types of its operands.
    """

    has_rule = False
    reads_format = True
    is_identity = False
    only_annotates = False
    is_callback = False
    is_manual_boundary = False
    leaves_region = False
    algebra: Algebra | None = Algebra.OPAQUE

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        """Raises ShapeError if operands or result do not fit the target."""

    def sharding_rule(self, call: Call) -> ShardingRule:
        return replicated_rule(leaves_of(call.operands), leaves_of([call.shape]))

    def facts(self, call: Call, operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        if self.is_identity or self.is_manual_boundary:
            return list(operands)
        return [Fact() for _ in range(call.shape.num_leaves)]

    def demands(
        self, call: Call, operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        return list(results) if self.is_identity or self.is_manual_boundary else [None] * len(operands)

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        target = call.attributes.custom_call_target
        raise NotEvaluable(
            f'custom-call target "{target}" is unknown, so it cannot be evaluated',
            f'define it in Python with hloom.custom_call("{target}"), for the command line in a file given to --import',
        )


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


def _nothing(shape: Shape) -> Any:
    """Returns the value of a shape without arrays."""
    return tuple(map(_nothing, shape.elements)) if shape.is_tuple else None


_CALLBACK = PythonCallback()


class TopK(Behaviour):
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
        (operand,) = call.operands
        b = RuleBuilder()
        batch = [b.factor(n) for n in operand.dims[:-1]]
        last = b.factor(operand.dims[-1], FactorKind.REDUCTION)
        k = b.factor(call.shape.elements[0].dims[-1], FactorKind.REPLICATE)
        return b.rule([[*batch, last]], [[*batch, k]] * 2)

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        k = call.shape.elements[0].dims[-1]

        def run(x: Any) -> Any:
            places = descending_order(x)[..., :k]
            return np.take_along_axis(x, places, -1), places.astype(np.int32)

        return run


BEHAVIOURS: dict[str, Behaviour] = {
    **dict.fromkeys(
        (
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
    "TopK": TopK(),
}

USER_BEHAVIOURS: dict[str, Behaviour] = {}
_FOREIGN = Behaviour()
_CALLBACKS = frozenset(
    f"xla_{kind}python_{device}_callback" for kind in ("", "ffi_", "ffi_partitioned_") for device in ("cpu", "gpu")
)


def behaviour(attributes: CustomCallAttributes) -> Behaviour:
    """Returns the behaviour of the target of a custom-call."""
    target = attributes.custom_call_target
    unknown = _CALLBACK if target in _CALLBACKS else _FOREIGN
    return BEHAVIOURS.get(target) or USER_BEHAVIOURS.get(target, unknown)


def is_foreign(attributes: CustomCallAttributes) -> bool:
    """Whether nothing is known of the target."""
    return behaviour(attributes) is _FOREIGN


def target_of(instruction: Instruction) -> str | None:
    """Returns the target of a custom-call; None for all other ops."""
    attributes = instruction.attributes
    return attributes.custom_call_target if isinstance(attributes, CustomCallAttributes) else None


def is_annotation(instruction: Instruction) -> bool:
    """Whether an instruction returns its operand and only annotates it for the partitioner."""
    attributes = instruction.attributes
    if not isinstance(attributes, CustomCallAttributes):
        return False
    known = behaviour(attributes)
    return known.only_annotates and known.is_identity


def _has_own_rule(call: Call) -> bool:
    """Whether the sharding rule of this use is the one given in the program."""
    return bool(call.rule) and not behaviour(call.attributes).has_rule


@register
class CustomCall(Op[CustomCallAttributes]):
    """Calls code outside the program; docs/custom_calls.md lists the targets that Hloom knows."""

    opcode = "custom-call"
    infers_dynamic = True
    refuses_values = True
    knows_columns = True
    attributes = CustomCallAttributes
    arity = (0, None)
    result_hint = True

    def infer_shape(
        self, operands: Sequence[Shape], attributes: CustomCallAttributes, declared: Shape | None
    ) -> Shape:
        if declared is None:
            raise ShapeError(f"custom-call {attributes.custom_call_target} needs a result shape")
        if attributes.operand_layout_constraints is not None:
            _check_constraints(attributes.operand_layout_constraints, operands)
        behaviour(attributes).check(attributes.custom_call_target, operands, declared)
        return declared

    def has_side_effect(self, attributes: CustomCallAttributes) -> bool:
        return attributes.custom_call_has_side_effect

    def reads_format(self, call: Call) -> bool:
        return behaviour(call.attributes).reads_format

    def algebra_of(self, call: Call) -> Algebra | None:
        """The algebra of the target. A function whose calls have effects may give other results each time, and one with
        a sharding rule in the program has none in the programs of devices.
        """
        algebra = behaviour(call.attributes).algebra
        varies = call.attributes.custom_call_has_side_effect and any(s.is_array for s in call.shape.leaves())
        return None if algebra is Algebra.OPAQUE and (varies or _has_own_rule(call)) else algebra

    def has_fixed_layout(self, attributes: CustomCallAttributes) -> bool:
        return attributes.operand_layout_constraints is not None

    def check_use(self, use: Use) -> None:
        if _has_own_rule(use.call):
            self._given_rule(use.call)

    def sharding_rule(self, call: Call) -> ShardingRule:
        return self._given_rule(call) if _has_own_rule(call) else behaviour(call.attributes).sharding_rule(call)

    def _given_rule(self, call: Call) -> ShardingRule:
        """Returns the sharding rule given in the program. Raises ShapeError."""
        return shardy_rule(call.rule, leaves_of(call.operands), leaves_of([call.shape]))

    def localize(self, call: Call, operands: Sequence[Shape], shape: Shape) -> CustomCallAttributes:
        """Localizes the required operand layouts, which are written as shapes."""
        constraints = call.attributes.operand_layout_constraints
        if constraints is None:
            return call.attributes
        local = tuple(map(_with_sizes_of, constraints, operands))
        return replace(call.attributes, operand_layout_constraints=local)

    def facts(self, call: Call, operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        return behaviour(call.attributes).facts(call, operands, visitor)

    def demands(
        self, call: Call, operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        return behaviour(call.attributes).demands(call, operands, results, visitor)

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        return behaviour(call.attributes).kernel(call, compile)


def _check_constraints(constraints: Sequence[Shape], operands: Sequence[Shape]) -> None:
    if len(constraints) != len(operands):
        raise ShapeError(f"custom-call: {len(constraints)} operand_layout_constraints for {len(operands)} operands")
    for number, (shape, operand) in enumerate(zip(constraints, operands, strict=True)):
        if not shape.compatible(operand):
            raise ShapeError(f"custom-call: operand_layout_constraints: operand {number} is {text(shape)} there, "
                             f"but {text(operand)} here")  # fmt: skip


def _with_sizes_of(shape: Shape, other: Shape) -> Shape:
    """Returns the shape with its own layouts and the sizes of another one."""
    elements = tuple(map(_with_sizes_of, shape.elements, other.elements))
    return replace(shape, dims=other.dims, elements=elements)
