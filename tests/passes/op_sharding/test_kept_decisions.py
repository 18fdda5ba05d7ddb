"""Decisions about uses of ops are kept for later programs, unless those come with rules or local forms of their own."""

from __future__ import annotations

from typing import Any

import hloom
import pytest
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.choose import Chooser
from hloom.passes.op_sharding.costs import cost
from hloom.passes.pipelines import partition
from hloom.passes.spmd.local_forms import local_forms

TEXT = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  x = f32[24,8] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[8,16] parameter(1), sharding={devices=[1,4]<=[4]}
  d = f32[24,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  ROOT s = f32[16] reduce(d, zero), dimensions={0}, to_apply=add
}"""

_FORM = local_forms().entries["dynamic-slice"]


@pytest.fixture(name="asked")
def _asked() -> list[str]:
    return []


def _context(asked: list[str], chooser: Chooser | None = None, **others: Any) -> PassContext:
    """Returns a context whose prices are noted, under a chooser that no other test has."""

    def price(op: Any, assignment: Any) -> float:
        asked.append(op.use.op.opcode)
        return cost(op, assignment)

    return PassContext(chooser=chooser or Chooser(price=price), **others)


def test_a_second_program_is_divided_like_the_first_without_a_search(asked: list[str]) -> None:
    context = _context(asked)
    first = partition(hloom.parse(TEXT), context).to_text()
    assert {"dot", "reduce"} <= set(asked)
    asked.clear()
    assert partition(hloom.parse(TEXT), _context(asked, context.chooser)).to_text() == first
    assert set(asked) == {"reduce"}  # its computation belongs to the program, so nothing about it is kept


@pytest.mark.parametrize(
    "others", [{"rules": {"dot": "([i, k], [k, j])->([i, j])"}}, {"forms": local_forms().override("dot", _FORM)}]
)
def test_programs_with_rules_or_forms_of_their_own_are_searched_anew(asked: list[str], others: dict[str, Any]) -> None:
    context = _context(asked)
    partition(hloom.parse(TEXT), context)
    asked.clear()
    partition(hloom.parse(TEXT), _context(asked, context.chooser, **others))
    assert "dot" in asked
