"""domain: an identity that separates instructions with different shardings; older versions of XLA insert it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..factors.sharding_rule import ShardingRule
from ..graph.attributes import Attributes
from ..graph.interfaces import FloatTypes, Memory, Movement
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..strings import BracedText
from ..types.shape import Shape
from .structure import leaf_rule, leaves_of, unchanged

_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_SIDES = rf"(?:entry=\s*{_BRACES}\s*,\s*exit|exit=\s*{_BRACES}\s*,\s*entry)=\s*{_BRACES}"
_TEXT = re.compile(rf'\{{\s*kind="sharding"\s*,\s*{_SIDES}\s*\}}')


@dataclass(frozen=True, slots=True)
class DomainAttributes(Attributes):
    """`{kind="sharding", entry={..}, exit={..}}`, kept verbatim."""

    domain: BracedText


@register
class Domain(Op[DomainAttributes], Memory, Movement, FloatTypes):
    """Returns its operand unchanged."""

    opcode = "domain"
    algebra = Algebra.MOVE
    keeps_types = True
    forwards_leaves = True
    shares_memory = True
    attributes = DomainAttributes

    def infer_shape(self, operands: Sequence[Shape], attributes: DomainAttributes, declared: Shape | None) -> Shape:
        if not _TEXT.fullmatch(attributes.domain.text):
            raise ShapeError('domain: expected {kind="sharding", entry={..}, exit={..}}')
        return operands[0]

    def sharding_rule(self, call: OpCall[DomainAttributes]) -> ShardingRule:
        return leaf_rule(leaves_of(call.operands), tuple(call.shape.leaves()))

    def kernel(self, call: OpCall[DomainAttributes], compile: Compile) -> Kernel:
        return unchanged
