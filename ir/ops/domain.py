"""domain: an identity that separates instructions with different shardings; older versions of XLA insert it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..graph.attributes import Attributes
from ..graph.interfaces import FloatTypes, Memory
from ..graph.op import Algebra, Op, ShapeError, register
from ..strings import BracedText
from ..types.shape import Shape
from .structure import Forwards

_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_SIDES = rf"(?:entry=\s*{_BRACES}\s*,\s*exit|exit=\s*{_BRACES}\s*,\s*entry)=\s*{_BRACES}"
_EXIT_FIRST = re.compile(rf'(\{{\s*kind="sharding")\s*,\s*(exit=\s*{_BRACES})\s*,\s*(entry=\s*{_BRACES})\s*\}}')
_TEXT = re.compile(rf'\{{\s*kind="sharding"\s*,\s*{_SIDES}\s*\}}')


@dataclass(frozen=True, slots=True)
class DomainAttributes(Attributes):
    """`{kind="sharding", entry={..}, exit={..}}`, kept verbatim but for the order of the two."""

    domain: BracedText

    def __post_init__(self) -> None:
        if found := _EXIT_FIRST.fullmatch(self.domain.text):
            kind, leaving, entering = found.groups()
            object.__setattr__(self, "domain", BracedText(f"{kind}, {entering}, {leaving}}}"))


@register
class Domain(Forwards, Op[DomainAttributes], Memory, FloatTypes):
    """Returns its operand unchanged."""

    opcode = "domain"
    algebra = Algebra.MOVE
    keeps_types = True
    shares_memory = True
    attributes = DomainAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: DomainAttributes, declared: Shape | None) -> Shape:
        if not _TEXT.fullmatch(attributes.domain.text):
            raise ShapeError('domain: expected {kind="sharding", entry={..}, exit={..}}')
        return operands[0]
