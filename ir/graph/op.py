"""Ops: the base class of op descriptions, and their registry.

An op is one stateless class with its attributes, shape inference, sharding rule and numpy implementation. Parser,
printer, verifier, propagation, partitioner and runtime read this description and never switch on the opcode. Classes
live in `ops/<family>.py` and register one object per opcode.

Run-time values are numpy arrays for array shapes (read-only by convention), Python tuples for tuple shapes, and None
for tokens.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pickle import UnpicklingError
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from ..checked_call import wrong_type
from ..errors import NotEvaluable as NotEvaluable
from ..errors import ShapeError as ShapeError
from ..factors.rule_text import RuleText, parse_rule
from ..factors.sharding_rule import ShardingRule, elementwise_rule, replicated_rule
from ..kept_hash import KeptHash, keep_hash
from ..types.shape import Shape
from .algebra import Algebra as Algebra
from .attributes import Attributes, Callee
from .source import Source, Updates, Windows
from .value_range import Demand, Fact, Visitor, joined

A = TypeVar("A", bound=Attributes)

Value = Any  # numpy array, tuple of values, or None
Kernel = Callable[..., Value]  # operand values in, result value out
Compile = Callable[[Callee], Kernel]  # a called computation as a function of its parameters


class Role(Enum):
    """The role of an op in the structure of a program, for code that traverses programs."""

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
    """The hidden random state of one device: the number of `rng` executions, and the 128 bits of
    `rng-get-and-update-state`. Every run starts from the same state on all devices, so that devices that run the same
    program draw the same numbers.
    """

    draws: int = 0
    bits: int = 0x7012395  # XLA's initial state on CPU


@keep_hash
@dataclass(frozen=True, slots=True)
class OpCall(KeptHash, Generic[A]):
    """One use of an op, independent of its position in a graph: operand shapes, attributes and result shape.

    `config` is the text of its backend_config, which parameterizes some custom-call targets. `rule` is the text of a
    sharding rule given in the program (see `shardy_rule`).
    """

    operands: tuple[Shape, ...]
    attributes: A
    shape: Shape
    config: str = ""
    rule: str = ""

    def parse_rule(self, text: str) -> ShardingRule:
        """The sharding rule that a text (see `factors.rule_text`) means for these shapes: `([i j]) -> [i j]`.

        Raises CompileError for a text that is no rule, ShapeError for one that does not fit the shapes.
        """
        return _rule_of(text).rule(self.operands, tuple(self.shape.leaves()))


class Use(Protocol):
    """The view of an instruction that an op gets of its own position in a program."""

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
      opcode         the opcode in HLO text
      attributes     the class of its attributes
      arity          minimum and maximum number of operands (None: no limit)
      role           its role in the structure of programs; None for ops that compute or move values
      inline         the attribute printed between the parentheses (`parameter(0)`, `constant({..})`)
      side_effect    never removed as dead code
      is_elementwise every result element depends only on the operand elements at the same position (a scalar applies to
                     all positions); propagation handles such ops before all others
      is_fusible     loops over the elements of its operands or its result compute it, at the places that its sources
                     name, or at the places and with the folds that its sharding rule names
      is_collective  exchanges data between devices: the runtime executes it, not `kernel`
      is_control     calls computations that may contain collectives (call, while, conditional): likewise
      calls_alone    no other instruction of its kind calls the same computations
      is_device_id   the value is the number of the executing device, supplied by the runtime
      is_view        the result reinterprets the operand's memory: the op costs no time
      shares_memory  leaf i of the result lies in the memory of leaf i of the operands
      is_stateful    draws from the device's hidden `RandomState`, which the runtime passes to the kernel as its first
                     argument
      additive_groups the default result of `additive`
      infers_dynamic infer_shape and kernel handle dynamic dimensions; for other ops `dynamic_sizes` does
      dynamic_operands the operands whose dynamic dimensions are dynamic in the result too; None: all of them
      typed_by       the operand that determines the result's float type where a text omits the result shape and float
                     types are mixed; None: the type of highest precision
      refuses_values the kernel may reject operand values: no device may run the op on meaningless values
      converts_result the declared result may have any element type: the computed values are converted to it
      keeps_types    forwards values unchanged: result floats have the types of the operand floats, so precision is
                     never mixed
      result_hint    the text must declare the result shape, because it cannot be inferred
      applies_calls  the called computations are applied to elements
      lists_operands in text, its sharding may have one entry per leaf of the operands
      element_sources the only operands that supply elements of the result: `facts` and `demands` follow by default
      forwards_leaves leaf i of the operands supplies the elements of leaf i of the result: likewise
      algebra        the op's meaning where floats are elements of a field; None: nothing is proved of programs with it
      folds_by       the attribute that holds the computation by which an op of the algebra FOLD combines elements
      folded         the operands whose elements such an op combines; None: all of them
      knows_columns  `demands` also accepts demands per position of a dimension
    """

    opcode: ClassVar[str] = ""
    attributes: ClassVar[type[Attributes]] = Attributes
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    role: ClassVar[Role | None] = None
    inline: ClassVar[str | None] = None
    side_effect: ClassVar[bool] = False
    is_elementwise: ClassVar[bool] = False
    is_fusible: ClassVar[bool] = False
    is_collective: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    calls_alone: ClassVar[bool] = False
    is_device_id: ClassVar[bool] = False
    is_view: ClassVar[bool] = False
    shares_memory: ClassVar[bool] = False
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
    algebra: ClassVar[Algebra | None] = None
    folds_by: ClassVar[str] = "to_apply"
    folded: ClassVar[frozenset[int] | None] = None
    additive_groups: ClassVar[tuple[frozenset[int], ...]] = ()

    def infer_shape(self, operands: Sequence[Shape], attributes: A, declared: Shape | None) -> Shape:
        """Returns the result shape. Raises ShapeError if operands or attributes do not fit.

        Its layout is the one XLA infers where a text omits the shape: a result with the shape of an operand has that
        operand's layout, other results have none. Shapes are compared without layouts.

        `declared` is the shape written in the program, or None. An op whose shape cannot be inferred (`result_hint`)
        takes the missing parts from it and checks the rest; the verifier compares the returned shape with it.
        """
        return operands[0]

    def meant_shape(self, operands: Sequence[Shape], declared: Shape) -> Shape:
        """Returns the actual result shape for a declared one, which XLA, or an older version, does not always trust."""
        return declared

    def check_use(self, use: Use) -> None:
        """Raises ShapeError if the op is invalid at its position, whatever the shapes: a done needs its start."""

    def has_side_effect(self, attributes: A) -> bool:
        """Whether this use must not be removed as dead code: by default the class's `side_effect`."""
        return self.side_effect

    def algebra_of(self, call: OpCall[A]) -> Algebra | None:
        """The algebra of this use: the class's unless the attributes decide."""
        return self.algebra

    def stacked(self, call: OpCall[A], count: int) -> OpCall[A] | None:
        """Returns one use of the op in place of `count` independent ones like `call`: operands and results have a
        dimension of this size in front. None if the op has no such use.
        """
        return None

    def reads_format(self, call: OpCall[A]) -> bool:
        """Whether the result depends on the float format, as in bit casts and random draws: a wider type that holds the
        same numbers would give another result.
        """
        return False

    def has_fixed_layout(self, attributes: A) -> bool:
        """Whether the layouts of operands and results matter, because foreign code reads the memory."""
        return False

    def maps_scalars(self, call: OpCall[A]) -> bool:
        """Whether the scalar kernel of this use also applies to arrays of any shape, element by element."""
        return self.is_elementwise

    def sharding_rule(self, call: OpCall[A]) -> ShardingRule:
        """Returns the sharding rule of this use. Tuple results have one entry per leaf; operands are arrays."""
        if self.is_elementwise:
            return elementwise_rule(call.operands, tuple(call.shape.leaves()))
        return replicated_rule(call.operands, tuple(call.shape.leaves()))

    def alternative_rules(self, call: OpCall[A]) -> tuple[ShardingRule, ...]:
        """Returns further rules by which the partitioner may divide the op, where `sharding_rule` costs communication.
        Propagation ignores them.
        """
        return ()

    def additive(self, call: OpCall[A]) -> tuple[frozenset[int], ...]:
        """Returns the groups of operands in which the op is additive.

        If the operands of a group are sums of the same number of terms, the result is the sum of the results of the
        terms, with the other operands unchanged. Applies to numbers only.
        """
        return self.additive_groups

    def overwritten(self, call: OpCall[A]) -> Container[int]:
        """Returns the operands that the result takes over but for some elements. A compiler writes only these."""
        return ()

    def localize(self, call: OpCall[A], operands: Sequence[Shape], shape: Shape) -> A:
        """Returns the attributes of the per-device op, given the global use and the local operand and result shapes.

        Only ops whose attributes contain sizes of dimensions (slice limits, slice sizes) need to override it.
        """
        return call.attributes

    def facts(self, call: OpCall[A], operands: Sequence[Fact], visitor: Visitor) -> list[Fact]:
        """Returns one fact per leaf of the result, given those of the operands: a range that holds for all inputs, or
        `Fact()` if nothing is known.
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
        """Returns one demand per leaf of the operands, given the demands on the result.

        A demand is the range in which elements should lie for the result to be meaningful and to satisfy its own
        demand: indices within bounds, logarithms of positive numbers. Random inputs are drawn accordingly. Demands are
        not enforced.
        """
        if self.forwards_leaves:
            return [results[n] if n < len(results) else None for n in range(len(operands))]
        return [joined(results[0]) if n in self.element_sources else None for n in range(len(operands))]

    def sources(self, call: OpCall[A]) -> tuple[Source, ...] | None:
        """Returns where the elements of the result come from, for an op that only moves them in a fixed way."""
        return None

    def windows(self, call: OpCall[A]) -> Windows | None:
        """Returns the windows of operand 0 that the result consists of, for ops that move elements from computed
        places; None for others.
        """
        return None

    def updates(self, call: OpCall[A]) -> Updates | None:
        """Returns how one operand is put into another at computed places, for ops that do this; None for others."""
        return None

    def kernel(self, call: OpCall[A], compile: Compile) -> Kernel:
        """Returns a function that computes the op on numpy values, or raises NotEvaluable.

        Work that depends only on shapes is done here, once. The function is called once per execution.
        """
        raise NotEvaluable(f"{self.opcode} cannot be evaluated")

    def __reduce__(self) -> tuple[Any, ...]:
        return op_of, (type(self).__module__, self.opcode)


@lru_cache(maxsize=256)
def _rule_of(text: str) -> RuleText:
    return parse_rule(text)


AnyOp = Op[Any]

OPS: dict[str, AnyOp] = {}
"""The registered ops by opcode. The package `graph` imports all of Hloom's, so no part of it is ever without them."""


def register(op: type[AnyOp] | AnyOp) -> Any:
    """Registers an op; usable as a class decorator. Raises ValueError if the opcode is taken, TypeError for no op."""
    instance = op() if isinstance(op, type) else op
    if not isinstance(instance, Op):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong_type("register: op", op, (Op,), "write @hloom.register over a class derived from hloom.Op")
    if instance.opcode in OPS:
        raise ValueError(f"opcode {instance.opcode} is registered twice")
    OPS[instance.opcode] = instance
    return op


@runtime_checkable
class Family(Protocol):
    """An op of which others have a variant each: `async-start` makes `negate-start` from negate."""

    def variant(self, op: AnyOp) -> AnyOp | None:
        """Returns the op for `op`, or None if that has none."""
        ...


_VARIANTS: dict[str, AnyOp] = {}


def find_op(opcode: str) -> AnyOp | None:
    """Returns the op of an opcode, registered or a variant of a registered one; None if there is none."""
    found = OPS.get(opcode) or _VARIANTS.get(opcode)
    if found is None:
        name, _, ending = opcode.rpartition("-")
        op, family = OPS.get(name), OPS.get(f"async-{ending}")
        found = family.variant(op) if op is not None and isinstance(family, Family) else None
        if found is not None:
            _VARIANTS[opcode] = found
    return found


def op_named(opcode: str) -> AnyOp:
    """Returns the op of an opcode. Raises KeyError if there is none."""
    op = find_op(opcode)
    if op is None:
        raise KeyError(opcode)
    return op


def op_of(module: str, opcode: str) -> AnyOp:
    """Returns the op of an opcode, importing the Python module that registers it if needed. Raises UnpicklingError."""
    if find_op(opcode) is None and module in sys.modules:
        raise UnpicklingError(f"no op '{opcode}' is registered, though {module} is imported")
    if find_op(opcode) is None:
        importlib.import_module(module)
        return op_of(module, opcode)
    return op_named(opcode)
