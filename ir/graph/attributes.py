"""Attributes of instructions: frozen dataclasses whose field names and types are the text format.

An op declares its attributes once, as a subclass of `Attributes`; the parser and the printer walk the fields. A field
without a default is required in text; a field equal to its default is not printed, save where XLA prints it too
(`PRINTED_ALWAYS`). The types a field may have are those in the codec tables of parser and printer: int, bool, str,
float, enums, tuples of ints, called computations, literals, and the value types below.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

Dims = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Attributes:
    """Base of all attribute classes, and the attributes of an op that has none.

    `spellings` are attributes that later versions of XLA print: by name, the texts of their values, and the field and
    the text that mean the same here; None where the value is what Hloom takes it for anyway.
    """

    spellings: ClassVar[Mapping[str, Mapping[str, tuple[str, str] | None]]] = {}


class Callee:
    """Base class through which attributes refer to computations. `Computation`, in a higher layer, is its subclass."""

    name: str


CALLEES = tuple[Callee, ...]
"""The type of a field that holds several computations."""

NONE = Attributes()


# Field metadata: the field is optional in text, but printed even where it equals the default.
PRINTED_ALWAYS = {"always": True}
# Field metadata: the field stands between the parentheses, `parameter(0)`, `constant({..})`.
INLINE = {"inline": True}


@dataclass(frozen=True, slots=True)
class ParameterAttributes(Attributes):
    """The attributes of a parameter: its number among the computation's parameters."""

    number: int = dataclasses.field(metadata=INLINE)


@dataclass(frozen=True, slots=True)
class Identifier:
    """An unquoted attribute value that Hloom passes through uninterpreted."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class SliceDim:
    """`[start:limit:stride]` of one dimension."""

    start: int
    limit: int
    stride: int = 1


SliceDims = tuple[SliceDim, ...]


@dataclass(frozen=True, slots=True)
class PadDim:
    """`low_high_interior` of one dimension. Low and high may be negative."""

    low: int
    high: int
    interior: int = 0


@dataclass(frozen=True, slots=True)
class PaddingConfig:
    """`low_high[_interior]x..`, one entry per dimension. Empty for a scalar."""

    dims: tuple[PadDim, ...] = ()

    def __str__(self) -> str:
        inner = any(d.interior for d in self.dims)
        return "x".join(f"{d.low}_{d.high}" + (f"_{d.interior}" if inner else "") for d in self.dims)


@dataclass(frozen=True, slots=True)
class WindowDim:
    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    reversal: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """`{size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}`."""

    dims: tuple[WindowDim, ...] = ()

    def __str__(self) -> str:
        d = self.dims
        if not d:
            return "{}"
        parts = ["size=" + "x".join(str(w.size) for w in d)]
        if any(w.stride != 1 for w in d):
            parts.append("stride=" + "x".join(str(w.stride) for w in d))
        if any(w.low or w.high for w in d):
            parts.append("pad=" + "x".join(f"{w.low}_{w.high}" for w in d))
        if any(w.lhs_dilate != 1 for w in d):
            parts.append("lhs_dilate=" + "x".join(str(w.lhs_dilate) for w in d))
        if any(w.rhs_dilate != 1 for w in d):
            parts.append("rhs_dilate=" + "x".join(str(w.rhs_dilate) for w in d))
        if any(w.reversal for w in d):
            parts.append("rhs_reversal=" + "x".join(str(int(w.reversal)) for w in d))
        return "{" + " ".join(parts) + "}"


@dataclass(frozen=True, slots=True)
class DimLabels:
    """`b01f_01io->b01f`: the role of each dimension of a convolution's input, kernel and output, in their order.

    b is batch, f feature, i and o the kernel's input and output features, digits the spatial dimensions. `?` marks a
    dimension without a role, which some custom-calls have.
    """

    lhs: str
    rhs: str
    out: str

    @staticmethod
    def parse(text: str) -> DimLabels:
        """Parses labels. Raises ValueError unless each part names each role once, with the same spatial dimensions."""
        match = re.fullmatch(r"([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)", text)
        if match is None:
            raise ValueError(f"dim_labels: expected labels like b01f_01io->b01f, found '{text}'")
        labels = DimLabels(match[1], match[2], match[3])
        count = len(labels.spatial)
        for part, roles in ((labels.lhs, "bf"), (labels.rhs, "io"), (labels.out, "bf")):
            wanted = [str(d) for d in range(count)] + sorted(roles)
            if sorted(part.replace("?", "")) != wanted:
                raise ValueError(f"dim_labels: '{part}' must have each of {' '.join(wanted)} once")
        return labels

    @property
    def spatial(self) -> str:
        """The labels of the spatial dimensions, in the order of the window's dimensions."""
        return "".join(str(d) for d in range(len(self.lhs) - self.lhs.count("?") - 2))

    def __str__(self) -> str:
        return f"{self.lhs}_{self.rhs}->{self.out}"


@dataclass(frozen=True, slots=True)
class AttributeField:
    """One field of an attribute class. `default` is `dataclasses.MISSING` for a required field. `always` means that the
    default is printed too, `inline` that the field stands between the parentheses.
    """

    name: str
    type: Any
    default: Any
    always: bool = False
    inline: bool = False

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def is_called(self) -> bool:
        """Whether the field holds one or several computations."""
        return self.type is Callee or self.type == CALLEES


@cache
def attribute_fields(cls: type[Attributes]) -> dict[str, AttributeField]:
    """Returns the fields of an attribute class by name, in printing order, with resolved types.

    Reports `X | None` as X, because None only marks absence, and computations as `Callee`.
    """
    hints = typing.get_type_hints(cls, localns={"Computation": Callee})
    result: dict[str, AttributeField] = {}
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        options = [t for t in typing.get_args(kind) if t is not type(None)]
        if type(None) in typing.get_args(kind):
            kind = options[0] if len(options) == 1 else typing.Union[tuple(options)]  # noqa: UP007
        marks = ("always" in field.metadata, "inline" in field.metadata)
        result[field.name] = AttributeField(field.name, kind, field.default, *marks)
    return result


@cache
def called_fields(cls: type[Attributes]) -> tuple[str, ...]:
    """Returns the names of the fields of an attribute class that may hold called computations."""
    return tuple(name for name, field in attribute_fields(cls).items() if field.is_called)


@cache
def inline_field(cls: type[Attributes]) -> str | None:
    """Returns the name of the field of an attribute class that stands between the parentheses; None if none does."""
    return next((name for name, field in attribute_fields(cls).items() if field.inline), None)
