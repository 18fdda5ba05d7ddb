"""custom-call: an op identified only by the name of its target.

Targets known to Hloom have a behaviour in `targets`, user-defined ones in `user_calls`. For any other target the
declared shape is trusted, no dimension may be sharded, and there is no kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...factors.sharding_rule import ShardingRule
from ...factors.shardy_rule import shardy_rule
from ...graph.interfaces import Dynamic, FloatTypes, Multiplies, Placed, Ranges, TextForm
from ...graph.op import Algebra, AnyOp, Compile, Kernel, Op, ShapeError, Use, register
from ...graph.value_range import Demand, Fact, Visitor
from ...types.products import Products
from ...types.shape import Shape
from ..checks import text
from ..structure import leaves_of
from .behaviour import Behaviour, Call, CustomCallAttributes
from .stated_products import stated_products
from .targets import ALLOCATION, BEHAVIOURS, PythonCallback, TileCallback
from .user_calls import USER_BEHAVIOURS

if TYPE_CHECKING:
    from ...graph.instruction import Instruction


_FOREIGN = Behaviour()
_CALLBACK, _TILE_CALLBACK = PythonCallback(), TileCallback()
_CALLBACKS: dict[str, Behaviour] = {
    f"xla_{kind}python_{device}_callback": known
    for kind, known in (("", _CALLBACK), ("ffi_", _CALLBACK), ("ffi_partitioned_", _TILE_CALLBACK))
    for device in ("cpu", "gpu")
}


def behaviour(attributes: CustomCallAttributes) -> Behaviour:
    """Returns the behaviour of the target of a custom-call."""
    target = attributes.custom_call_target
    return BEHAVIOURS.get(target) or USER_BEHAVIOURS.get(target) or _CALLBACKS.get(target, _FOREIGN)


def behaviour_of(instruction: Instruction) -> Behaviour | None:
    """Returns the behaviour of a custom-call's target; None for other ops."""
    attributes = instruction.attributes
    return behaviour(attributes) if isinstance(attributes, CustomCallAttributes) else None


def custom_calls(instructions: Iterable[Instruction]) -> list[Instruction]:
    """Returns the custom-calls among instructions."""
    return [i for i in instructions if isinstance(i.attributes, CustomCallAttributes)]


def is_unknown(instruction: Instruction) -> bool:
    """Whether an instruction is a custom-call of a target of which nothing is known."""
    return behaviour_of(instruction) is _FOREIGN


def foreign_target(instruction: Instruction) -> str | None:
    """Returns the target of a custom-call if Hloom knows nothing of it, or no more than its user has defined; None for
    all other instructions.
    """
    target = target_of(instruction)
    return None if target is None or target in BEHAVIOURS or target in _CALLBACKS else target


def is_custom_call(op: AnyOp) -> bool:
    """Whether the uses of an op are custom-calls."""
    return issubclass(op.attributes, CustomCallAttributes)


def target_of(instruction: Instruction) -> str | None:
    """Returns the target of a custom-call; None for all other ops."""
    attributes = instruction.attributes
    return attributes.custom_call_target if isinstance(attributes, CustomCallAttributes) else None


def is_allocation(instruction: Instruction) -> bool:
    """Whether an instruction returns memory without content."""
    return target_of(instruction) == ALLOCATION


def has_fixed_layout(instruction: Instruction) -> bool:
    """Whether the layouts of operands and results matter, because foreign code reads the memory."""
    attributes = instruction.attributes
    return isinstance(attributes, CustomCallAttributes) and attributes.operand_layout_constraints is not None


def is_annotation(instruction: Instruction) -> bool:
    """Whether an instruction returns its operand and only annotates it for the partitioner."""
    known = behaviour_of(instruction)
    return known is not None and known.only_annotates and known.is_identity


def _has_own_rule(call: Call) -> bool:
    """Whether the sharding rule of this use is the one given in the program."""
    return bool(call.rule) and not behaviour(call.attributes).has_rule


@register
class CustomCall(Op[CustomCallAttributes], TextForm, Placed, FloatTypes, Dynamic, Ranges, Multiplies):
    """Calls code outside the program; docs/custom_calls.md lists the targets that Hloom knows."""

    opcode = "custom-call"
    refuses_values = True
    knows_columns = True
    attributes = CustomCallAttributes
    arity = (0, None)

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

    def products(self, call: Call) -> Products | None:
        return stated_products(call)

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
