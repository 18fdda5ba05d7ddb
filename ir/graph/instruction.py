"""Instructions: the nodes of the graph. Identity equality; edited through their computation."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from ..diagnostics import InternalError, Location
from ..reached import reached
from ..sharding.sharding import AnySharding, Sharding, TupleSharding
from ..shown import shortened
from ..strings import BracedText, quote, unescape
from ..types.shape import Shape
from .attributes import Attributes, called_fields
from .checked_field import checked_field
from .op import A, AnyOp, OpCall

if TYPE_CHECKING:
    from .checked_field import Field
    from .computation import Computation

FrontendAttributes = Mapping[str, "str | BracedText"]
NO_FRONTEND_ATTRIBUTES: FrontendAttributes = {}


@dataclass(frozen=True, slots=True)
class Metadata:
    """`metadata={..}`, kept as the raw text between the braces. Properties parse the fields that messages need."""

    text: str

    @staticmethod
    def named(op_name: str) -> Metadata:
        """Returns metadata with only an op_name."""
        return Metadata(f"op_name={quote(op_name)}")

    @property
    def op_name(self) -> str:
        return _string_field(self.text, "op_name")

    @property
    def source_file(self) -> str:
        return _string_field(self.text, "source_file")

    @property
    def source_line(self) -> int:
        return _int_field(self.text, "source_line")

    @property
    def stack_frame_id(self) -> int:
        return _int_field(self.text, "stack_frame_id")


@lru_cache(maxsize=65536)
def _string_field(text: str, field: str) -> str:
    match = re.search(rf'\b{field}="((?:[^"\\]|\\.)*)"', text)
    return unescape(match[1]) if match else ""


def _int_field(text: str, field: str) -> int:
    match = re.search(rf"\b{field}=(\d+)", text)
    return int(match[1]) if match else 0


def _parsed_by(reader: str) -> Callable[[object], str]:
    """Returns the help for a text that was assigned: the function that parses it."""
    return lambda value: f"write hloom.{reader}({value!r})" if isinstance(value, str) else f"hloom.{reader} reads text"


def _note_edit(instruction: Instruction) -> None:
    if instruction.parent is not None:
        instruction.parent.loop_edits += 1


def _note_dependencies(instruction: Instruction) -> None:
    if instruction.parent is not None and instruction.control_predecessors:
        instruction.parent.has_control_dependencies = True
    _note_edit(instruction)


class Instruction:
    """One operation of a computation.

    `sharding` is the value of `sharding=`; `shardy` that of the frontend attribute `xla.sdy.sharding` (the frontend
    parses it once; it is not printed from here). `users` counts, per user, how many operands refer to this instruction.
    `other` holds further common attributes verbatim (statistics, origin, parameter_replication).
    `proto_extras` holds protobuf fields that HLO text cannot express; the protobuf reader sets it for the writer.
    `control_predecessors` are instructions of the same computation that must run before this one, regardless of data
    flow. Assigning a value of a wrong type to a shape, a sharding and the like raises TypeError.
    """

    __slots__ = (
        "_attributes", "_backend_config", "_control_predecessors", "_frontend_attributes", "_metadata", "_shape",
        "_sharding", "_shardy", "location", "name", "op", "operands", "other", "parent", "proto_extras", "users",
    )  # fmt: skip

    # Programs that edit programs get an error at the wrong assignment, not later.
    attributes: Field[Attributes] = checked_field(
        "_attributes", (Attributes,), lambda _: "Computation.build makes them", _note_edit)
    shape: Field[Shape] = checked_field("_shape", (Shape,), _parsed_by("parse_shape"), _note_edit)
    sharding: Field[AnySharding | None] = checked_field(
        "_sharding", (Sharding, TupleSharding, type(None)), _parsed_by("parse_sharding"))
    shardy: Field[AnySharding | None] = checked_field(
        "_shardy", (Sharding, TupleSharding, type(None)), _parsed_by("parse_sharding"))
    metadata: Field[Metadata | None] = checked_field(
        "_metadata", (Metadata, type(None)), lambda _: "write Metadata.named(op_name), or Metadata(text)")
    frontend_attributes: Field[FrontendAttributes] = checked_field(
        "_frontend_attributes", (Mapping,), lambda _: "write a dict of texts by name")
    backend_config: Field[str | BracedText | None] = checked_field(
        "_backend_config", (str, BracedText, type(None)), lambda _: "write a string, or BracedText for text in braces",
        _note_edit)
    control_predecessors: Field[tuple[Instruction, ...]] = checked_field(
        "_control_predecessors", (tuple,), lambda _: "write a tuple of instructions", _note_dependencies)

    def __init__(
        self,
        name: str,
        op: AnyOp,
        operands: list[Instruction],
        attributes: Attributes,
        shape: Shape,
        location: Location | None = None,
    ) -> None:
        self.parent: Computation | None = None
        self.name = name
        self.op = op
        self.operands = operands
        self.attributes = attributes
        self.shape = shape
        self.location = location
        self._sharding = self._shardy = self._metadata = self._backend_config = None
        self._frontend_attributes = NO_FRONTEND_ATTRIBUTES
        self._control_predecessors: tuple[Instruction, ...] = ()
        self.other: tuple[tuple[str, str], ...] = ()
        self.proto_extras: Any = None
        self.users: dict[Instruction, int] = {}

    @property
    def opcode(self) -> str:
        """The name of the op in HLO text."""
        return self.op.opcode

    def attributes_as(self, kind: type[A]) -> A:
        """Returns the attributes, which must be of this class. Raises InternalError if they are not."""
        attributes = self.attributes
        if not isinstance(attributes, kind):
            raise InternalError(f"{self.opcode} {self.name} has {type(attributes).__name__}, not {kind.__name__}")
        return attributes

    @property
    def annotation(self) -> AnySharding | None:
        """The sharding that the program requests: Shardy's if there is one, because it has names, else HLO's."""
        shardy = self._shardy
        return self._sharding if shardy is None else shardy

    @property
    def call(self) -> OpCall[Any]:
        """This use of the op, without its place in the graph."""
        return OpCall(tuple([o._shape for o in self.operands]), self._attributes, self._shape, *self.config_and_rule)

    @property
    def identities(self) -> tuple[Hashable, ...]:
        """All that determines this use but for its operands and frontend attributes, by the identities of objects:
        readers make one of equal ones.
        """
        return (
            self.op, id(self._attributes), id(self._shape), id(self._sharding), id(self._shardy), self._backend_config)

    @property
    def config_and_rule(self) -> tuple[str, str]:
        """The texts of the backend_config and of a sharding rule that the program gives; empty if there are none."""
        config, attributes = self._backend_config, self._frontend_attributes
        rule = str(attributes.get("xla.sdy.sharding_rule", "")) if attributes else ""
        return "" if config is None else str(config), rule

    def called(self) -> list[Computation]:
        """Returns the computations that the attributes refer to, in field order."""
        found: list[Any] = []
        attributes = self._attributes
        for name in called_fields(type(attributes)):
            value = getattr(attributes, name)
            found += value if isinstance(value, tuple) else () if value is None else (value,)
        return found

    @property
    def needs(self) -> Sequence[Instruction]:
        """The instructions that must come before: operands and control predecessors."""
        return (*self.operands, *self.control_predecessors) if self.control_predecessors else self.operands

    def has_effect(self) -> bool:
        """Whether this instruction, or any instruction that it calls directly or indirectly, has a side effect."""
        if self.op.has_side_effect(self.attributes):
            return True
        if not called_fields(type(self.attributes)):
            return False
        called = reached(self.called(), lambda computation: computation.called())
        return any(i.op.has_side_effect(i.attributes) for computation in called for i in computation)

    def copied(self, name: str, operands: list[Instruction], attributes: Attributes) -> Instruction:
        """Returns an instruction like this one, in no computation. Control predecessors are not copied."""
        return self.repeated(name, operands, attributes, self.location, self._metadata)

    def repeated(
        self, name: str, operands: list[Instruction], attributes: Attributes, location: Location | None,
        metadata: Metadata | None,
    ) -> Instruction:  # fmt: skip
        """Returns an instruction like this one that comes from another place, in no computation."""
        copy = Instruction.__new__(Instruction)
        copy.name, copy.op, copy.operands, copy.location = name, self.op, operands, location
        # The slots themselves: these values were checked when this instruction got them.
        copy._attributes, copy._shape = attributes, self._shape
        copy._sharding, copy._shardy = self._sharding, self._shardy
        copy._metadata, copy._frontend_attributes = metadata, self._frontend_attributes
        copy._backend_config, copy.other, copy.proto_extras = self._backend_config, self.other, self.proto_extras
        copy._control_predecessors, copy.users, copy.parent = (), {}, None
        return copy

    def copy_annotations(self, other: Instruction) -> None:
        """Copies location and metadata, the annotations of an instruction's origin."""
        self.location = other.location
        self._metadata = other._metadata

    def __reduce__(self) -> tuple[Any, ...]:
        if self.parent is None:
            raise TypeError(f"{self.name} cannot be pickled or copied: it is in no computation")
        return instruction_of, (self.parent, self.name)

    def __repr__(self) -> str:
        shape, operands = str(self.shape), ", ".join(o.name for o in self.operands)
        return f"<{self.name} = {shortened(shape, 80)} {self.opcode}({shortened(operands, 80)})>"


def instruction_of(computation: Computation, name: str) -> Instruction:
    """Returns the instruction of this name. Pickles refer to a single instruction this way. Raises UnpicklingError."""
    found = computation.find(name)
    if found is None:
        raise UnpicklingError(f"computation {computation.name} has no instruction {name}")
    return found
