"""Ops: what an opcode is, described once.

An op is one stateless class: its attributes, its shape inference, its sharding rule, its meaning in numpy. Parser,
printer, verifier, propagation, partitioner and runtime read this description and never switch on the opcode. Classes
live in `ops/<family>.py` and register one object per opcode.

Values at run time: a numpy array for an array shape (numpy type of its element type, read-only by convention), a Python
tuple for a tuple shape, None for a token.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pickle import UnpicklingError
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..errors import NotEvaluable as NotEvaluable
from ..errors import ShapeError as ShapeError
from ..factors.rule_text import RuleText, parse_rule
from ..factors.sharding_rule import ShardingRule, elementwise_rule, replicated_rule
from ..types.shape import Shape
from .attributes import Attributes, Callee
from .value_range import Demand, Fact, Visitor, joined

A = TypeVar("A", bound=Attributes)

Value = Any  # numpy array, tuple of values, or None
Kernel = Callable[..., Value]  # operand values in, result value out
Compile = Callable[[Callee], Kernel]  # a called computation as a function of its parameters


class Role(Enum):
    """What an op is to the structure of programs, for those who walk through them."""

    PARAMETER = "parameter"
    CONSTANT = "constant"
    TUPLE = "tuple"
    ELEMENT = "element"
    CALL = "call"
    FUSION = "fusion"
    LOOP = "loop"
    BRANCH = "branch"


@dataclass(slots=True)
class RandomState:
    """The hidden random state of one device in one run: how often `rng` has been executed, and the 128 bits of
    `rng-get-and-update-state`. It begins anew in every run, alike on all devices, so that devices that run the same
    program draw the same numbers.
    """

    draws: int = 0
    bits: int = 0x7012395  # where XLA begins on CPU


@dataclass(frozen=True, slots=True)
class OpCall(Generic[A]):
    """One use of an op, without its place in a graph: operand shapes, attributes, result shape; `config` is the text of
    its backend_config, which tells some targets of custom-calls what to do; `rule` that of a sharding rule that the
    program gives (see `shardy_rule`).
    """

    operands: tuple[Shape, ...]
    attributes: A
    shape: Shape
    config: str = ""
    rule: str = ""

    def parse_rule(self, text: str) -> ShardingRule:
        """The sharding rule that a text (see `factors.rule_text`) means for these shapes: `([i j]) -> [i j]`.

        Raises ValueError for a text that is no rule, ShapeError for one that does not fit the shapes.
        """
        return _rule_of(text).rule(self.operands, tuple(self.shape.leaves()))


class Use(Protocol):
    """An instruction as far as an op asks about its own place in a program."""

    @property
    def op(self) -> AnyOp: ...
    @property
    def opcode(self) -> str: ...
    @property
    def operands(self) -> Sequence[Use]: ...
    @property
    def call(self) -> OpCall[Any]: ...
    def called(self) -> Sequence[Callee]:
        """The computations that the attributes refer to, in field order."""
        ...


class Op(Generic[A]):
    """Base of all ops. Defaults: no attributes, same shape as the first operand, element-wise sharding rule.

    Class attributes:
      opcode         as in HLO text
      attributes     the class of its attributes
      arity          least and greatest number of operands (None: no limit)
      role           its part in the structure of programs; None for ops that compute or move values
      inline         the attribute printed between the parentheses (`parameter(0)`, `constant({..})`)
      side_effect    never removed as dead code
      is_elementwise every result element depends on the operand elements at the same place (scalars: on all places);
                     such ops pass shardings on before all others
      is_collective  exchanges data between devices: the runtime, not `kernel`, runs it
      is_control     calls computations that may contain collectives (call, while, conditional): likewise
      calls_alone    no other instruction of its kind calls the computations that it calls
      is_device_id   the value is the number of the device that runs it; the runtime supplies it
      is_view        the result is the operand's memory seen otherwise: the op costs no time
      is_stateful    draws from the device's hidden random state, a `RandomState`: the runtime gives it to the kernel as
                     its first argument
      additive_groups the default answer of `additive`
      infers_dynamic infer_shape and kernel know about dynamic dimensions; for other ops `dynamic_sizes` does
      dynamic_operands the operands whose dynamic dimensions are dynamic in the result, too; None: all of them
      typed_by       the operand whose type of floats the result has where a text leaves out the shape of the result and
                     floats of several types meet; None: that of highest precision
      refuses_values the kernel may refuse what operands hold: no device may run the op on values that do not count
      converts_result the declared result may have elements of any type: what the op computes is converted to them
      keeps_types    hands on what it is given: floats have the type in the result that they have in the operands,
                     for nothing is computed that could be of mixed precision
      result_hint    a result shape must be written in the text, for it cannot be inferred
      applies_calls  the computations that it calls are applied to elements
      lists_operands in texts its sharding may have an entry for each leaf of the operands
      element_sources the only operands that supply elements of the result: `facts` and `demands` follow by default
      forwards_leaves leaf i of the operands supplies the elements of leaf i of the result: likewise
      knows_columns  `demands` takes demands on single places of a dimension as well
    """

    opcode: ClassVar[str] = ""
    attributes: ClassVar[type[Attributes]] = Attributes
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    role: ClassVar[Role | None] = None
    inline: ClassVar[str | None] = None
    side_effect: ClassVar[bool] = False
    is_elementwise: ClassVar[bool] = False
    is_collective: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    calls_alone: ClassVar[bool] = False
    is_device_id: ClassVar[bool] = False
    is_view: ClassVar[bool] = False
    is_stateful: ClassVar[bool] = False
    infers_dynamic: ClassVar[bool] = False
    dynamic_operands: ClassVar[frozenset[int] | None] = None
    typed_by: ClassVar[int | None] = None
    refuses_values: ClassVar[bool] = False
    converts_result: ClassVar[bool] = False
    keeps_types: ClassVar[bool] = False
    result_hint: ClassVar[bool] = False
    applies_calls: ClassVar[bool] = False
    lists_operands: ClassVar[bool] = False
    element_sources: ClassVar[Container[int]] = ()
    forwards_leaves: ClassVar[bool] = False
    knows_columns: ClassVar[bool] = False
    additive_groups: ClassVar[tuple[frozenset[int], ...]] = ()

    def infer_shape(self, operands: Sequence[Shape], attributes: A, declared: Shape | None) -> Shape:
        """The result shape. Raises ShapeError if operands or attributes do not fit.

        Its layout is what XLA infers where a text leaves the shape out: a result that has the shape of an operand has
        that operand's layout too, others have none. It counts there alone: two shapes are compared without layouts.

        `declared` is the shape written in the program, or None. An op whose shape cannot be inferred (`result_hint`)
        takes what it needs from it and checks the rest; the verifier compares the answer with it.
        """
        return operands[0]

    def meant_shape(self, operands: Sequence[Shape], declared: Shape) -> Shape:
        """The shape that a text means which declares this one: XLA and its older versions do not always believe it."""
        return declared

    def check_use(self, use: Use) -> None:
        """Raises ShapeError if the op cannot stand where it does, whatever the shapes (a done needs its start). Most
        ops do not care.
        """

    def has_side_effect(self, attributes: A) -> bool:
        """Whether this use may not be removed as dead code: the class's answer unless the attributes decide."""
        return self.side_effect

    def reads_format(self, call: OpCall[A]) -> bool:
        """Whether this use reads its floats as bits of their type, or draws them in it, so that the same numbers in a
        wider type would give another result.
        """
        return False

    def has_fixed_layout(self, attributes: A) -> bool:
        """Whether layouts of operands and results belong to this use, for something outside reads the memory."""
        return False

    def maps_scalars(self, call: OpCall[A]) -> bool:
        """Whether the kernel of this use on scalars takes arrays of any shape as well, element by element."""
        return self.is_elementwise

    def sharding_rule(self, call: OpCall[A]) -> ShardingRule:
        """The factors of this use. Tuple results have one entry per leaf. Operands of the op are arrays here."""
        if self.is_elementwise:
            return elementwise_rule(call.operands, tuple(call.shape.leaves()))
        return replicated_rule(call.operands, tuple(call.shape.leaves()))

    def alternative_rules(self, call: OpCall[A]) -> tuple[ShardingRule, ...]:
        """Other rules by which the op can be divided, for where the first one costs communication. Propagation does
        not ask for them.
        """
        return ()

    def additive(self, call: OpCall[A]) -> tuple[frozenset[int], ...]:
        """Groups of operands in which the op is additive: if the operands of a group are sums of as many parts each,
        the result is the sum of the results of the parts (the other operands stay as they are). For numbers only.
        """
        return self.additive_groups

    def localize(self, call: OpCall[A], operands: Sequence[Shape], shape: Shape) -> A:
        """The attributes of the per-device op, given the global use and the local shapes of operands and result.

        Only ops whose attributes contain sizes of dimensions (slice limits, slice sizes) need to override it.
        """
        return call.attributes

    def facts(self, call: OpCall[A], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        """What is known of the leaves of the result, given what is known of those of the operands: ranges that hold
        for all inputs, or nothing (`Fact()`).
        """
        count = call.shape.num_leaves
        if self.forwards_leaves:
            return list(operands[:count])
        sources = [fact for n, fact in enumerate(operands) if n in self.element_sources]
        if not sources:
            return [Fact() for _ in range(count)]
        found = sources[0].range
        for fact in sources[1:]:
            found = found.hull(fact.range)
        return [sources[0].with_range(found) if self.is_elementwise and len(sources) == 1 else Fact(found)]

    def demands(
        self, call: OpCall[A], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Which elements the leaves of the operands should have so that the op gives numbers that mean something, and
        the leaves of its result those that are demanded of them: indices inside of what they index, no logarithm of
        negative numbers. Made-up inputs are drawn accordingly; a program that demands too much runs all the same.
        """
        if self.forwards_leaves:
            return [results[n] if n < len(results) else None for n in range(len(operands))]
        return [joined(results[0]) if n in self.element_sources else None for n in range(len(operands))]

    def kernel(self, call: OpCall[A], compile: Compile) -> Kernel:
        """A function that computes the op on numpy values. Everything that depends only on the shapes is done here,
        once; the function itself is called once per execution. Raises NotEvaluable.
        """
        raise NotEvaluable(f"{self.opcode} cannot be evaluated")

    def __reduce__(self) -> tuple[Any, ...]:
        return op_of, (type(self).__module__, self.opcode)


@lru_cache(maxsize=256)
def _rule_of(text: str) -> RuleText:
    return parse_rule(text)


AnyOp = Op[Any]

OPS: dict[str, AnyOp] = {}


def register(op: type[AnyOp] | AnyOp) -> Any:
    """Adds an op to the table; usable as a class decorator. Raises ValueError if the opcode is taken."""
    instance = op() if isinstance(op, type) else op
    if instance.opcode in OPS:
        raise ValueError(f"opcode {instance.opcode} is registered twice")
    OPS[instance.opcode] = instance
    return op


Derive = Callable[[AnyOp], "AnyOp | None"]

_FAMILIES: dict[str, Derive] = {}
_DERIVED: dict[str, AnyOp] = {}


def register_family(suffix: str, derive: Derive) -> None:
    """Makes `OPCODE + suffix` an op too, for every registered op of which `derive` makes one: `negate-start` is derived
    from `negate`. Ops registered under such a name come first.
    """
    _FAMILIES[suffix] = derive


def find_op(opcode: str) -> AnyOp | None:
    """The op of an opcode, registered or derived; None if Hloom does not have it."""
    op = OPS.get(opcode) or _DERIVED.get(opcode)
    if op is None:
        suffix = next((s for s in _FAMILIES if opcode.endswith(s)), None)
        base = OPS.get(opcode.removesuffix(suffix)) if suffix else None
        op = _FAMILIES[suffix](base) if suffix and base else None
        if op is not None:
            _DERIVED[opcode] = op
    return op


def op_named(opcode: str) -> AnyOp:
    """The op of an opcode. Raises KeyError if Hloom does not have it."""
    op = find_op(opcode)
    if op is None:
        raise KeyError(opcode)
    return op


def op_of(module: str, opcode: str) -> AnyOp:
    """The op of this opcode; `module` is imported if that is what registers it. Raises UnpicklingError."""
    if find_op(opcode) is None and module in sys.modules:
        raise UnpicklingError(f"no op '{opcode}' is registered, though {module} is imported")
    if find_op(opcode) is None:
        importlib.import_module(module)
        return op_of(module, opcode)
    return op_named(opcode)
