"""Equal computations become one where ops apply them to elements."""

from __future__ import annotations

from copy import copy

import hloom
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext, run_pass
from hloom.passes.cleanup.equal_computations import EqualComputations
from hloom.passes.cleanup.inline import CallInliner

PROGRAM = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
plus {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}
other {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] OTHER
}
ENTRY e {
  x = f32[4,6] parameter(0)
  zero = f32[] constant(0)
  one = f32[] call(zero, zero), to_apply=plus
  u = f32[4] reduce(x, one), dimensions={1}, to_apply=sum
  v = f32[4] reduce(x, zero), dimensions={1}, to_apply=plus
  w = f32[4] reduce(x, zero), dimensions={1}, to_apply=other
  ROOT t = (f32[4], f32[4], f32[4]) tuple(u, v, w)
}
"""


def merged(other: str, call: bool = False) -> tuple[bool, Module]:
    text = PROGRAM.replace("OTHER", other)
    if not call:
        text = text.replace("call(zero, zero), to_apply=plus", "add(zero, zero)")
    module = hloom.parse(text)
    changed = EqualComputations().run(module, PassContext(verify="each"))
    hloom.verify(module)
    return changed, module


def names(module: Module) -> list[str]:
    return [c.name for c in module]


def applied(module: Module) -> list[str]:
    return [called.name for i in module.entry for called in i.called()]


def test_names_do_not_distinguish_computations() -> None:
    changed, module = merged("add(p, q)")
    assert changed
    assert names(module) == ["sum", "e"]
    assert applied(module) == ["sum"] * 3


def test_order_of_operands_and_opcodes_do() -> None:
    for other in ("add(q, p)", "multiply(p, q)", "add(p, p)"):
        _, module = merged(other)
        assert names(module) == ["sum", "other", "e"]
        assert applied(module) == ["sum", "sum", "other"]


def test_a_computation_that_is_also_called_stays() -> None:
    changed, module = merged("multiply(p, q)", call=True)
    assert names(module) == ["sum", "plus", "other", "e"]
    assert applied(module) == ["plus", "sum", "sum", "other"]
    assert changed


def test_nothing_changes_twice() -> None:
    _, module = merged("add(p, q)")
    assert not EqualComputations().run(module, PassContext())


def test_equal_uses_have_one_object_of_attributes_in_all_copies() -> None:
    _, module = merged("add(p, q)", call=True)
    for program in (module, copy(module)):
        reductions = [i for i in program.entry if i.opcode == "reduce"]
        assert len({id(i.attributes) for i in reductions}) == 1
    assert run_pass(CallInliner(), module, PassContext())
    assert len({id(i.attributes) for i in module.entry if i.opcode == "reduce"}) == 1


def test_the_inliner_copies_one_of_equal_computations() -> None:
    for call in (False, True):
        text = PROGRAM.replace("OTHER", "add(p, q)")
        module = hloom.parse(text if call else text.replace("call(zero, zero), to_apply=plus", "add(zero, zero)"))
        assert run_pass(CallInliner(), module, PassContext()) == call
        assert run_pass(EqualComputations(), module, PassContext()) != call
        assert names(module) == ["sum", "e"]
        assert applied(module) == ["sum"] * 3


def test_equal_computations_apply_equal_ones() -> None:
    program = """HloModule m
F1 { a = f32[] parameter(0)  ROOT c = f32[] negate(a) }
F2 { a = f32[] parameter(0)  ROOT c = f32[] negate(a) }
B1 { x = f32[] parameter(0)  ROOT y = f32[] map(x), dimensions={}, to_apply=F1 }
B2 { x = f32[] parameter(0)  ROOT y = f32[] map(x), dimensions={}, to_apply=F2 }
ENTRY e {
  x = f32[4] parameter(0)
  u = f32[4] map(x), dimensions={0}, to_apply=B1
  ROOT v = f32[4] map(u), dimensions={0}, to_apply=B2
}
"""
    module = hloom.parse(program)
    assert EqualComputations().run(module, PassContext(verify="each"))
    hloom.verify(module)
    assert names(module) == ["F1", "B1", "e"]
