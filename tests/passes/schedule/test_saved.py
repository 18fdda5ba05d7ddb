"""Recomputed entries of stacks: the bits of the program, less memory; and the loops that must stay as they are."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.passes.base import PassContext
from hloom.passes.schedule.bound import program_bound
from hloom.passes.schedule.recorded import recorded_forecast
from hloom.passes.schedule.rematerialize import rematerialize
from hloom.passes.schedule.saved import free_saved
from hloom.passes.scheduling import schedule
from hloom.runtime import evaluate
from hloom.runtime.inputs.inputs import inputs_for_module
from support.scans import LOOPS, STACK, random_scan

MACHINE = PRESETS["cpu-cluster"]


def _changed(*changes: tuple[str, str]) -> Module:
    text = LOOPS
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return hloom.parse(text)


def _recomputed(module: Module, excess: float = 1e9) -> tuple[Module, int]:
    """The module with as many stacks recomputed as possible; checked to have the same bits."""
    new = clone_module(module)
    count = free_saved(new, Clock.of(new, MACHINE), excess)
    check(new)
    inputs = inputs_for_module(module, seed=3)
    for a, b in zip(evaluate(new, inputs), evaluate(module, inputs), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return new, count


def _stacks(module: Module) -> int:
    """How many arrays of the shape of a stack the loops have in their states."""
    return max(sum(s.dims == (5, 8, 64) for s in i.shape.leaves()) for i in module.entry if i.opcode == "while")


def test_stacks_are_recomputed_from_others() -> None:
    """t from x and the weights, then s from x and the new t: only x stays, beside the result."""
    module = hloom.parse(LOOPS)
    once, count = _recomputed(module)
    assert count == 1  # s reads the entries of t, so t stays in this round
    both, count = _recomputed(once)
    assert count == 1
    assert [_stacks(m) for m in (module, once, both)] == [4, 3, 2]
    assert live_memory(both).peak <= live_memory(module).peak - 1.9 * STACK
    assert _recomputed(both)[1] == 0  # what else the first loop carries is only known from x
    least = clone_module(module)
    assert rematerialize(least, Clock.of(least, MACHINE), 0.0) >= 2
    assert live_memory(least).peak <= live_memory(both).peak


def test_no_more_than_is_needed() -> None:
    assert _recomputed(hloom.parse(LOOPS), 0.0)[1] == 0
    assert _recomputed(hloom.parse(LOOPS), 1.0)[1] == 1


SAVES_X, READS_X = "dynamic-update-slice(xs, x1, i, zero, zero)", "x1 = f32[1,8,64] dynamic-slice(xs, at,"
MUST_STAY: dict[str, tuple[int, list[tuple[str, str]]]] = {  # with the number of stacks that can be recomputed
    "x is saved at another index": (0, [("x1 = f32[1,8,64] reshape(x)", "x1 = f32[1,8,64] reshape(x)\n  k = s32[] "
                                         "subtract(one, i)"), (SAVES_X, SAVES_X.replace("i,", "k,"))]),
    "x is saved in part": (0, [("x1 = f32[1,8,64] reshape(x)", "x0 = f32[1,8,64] reshape(x)\n  x1 = f32[1,4,64] "
                                "slice(x0), slice={[0:1], [0:4], [0:64]}")]),
    "x is saved at an offset": (0, [(SAVES_X, SAVES_X.replace("i, zero, zero", "i, one, zero"))]),
    "a trip is missing": (0, [("start = ", "one = s32[] constant(1)\n  start = "),
                              ("tuple(zero, x, empty", "tuple(one, x, empty")]),
    "x is read at another index": (0, [(READS_X, READS_X.replace("at,", "i,"))]),
    "the second loop changes x": (0, [("tuple(j, h, xs, ts", "tuple(j, h, gs, ts")]),
    "t is a result": (1, [("ROOT r = (f32[8,64], f32[5,8,64]) tuple(h, gs)", "sum = f32[5,8,64] add(gs, ts)\n  "
                        "ROOT r = (f32[8,64], f32[5,8,64]) tuple(h, sum)")]),
    "t is passed on by the second loop": (1, [
        ("ROOT r = (f32[8,64], f32[5,8,64]) tuple(h, gs)", "ts2 = f32[5,8,64] get-tuple-element(down), index=3\n"
         "  sum = f32[5,8,64] add(gs, ts2)\n  ROOT r = (f32[8,64], f32[5,8,64]) tuple(h, sum)")]),
    "t is read whole": (1, [("a = f32[8,64] multiply(g, t)", "all = f32[8,64] slice(whole), slice={[0:8], [0:64]}\n  "
                             "gt = f32[8,64] multiply(g, t)\n  a = f32[8,64] add(gt, all)"),
                            ("t = f32[8,64] reshape(t1)\n  s =", "t = f32[8,64] reshape(t1)\n  whole = f32[40,64] "
                             "reshape(ts)\n  s =")]),
    "other weights": (1, [("(zero, y, xs, ts, ss, ws,", "(zero, y, xs, ts, ss, others,"),
                          ("then = ", "others = f32[5,64] sine(ws)\n  then = ")]),
    "the first loop changes the weights": (1, [("tuple(j, y, nx, nt, ns, ws)", "tuple(j, y, nx, nt, ns, vs)"),
                                               ("q1 = f32[1,8,64] reshape(s)", "q1 = f32[1,8,64] reshape(s)\n  "
                                                "vs = f32[5,64] sine(ws)")]),
    "the trip counts": (1, [("t = f32[8,64] tanh(xw)", "f = f32[] convert(i)\n  fb = f32[8,64] broadcast(f), "
                             "dimensions={}\n  xf = f32[8,64] add(xw, fb)\n  t = f32[8,64] tanh(xf)")]),
    "random numbers": (1, [("t = f32[8,64] tanh(xw)", "lo = f32[] constant(0)\n  hi = f32[] constant(1)\n  "
                            "t = f32[8,64] rng(lo, hi), distribution=rng_uniform")]),
}  # fmt: skip


@pytest.mark.parametrize("name", MUST_STAY)
def test_what_must_stay(name: str) -> None:
    count, changes = MUST_STAY[name]
    module = _changed(*changes)
    new, found = _recomputed(module)
    assert found == count
    assert _stacks(new) == 4 - count


def test_state_that_is_read_late() -> None:
    """A schedule may take the slices of a trip just before their readers."""
    module = hloom.parse(LOOPS)
    body = next(c for c in module if c.name == "back")
    takes = [i for i in body if i.opcode in ("get-tuple-element", "constant", "dynamic-slice", "reshape")]
    for instruction in reversed(takes):
        others = [u for u in instruction.users if u.opcode != "tuple"] or list(instruction.users)
        body.move_before(instruction, min(others, key=list(body).index))
    check(module)
    assert _recomputed(_recomputed(module)[0])[1] == 1


@pytest.mark.slow
@pytest.mark.parametrize("limit", [370_000, 330_000, 300_000])
def test_scanned_transformer(limit: int) -> None:
    """Recomputed on eight devices: the bits of the partitioned program, within the limit, and proved."""
    module = hloom.load("examples/transformer_scan_train.hlo")
    local = hloom.partition(module)
    scheduled = schedule(clone_module(local), PassContext(machine=MACHINE), memory=limit)
    assert live_memory(scheduled).peak <= limit < live_memory(local).peak
    assert hloom.prove(module, scheduled).is_equal


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))])
def test_random_scans(seed: int) -> None:
    """Gradients of random layers, as JAX writes them: the bits of the program after each round."""
    module = random_scan(seed)
    total = 0
    for _ in range(4):
        module, count = _recomputed(module)
        total += count
    assert total


def test_the_bound_is_that_of_the_program_with_other_ops() -> None:
    """To compute t again takes less time than to save and read it, so that no order of the old program is as fast."""
    local = hloom.partition(hloom.parse(LOOPS.replace("HloModule m", "HloModule m, num_partitions=4"))).module
    seconds = program_bound(local, Clock.of(local, MACHINE)).seconds
    new = schedule(local, PassContext(machine=MACHINE), int(0.95 * live_memory(local).peak))
    bound = float(str(new.frontend_attributes["hloom.schedule.bound"]).strip('"'))
    assert recorded_forecast(new)[0] < 0.9 * seconds
    assert bound == pytest.approx(program_bound(new, Clock.of(new, MACHINE)).seconds, rel=1e-5)
    assert bound <= recorded_forecast(new)[0]
