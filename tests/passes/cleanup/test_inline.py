"""Calls are inlined into an entry in place: the program is the one that a copy would be."""

from __future__ import annotations

import random

import hloom
import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import lent
from hloom.passes.base import PassContext, run_pass
from hloom.passes.cleanup.inline import CallInliner

CALLEES = """
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
first { p = f32[8] parameter(0)  q = f32[8] parameter(1)  n = f32[8] negate(q)  ROOT p.1 = f32[8] copy(p) }
second { p = f32[8] parameter(0)  ROOT q = f32[8] parameter(1) }
twice {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  v = f32[8] call(p, q), to_apply=first
  w = f32[8] call(v, p), to_apply=second, sharding={devices=[2]<=[2]}
  ROOT x = f32[8] add(v, w)
}
summed {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  zero = f32[] constant(0)
  r = f32[] reduce(p, zero), dimensions={0}, to_apply=sum
  b = f32[8] broadcast(r), dimensions={}
  ROOT m = f32[8] multiply(b, q)
}
trip { t = (f32[8], s32[]) parameter(0)  e = f32[8] get-tuple-element(t), index=0
  i = s32[] get-tuple-element(t), index=1  one = s32[] constant(1)  j = s32[] add(i, one)
  c = f32[8] call(e, e), to_apply=summed
  ROOT r = (f32[8], s32[]) tuple(c, j) }
goes_on { t = (f32[8], s32[]) parameter(0)  i = s32[] get-tuple-element(t), index=1  two = s32[] constant(2)
  ROOT l = pred[] compare(i, two), direction=LT }
"""


def program(seed: int) -> str:
    """Returns a program of calls among other ops, whose names clash with those of what is called."""
    rng = random.Random(seed)
    names, lines = ["x", "y"], list[str]()
    for n in range(12):
        name = rng.choice(("p", "v", "x", "s", "m")) + f".{n + 1}"
        one, other = rng.choices(names, k=2)
        kind = rng.choice(("first", "second", "twice", "summed", "add", "add", "while"))
        annotation = rng.choice(("", ", sharding={devices=[2]<=[2]}"))
        if kind == "add":
            lines.append(f"{name} = f32[8] add({one}, {other}){annotation}")
        elif kind == "while":
            lines.append(f"zero.{n} = s32[] constant(0)")
            lines.append(f"start.{n} = (f32[8], s32[]) tuple({one}, zero.{n})")
            lines.append(f"end.{n} = (f32[8], s32[]) while(start.{n}), condition=goes_on, body=trip")
            lines.append(f"{name} = f32[8] get-tuple-element(end.{n}), index=0")
        else:
            lines.append(f"{name} = f32[8] call({one}, {other}), to_apply={kind}{annotation}")
        names.append(name)
    parameters = ["x = f32[8] parameter(0)", "y = f32[8] parameter(1)"]
    body = "\n  ".join([*parameters, *lines, f"ROOT p.99 = f32[8] add({names[-1]}, {names[-2]})"])
    return f"HloModule calls, num_partitions=2\n{CALLEES}ENTRY main {{\n  {body}\n}}\n"


def users(module: hloom.Module) -> list[list[tuple[str, list[tuple[str, int]]]]]:
    """Returns the users of each instruction, in the order in which it lists them."""
    def of(instruction: Instruction) -> tuple[str, list[tuple[str, int]]]:
        return instruction.name, [(user.name, count) for user, count in instruction.users.items()]

    return [[of(instruction) for instruction in computation] for computation in module]


@pytest.mark.parametrize("seed", range(6))
def test_inlining_makes_a_copy_as_if_written_so(seed: int) -> None:
    module = hloom.parse(program(seed))
    before, inlined = module.to_text(), lent(module)
    assert run_pass(CallInliner(), inlined, PassContext())
    hloom.verify(inlined)
    assert module.to_text() == before
    assert users(module) == users(hloom.parse(before))
    assert users(inlined) == users(hloom.parse(inlined.to_text()))
    assert all(i.parent is c and c.find(i.name) is i for c in inlined for i in c)
