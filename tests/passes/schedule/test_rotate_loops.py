"""The first ops of a trip run in the trip before: the same bits, by any head, and only where trips gain."""

from __future__ import annotations

import random

import hloom
import numpy as np
import pytest
from hloom.cost.presets import parse_machine
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.trip_count import trip_count
from hloom.ir.tools.verifier import check
from hloom.passes.base import PassContext, run_pass
from hloom.passes.cleanup.loop_state import editable_loops
from hloom.passes.schedule.fastest import Fastest
from hloom.passes.schedule.rewrites.base import RewriteProgram
from hloom.passes.schedule.rotate_loops import LoopHeads, rotate
from support.layer_loops import FORMS
from support.random_loops import random_loop
from support.rewrites import differences, local_inputs, rewritten, run

MACHINE = parse_machine("work=f32:1G;memory=10GB", "1us/30MB")
FORCED = "rotate-loops{least=-1,tries=4}"


SENDING = """HloModule sending, num_partitions=4
body {
  s = (s32[], f32[64,64], f32[3,64,64], f32[64,64], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  w = f32[3,64,64] get-tuple-element(s), index=2
  sum = f32[64,64] get-tuple-element(s), index=3
  most = s32[] get-tuple-element(s), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  f = f32[64,64] tanh(x)
  p = f32[64,64] collective-permute(f), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  layer = f32[1,64,64] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,64,64}
  v = f32[64,64] reshape(layer)
  a = f32[64,64] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[64,64] tanh(a)
  g = f32[64,64] dot(p, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  total = f32[64,64] add(sum, g)
  ROOT t = (s32[], f32[64,64], f32[3,64,64], f32[64,64], s32[]) tuple(j, y, w, total, most)
}
condition {
  s = (s32[], f32[64,64], f32[3,64,64], f32[64,64], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(9)
  ROOT c = pred[] compare(i, limit), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[64,64] parameter(0)
  w = f32[3,64,64] parameter(1)
  sum = f32[64,64] parameter(2)
  most = s32[] parameter(3)
  begin = (s32[], f32[64,64], f32[3,64,64], f32[64,64], s32[]) tuple(zero, x, w, sum, most)
  end = (s32[], f32[64,64], f32[3,64,64], f32[64,64], s32[]) while(begin), condition=condition, body=body
  y = f32[64,64] get-tuple-element(end), index=1
  total = f32[64,64] get-tuple-element(end), index=3
  ROOT r = (f32[64,64], f32[64,64]) tuple(y, total)
}"""
"""A loop whose trips begin with a permute; the product `g` waits for nothing, and no one for it."""


def loop_of(module: Module) -> hloom.Instruction:
    (loop,) = [i for i in module.entry if i.opcode == "while"]
    return loop


def rotations(text: str, most: int, peel: bool = True) -> int:
    """Rotates a program by heads of its loop, one after the other; returns their number."""
    count = 0
    for n in range(most):
        module = hloom.parse(text)
        module.stage = hloom.Stage.LOCAL
        (loop,) = editable_loops(module, module.entry)
        heads = LoopHeads(loop, Clock.of(module, MACHINE))
        found = heads.all()
        if n >= len(found):
            break
        head = found[n] | found[len(found) // 2] if n % 2 else found[n]
        trips = trip_count(loop)
        peeled = rotate(RewriteProgram(module, PassContext(machine=MACHINE)), module.entry, loop,
                        heads.rotation(head), peel)  # fmt: skip
        check(module)
        assert peeled is peel
        assert trips is not None
        assert trip_count(loop_of(module)) == trips - peel
        assert differences(text, module, exact=True, seeds=1) == ""
        count += 1
    return count


SLOW_FORMS = [
    pytest.param(FORMS[name], peel, id=f"{name}, {'last trip apart' if peel else 'one head too many'}",
                 marks=() if (name, peel) in {("down", True), ("every second", False)} else pytest.mark.slow)
    for name in FORMS for peel in (True, False)
]  # fmt: skip


@pytest.mark.parametrize(("text", "peel"), SLOW_FORMS)
def test_the_same_bits(text: str, peel: bool) -> None:
    """Of loops in which each trip gathers rows of the activations that the one before computes."""
    text = text.replace("all-gather(slice_)", "all-gather(rows)")
    module, remarks = rewritten(text, f"rotate-loops{{least=-1,tries=4,peel={str(peel).lower()}}}", MACHINE)
    assert "ops run one trip ahead" in remarks[0]
    trips = trip_count(loop_of(hloom.parse(text)))
    assert trips is not None
    assert trip_count(loop_of(module)) == trips - peel
    assert differences(text, module, exact=True) == ""


def test_any_head() -> None:
    """Ops of any kind may move, and those of several heads together."""
    assert [rotations(random_loop(random.Random(seed).randint), 3, peel=bool(seed)) for seed in range(2)] == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2, 102, 20))
def test_random_loops(first: int) -> None:
    tried = [rotations(random_loop(random.Random(s).randint), 24, peel=bool(s % 3)) for s in range(first, first + 20)]
    assert sum(tried) > 100


def waiting(module: Module) -> tuple[float, float]:
    """The seconds of a program, and those for which its permutes let it wait."""
    found = timeline(module, MACHINE)
    return found.seconds, sum(e.waited * e.trips for e in found.collectives if e.instruction.opcode != "all-reduce")


def test_a_permute_hides_across_trips() -> None:
    """What a trip sends to the next one, and what that computes first, is hidden by what else the trip computes."""
    module = hloom.parse(SENDING)
    module.stage = hloom.Stage.LOCAL
    plain, context = clone_module(module), PassContext(machine=MACHINE)
    run_pass(Fastest(rotation=None), plain, PassContext(machine=MACHINE))
    run_pass(Fastest(), module, context)
    assert any(d.message.startswith("rotate-loops: ") for d in context.diagnostics.found)
    assert waiting(plain)[1] > 0.2 * waiting(plain)[0]
    assert waiting(module)[0] < 0.8 * waiting(plain)[0]
    assert waiting(module)[1] < 0.6 * waiting(plain)[1]
    assert differences(SENDING, module, exact=True, seeds=1) == ""


@pytest.mark.parametrize("limit", [0, 1])
def test_few_trips(limit: int) -> None:
    text = SENDING.replace("constant(9)", f"constant({limit})")
    module, _ = rewritten(text, FORCED, MACHINE)
    assert module.to_text() == hloom.parse(text).to_text()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_unknown_trips(count: int) -> None:
    """The head of a trip that does not come is computed, and no one reads it: a slice past the end is one of the end.
    """
    text = SENDING.replace("limit = s32[] constant(9)", "limit = s32[] get-tuple-element(s), index=4")
    assert text != SENDING
    module, remarks = rewritten(text, FORCED, MACHINE)
    assert "the last trip runs them for nobody" in remarks[0]
    for one in (hloom.parse(text), module):
        assert trip_count(loop_of(one)) is None
    inputs = local_inputs(module)
    for device in inputs:
        device[-1] = np.asarray(count, np.int32)
    expected = run(hloom.parse(text), inputs)
    assert [r.tobytes() for r in run(module, inputs)] == [r.tobytes() for r in expected]


def test_the_next_value_of_the_counter_is_computed_again() -> None:
    """A head that needs it does not carry it: the trips of a loop would be unknown then, and its forecast wrong."""
    text = SENDING.replace("f = f32[64,64] tanh(x)", (
        "next = f32[1,64,64] dynamic-slice(w, j, zero, zero), dynamic_slice_sizes={1,64,64}  "
        "n = f32[64,64] reshape(next)  f = f32[64,64] add(x, n)"
    ))  # fmt: skip
    module, remarks = rewritten(text, FORCED, MACHINE)
    assert "ops run one trip ahead" in remarks[0]
    assert trip_count(loop_of(module)) == 8
    assert differences(text, module, exact=True, seeds=1) == ""


def test_effects_and_random_numbers_stay() -> None:
    """What is drawn, or computed from it, is computed in its own trip."""
    text = SENDING.replace("f = f32[64,64] tanh(x)", (
        "low = f32[] constant(0)  high = f32[] constant(1)  drawn = f32[64,64] rng(low, high), "
        "distribution=rng_uniform  f = f32[64,64] add(x, drawn)"
    ))  # fmt: skip
    module = hloom.parse(text)
    module.stage = hloom.Stage.LOCAL
    assert LoopHeads(loop_of(module), Clock.of(module, MACHINE)).all() == []
    module = hloom.parse(SENDING)
    (first, _) = LoopHeads(loop_of(module), Clock.of(module, MACHINE)).all()
    assert [i.name for i in first] == ["f"]
