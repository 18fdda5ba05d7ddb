"""Ops: the base class of op descriptions, and their registry.

An op is one stateless class with its attributes, shape inference, sharding rule and numpy implementation. Parser,
printer, verifier, propagation, partitioner and runtime read this description and never switch on the opcode. Classes
live in `ops/<family>.py` and register one object per opcode.

Run-time values are numpy arrays for array shapes (read-only by convention), Python tuples for tuple shapes, and None
for tokens.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
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

A = TypeVar("A", bound=Attributes)
Interface = TypeVar("Interface")

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
    UPDATE = "update"  # of an asynchronous op, whose start has the interface `Starts`
    DONE = "done"


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

    This is the core that every op has. What only some ops can say is an interface (`graph/interfaces.py`): a small
    class that an op lists among its bases. Whoever asks writes `op.interface(Movement)`.

    Class attributes:
      opcode         the opcode in HLO text
      attributes     the class of its attributes
      arity          minimum and maximum number of operands (None: no limit)
      role           its role in the structure of programs; None for ops that compute or move values
      side_effect    never removed as dead code
      is_elementwise every result element depends only on the operand elements at the same position (a scalar applies to
                     all positions); propagation handles such ops before all others
      is_fusible     loops over the elements of its operands or its result compute it, at the places that its sources
                     name, or at the places and with the folds that its sharding rule names
      is_collective  exchanges data between devices: the runtime executes it, not `kernel`
      is_control     calls computations that may contain collectives (call, while, conditional): likewise
      algebra        the op's meaning where floats are elements of a field; None: nothing is proved of programs with it
    """

    opcode: ClassVar[str] = ""
    attributes: ClassVar[type[Attributes]] = Attributes
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    role: ClassVar[Role | None] = None
    side_effect: ClassVar[bool] = False
    is_elementwise: ClassVar[bool] = False
    is_fusible: ClassVar[bool] = False
    is_collective: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    algebra: ClassVar[Algebra | None] = None

    def interface(self, kind: type[Interface]) -> Interface | None:
        """Returns this op as an implementation of an interface; None if it does not have it."""
        return self if isinstance(self, kind) else None

    def infer_shape(self, operands: Sequence[Shape], attributes: A, declared: Shape | None) -> Shape:
        """Returns the result shape. Raises ShapeError if operands or attributes do not fit.

        Its layout is the one XLA infers where a text omits the shape: a result with the shape of an operand has that
        operand's layout, other results have none. Shapes are compared without layouts.

        `declared` is the shape written in the program, or None. An op whose shape cannot be inferred takes the missing
        parts from it (`TextForm.result_hint`) and checks the rest; the verifier compares the returned shape with it.
        """
        return operands[0]

    def has_side_effect(self, attributes: A) -> bool:
        """Whether this use must not be removed as dead code: by default the class's `side_effect`."""
        return self.side_effect

    def algebra_of(self, call: OpCall[A]) -> Algebra | None:
        """The algebra of this use: the class's unless the attributes decide."""
        return self.algebra

    def sharding_rule(self, call: OpCall[A]) -> ShardingRule:
        """Returns the sharding rule of this use, with one entry per leaf of tuples."""
        rule = elementwise_rule if self.is_elementwise else replicated_rule
        return rule([leaf for shape in call.operands for leaf in shape.leaves()], tuple(call.shape.leaves()))

    def localize(self, call: OpCall[A], operands: Sequence[Shape], shape: Shape) -> A:
        """Returns the attributes of the per-device op, given the global use and the local operand and result shapes.

        Only ops whose attributes contain sizes of dimensions (slice limits, slice sizes) need to override it.
        """
        return call.attributes

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
    _check_fields(instance)
    if instance.opcode in OPS:
        raise ValueError(f"opcode {instance.opcode} is registered twice")
    OPS[instance.opcode] = instance
    return op


def _check_fields(op: AnyOp) -> None:
    """Raises TypeError if an op has no opcode, or describes itself by values that no one could read."""
    name = f"register: {type(op).__name__}"
    opcode: Any = getattr(op, "opcode", None)
    if not isinstance(opcode, str) or not _OPCODE.fullmatch(opcode):
        raise wrong_type(f"{name}.opcode", opcode, (str,), "letters, digits and -, as in 'row-norm'")
    match op.arity:
        case (int() as least, int() | None as most) if least >= 0 and (most is None or least <= most):
            pass
        case arity:
            raise wrong_type(f"{name}.arity", arity, (tuple,), "the least and the most operands: (1, 1), (2, None)")
    if Attributes not in getattr(op.attributes, "__mro__", ()):
        raise wrong_type(f"{name}.attributes", op.attributes, (type,), "a class derived from hloom.Attributes")
    algebra: Any = op.algebra
    if algebra is not None and not isinstance(algebra, Algebra):
        raise wrong_type(f"{name}.algebra", algebra, (Algebra, type(None)), "write hloom.Algebra.OPAQUE")


_OPCODE = re.compile(r"[A-Za-z][\w.-]*")


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
