"""Computations tell which instructions have ops of some kind, after any edit."""

from __future__ import annotations

from collections.abc import Callable

import hloom
import pytest
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.op import AnyOp, op_named

TEXT = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  a = f32[4] negate(p)
  b = f32[4] exponential(a)
  c = f32[4] negate(b)
  ROOT r = f32[4] add(c, a)
}
"""


def remove(c: Computation) -> None:
    c.set_operand(named(c, "r"), 0, named(c, "b"))
    c.remove(named(c, "c"))


def reorder(c: Computation) -> None:
    p, a, b, last, r = c
    q = c.build("negate", p, name="q", before=a)
    c.reorder([p, q, a, b, last, r])


def insert(c: Computation) -> None:
    c.build("negate", named(c, "p"), name="q", before=named(c, "a"))


def other_op(c: Computation) -> None:
    c.set_op(named(c, "a"), op_named("exponential"))


def grow(c: Computation) -> None:
    c.extend([i.copied(f"{i.name}.2", i.operands, i.attributes) for i in list(c)[1:3]])


def named(c: Computation, name: str) -> hloom.Instruction:
    found = c.find(name)
    assert found is not None
    return found


def is_unary(op: AnyOp) -> bool:
    return op.opcode in ("negate", "exponential")


@pytest.mark.parametrize("edit", [remove, reorder, insert, other_op, grow])
def test_all_edits_count(edit: Callable[[Computation], None]) -> None:
    c = hloom.parse(TEXT).entry
    tests: list[Callable[[AnyOp], bool]] = [is_unary, lambda op: op.opcode == "negate", lambda op: op.opcode == "dot"]
    before = [c.having(test) for test in tests]
    assert [[i.name for i in found] for found in before] == [["a", "b", "c"], ["a", "c"], []]
    edit(c)
    after = [c.having(test) for test in tests]
    assert after == [[i for i in c if test(i.op)] for test in tests]
    assert after != before


def test_ops_are_asked_once() -> None:
    asked: list[str] = []

    def note(op: AnyOp) -> bool:
        asked.append(op.opcode)
        return True

    c = hloom.parse(TEXT).entry
    assert c.having(note) == list(c)
    assert asked == ["parameter", "negate", "exponential", "add"]
