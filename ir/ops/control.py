"""Ops that call computations: call, while, conditional, fusion, map.

The first three may contain collectives, so the runtime executes their computations; their kernels serve programs on one
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..graph.attributes import Attributes, Dims
from ..graph.interfaces import Applies, Ranges
from ..graph.monoid import elementwise_kernel
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, Role, ShapeError, register
from ..graph.value_range import Demand, Fact, Range, Visitor, meet_demands
from ..strings import BracedText
from ..types.element_type import PRED, S32
from ..types.shape import Shape, array
from .checks import text
from .computations import check_signature, equal_dims
from .numerics import numpy_type
from .structure import GetTupleElementAttributes, Tuple

if TYPE_CHECKING:
    from ..graph.computation import Computation


class _Control(Op[Any], Ranges):
    is_control = True
    knows_columns = True


class _Called(Ranges):
    """An op that returns the result of the computation in its attribute `applied`."""

    applied: ClassVar[str] = "to_apply"
    arity = (0, None)

    def infer_shape(self: Any, operands: Sequence[Shape], attributes: Any, declared: Shape | None) -> Shape:
        computation = getattr(attributes, self.applied)
        check_signature(f"{self.opcode}: the", computation, operands, None)
        return computation.root.shape

    def facts(self, call: OpCall[Any], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        return visitor.facts(getattr(call.attributes, self.applied), operands)

    def demands(
        self, call: OpCall[Any], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        return visitor.demands(getattr(call.attributes, self.applied), operands, results)

    def kernel(self, call: OpCall[Any], compile: Compile) -> Kernel:
        return compile(getattr(call.attributes, self.applied))


@dataclass(frozen=True, slots=True)
class CallAttributes(Attributes):
    to_apply: Computation
    is_composite: bool = False


@register
class Call(_Called, _Control):
    """Calls a computation with these arguments."""

    opcode = "call"
    role = Role.CALL
    attributes = CallAttributes


@dataclass(frozen=True, slots=True)
class WhileAttributes(Attributes):
    condition: Computation
    body: Computation


@register
class While(_Control):
    """Applies the body to the value repeatedly while the condition holds for it."""

    opcode = "while"
    role = Role.LOOP
    attributes = WhileAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: WhileAttributes, declared: Shape | None) -> Shape:
        check_signature("while: the condition", attributes.condition, operands, array(PRED))
        check_signature("while: the body", attributes.body, operands, operands[0])
        return operands[0]

    def facts(self, call: OpCall[WhileAttributes], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        return _loop_facts(call.attributes.body, operands)

    def demands(
        self, call: OpCall[WhileAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Propagates demands through the body twice; more iterations would narrow loop counters to an empty range."""
        body, condition = call.attributes.body, call.attributes.condition
        known, wanted = _loop_facts(body, operands), list(results)
        for _ in range(2):
            asked = [
                visitor.demands(body, known, wanted), visitor.demands(condition, known, [None]),
            ]  # fmt: skip
            before = wanted
            for more in asked:
                wanted = [meet_demands(a, b) for a, b in zip(wanted, more, strict=True)]
            if wanted == before:
                break
        return wanted

    def kernel(self, call: OpCall[WhileAttributes], compile: Compile) -> Kernel:
        condition, body = compile(call.attributes.condition), compile(call.attributes.body)

        def run(value: Any) -> Any:
            while condition(value):
                value = body(value)
            return value

        return run


def _loop_facts(body: Computation, initial: Sequence[Fact]) -> list[Fact]:
    """Returns the facts of a loop's state: elements that the body forwards unchanged keep their initial facts."""
    known = [Fact() for _ in initial]
    root, (state,) = body.root, body.parameters
    if not isinstance(root.op, Tuple):
        return known
    for index, part in enumerate(root.operands):
        is_passed_on = part.attributes == GetTupleElementAttributes(index) and part.operands == [state]
        if is_passed_on:
            first, last = root.shape.leaf_range(index)
            known[first:last] = initial[first:last]
    return known


@dataclass(frozen=True, slots=True)
class ConditionalAttributes(Attributes):
    true_computation: Computation | None = None
    false_computation: Computation | None = None
    branch_computations: tuple[Computation, ...] = ()

    @property
    def branches(self) -> tuple[Computation, ...]:
        """The computations in the order of their operands: true, false, or branch 0, 1, .."""
        if self.true_computation is not None and self.false_computation is not None:
            return (self.true_computation, self.false_computation)
        return self.branch_computations


@register
class Conditional(_Control):
    """Calls one of several computations, each with its own argument, selected by the first operand.

    A pred selects true or false. An s32 selects a branch by number; numbers out of range select the last branch.
    """

    opcode = "conditional"
    role = Role.BRANCH
    attributes = ConditionalAttributes
    arity = (2, None)

    def infer_shape(
        self, operands: Sequence[Shape], attributes: ConditionalAttributes, declared: Shape | None
    ) -> Shape:
        selector, arguments = operands[0], operands[1:]
        _check_form(selector, attributes)
        branches = attributes.branches
        if len(branches) != len(arguments):
            raise ShapeError(f"conditional: {len(branches)} branches, but {len(arguments)} arguments")
        result = branches[0].root.shape
        for number, (branch, argument) in enumerate(zip(branches, arguments, strict=True)):
            check_signature(f"conditional: branch {number}", branch, [argument], result)
        return result

    def demands(
        self, call: OpCall[ConditionalAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        branches, selector = call.attributes.branches, call.operands[0].element
        wanted: list[Demand] = [None if selector is PRED else Range.closed(0, len(branches) - 1)]
        for branch, argument in zip(branches, call.operands[1:], strict=True):
            first, last = len(wanted), len(wanted) + argument.num_leaves
            wanted += visitor.demands(branch, operands[first:last], results)
        return wanted

    def kernel(self, call: OpCall[ConditionalAttributes], compile: Compile) -> Kernel:
        branches = [compile(c) for c in call.attributes.branches]
        select = branch_selector(call.operands[0], len(branches))

        def run(selector: Any, *arguments: Any) -> Any:
            chosen = select(selector)
            return branches[chosen](arguments[chosen])

        return run


def branch_selector(selector: Shape, branches: int) -> Callable[[Any], int]:
    """Returns a function from the value of a conditional's first operand to the number of its branch."""
    if selector.element is PRED:
        return _branch_of_pred

    def choose(value: Any) -> int:
        number = int(value)
        return number if 0 <= number < branches else branches - 1

    return choose


def _branch_of_pred(value: Any) -> int:
    return 0 if value else 1


def _check_form(selector: Shape, attributes: ConditionalAttributes) -> None:
    has_pair = attributes.true_computation is not None and attributes.false_computation is not None
    if selector.dims or selector.element not in (PRED, S32):
        raise ShapeError(f"conditional: operand 0 must be pred[] or s32[], it is {text(selector)}")
    if selector.element is PRED and not has_pair:
        raise ShapeError("conditional on a pred needs true_computation and false_computation")
    if selector.element is S32 and not attributes.branch_computations:
        raise ShapeError("conditional on an s32 needs branch_computations")
    if attributes.branch_computations and (attributes.true_computation or attributes.false_computation):
        raise ShapeError("conditional: true_computation and false_computation exclude branch_computations")


class FusionKind(Enum):
    """The kind of a fusion: how the back end generates its loops."""

    LOOP = "kLoop"
    INPUT = "kInput"
    OUTPUT = "kOutput"
    CUSTOM = "kCustom"


@dataclass(frozen=True, slots=True)
class FusionAttributes(Attributes):
    kind: FusionKind
    calls: Computation
    output_to_operand_aliasing: BracedText | None = None


@register
class Fusion(_Called, Op[FusionAttributes]):
    """Calls a computation that a back end compiles into one kernel. It contains no collectives."""

    opcode = "fusion"
    role = Role.FUSION
    knows_columns = True
    attributes = FusionAttributes
    applied = "calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAttributes(Attributes):
    dimensions: Dims = ()
    to_apply: Computation


@register
class Map(_Called, Op[MapAttributes], Applies):
    """Applies a computation on scalars to the elements of arrays of equal dimensions."""

    opcode = "map"
    algebra = Algebra.MOVE
    attributes = MapAttributes
    arity = (1, None)
    is_elementwise = True

    def infer_shape(self, operands: Sequence[Shape], attributes: MapAttributes, declared: Shape | None) -> Shape:
        dims = equal_dims("map", operands)
        if attributes.dimensions not in ((), tuple(range(len(dims)))):
            raise ShapeError(f"map: dimensions must be all {len(dims)} in order, not {list(attributes.dimensions)}")
        check_signature("map: the", attributes.to_apply, [array(s.element) for s in operands], None)
        result = attributes.to_apply.root.shape
        if not result.is_scalar:
            raise ShapeError(f"map: {attributes.to_apply.name} must return a scalar, not {text(result)}")
        return array(result.element, dims)

    def kernel(self, call: OpCall[MapAttributes], compile: Compile) -> Kernel:
        function = elementwise_kernel(call.attributes.to_apply, compile)
        dtype = numpy_type(call.shape.element)
        return lambda *operands: np.asarray(function(*operands), dtype)
