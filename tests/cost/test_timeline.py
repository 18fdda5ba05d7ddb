"""The timeline: small orders by hand, what holds for all orders, and that it is the forecast where nothing overlaps."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import hloom
import pytest
from hloom.cost.forecast import forecast
from hloom.cost.links import Link, Links
from hloom.cost.machine import Cluster
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.cost.timeline import TOGETHER, Timeline, timeline
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext
from hloom.passes.scheduling import schedule
from support.slow_machine import Slow

EXAMPLES = Path(__file__).parents[2] / "examples"

# A byte of memory takes 1 s, a byte over a link 10 s, a collective 100 s more.
MACHINE = Cluster(Links(((1, Link(100.0, 0.1)),)), 1.0, 1e30)
SUM = "sum { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"
ALL = "replica_groups=[1,2]<=[2], use_global_device_ids=true"


def program(body: str, others: str = "") -> Module:
    return hloom.parse(f"HloModule m, num_partitions=2\n{SUM}{others}ENTRY e {{\n{body}\n}}")


def gather(name: str, operand: str, size: int, channel: int) -> str:
    return f"{name} = f32[{size}] all-gather({operand}), channel_id={channel}, {ALL}, dimensions={{0}}\n"


def reduced(name: str, operand: str, size: int, channel: int) -> str:
    return f"{name} = f32[{size}] all-reduce({operand}), channel_id={channel}, {ALL}, to_apply=sum\n"


def times(found: Timeline) -> dict[str, tuple[float, float, float]]:
    return {e.name: (e.start, e.end, e.waited) for e in found.events}


# The gather receives 4 bytes: 140 s. The sort reads and writes 400 bytes: 800 s.
HIDDEN = f"""x = f32[1] parameter(0)
  z = f32[100] parameter(1)
  {gather("g", "x", 2, 1)}
  a = f32[100] sort(z), dimensions={{0}}, to_apply=less
  b = f32[2] sort(g), dimensions={{0}}, to_apply=less
  ROOT t = (f32[100], f32[2]) tuple(a, b)"""
LESS = "less { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LT }\n"


def test_a_collective_is_hidden_behind_what_stands_before_its_use() -> None:
    found = timeline(program(HIDDEN, LESS), MACHINE)
    assert times(found) == {"g": (0, 140, 0), "a": (0, 800, 0), "b": (800, 816, 0)}
    assert (found.seconds, found.compute, found.exposed, found.communication) == (816, 816, 0, 140)
    (event,) = found.collectives
    assert (event.state, event.hidden, event.needed, event.bytes) == ("hidden", 1.0, 800, 4)


@pytest.mark.parametrize(("share", "seconds", "slowed"), [(1.0, 816, 0), (0.5, 886, 70), (0.0, 956, 140)])
def test_computation_is_slower_beside_a_collective(share: float, seconds: float, slowed: float) -> None:
    found = timeline(program(HIDDEN, LESS), replace(MACHINE, overlap_share=share))
    assert (found.seconds, found.exposed) == (seconds, slowed)
    assert found.collectives[0].waited == slowed


def test_a_wait_counts_for_the_collectives_that_run_meanwhile() -> None:
    module = program(f"""x = f32[1] parameter(0)
  y = f32[10] parameter(1)
  z = f32[20] parameter(2)
  {gather("g", "x", 2, 1)}{gather("h", "y", 20, 2)}
  a = f32[20] sort(z), dimensions={{0}}, to_apply=less
  b = f32[20] sort(h), dimensions={{0}}, to_apply=less
  ROOT t = (f32[20], f32[20], f32[2]) tuple(a, b, g)""", LESS)  # fmt: skip
    found = timeline(module, MACHINE)
    # h takes 500 s from 140 on. From 160 s on nothing can be computed without it; g was done by then.
    assert times(found) == {"g": (0, 140, 0), "h": (140, 640, 480), "a": (0, 160, 0), "b": (640, 800, 0)}
    assert [e.state for e in found.collectives] == ["hidden", "exposed"]
    two = timeline(module, replace(MACHINE, engines=(("all-gather", "one"),)))
    assert two.busy == {"one": 640}
    assert two.seconds == found.seconds


def test_engines_run_at_the_same_time() -> None:
    module = program(f"""x = f32[1] parameter(0)
  y = f32[1] parameter(1)
  {gather("g", "x", 2, 1)}{reduced("r", "y", 1, 2)}
  ROOT t = (f32[2], f32[1]) tuple(g, r)""")
    assert timeline(module, MACHINE).seconds == 280
    found = timeline(module, replace(MACHINE, engines=(("all-gather", "one"),)))
    assert (found.seconds, found.busy) == (140, {"one": 140, "communication": 140})


def test_tuples_views_and_barriers_read_nothing() -> None:
    module = program(f"""x = f32[1] parameter(0)
  z = f32[100] parameter(1)
  {gather("g", "x", 2, 1)}
  pair = (f32[2], f32[100]) tuple(g, z)
  kept = (f32[2], f32[100]) opt-barrier(pair)
  other = f32[100] get-tuple-element(kept), index=1
  same = f32[2] get-tuple-element(kept), index=0
  view = f32[1,2] reshape(same)
  a = f32[100] sort(other), dimensions={{0}}, to_apply=less
  b = f32[1,2] sort(view), dimensions={{1}}, to_apply=less
  ROOT t = (f32[100], f32[1,2]) tuple(a, b)""", LESS)  # fmt: skip
    assert times(timeline(module, MACHINE)) == {"g": (0, 140, 0), "a": (0, 800, 0), "b": (800, 816, 0)}


def test_a_done_waits_at_its_place() -> None:
    module = program(f"""x = f32[1] parameter(0)
  z = f32[100] parameter(1)
  s = (f32[1], f32[2]) all-gather-start(x), channel_id=1, {ALL}, dimensions={{0}}
  d = f32[2] all-gather-done(s)
  a = f32[100] sort(z), dimensions={{0}}, to_apply=less
  ROOT t = (f32[100], f32[2]) tuple(a, d)""", LESS)  # fmt: skip
    assert times(timeline(module, MACHINE)) == {"s": (0, 140, 140), "a": (140, 940, 0)}


LOOP = f"""body {{
  s = (s32[], f32[1], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[1] get-tuple-element(s), index=1
  {gather("g", "v", 2, 1)}
  a = f32[1] sort(v), dimensions={{0}}, to_apply=less
  ROOT t = (s32[], f32[1], f32[2]) tuple(next, a, g)
}}
condition {{
  s = (s32[], f32[1], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}}
"""
LOOP_BODY = """x = f32[1] parameter(0)
  y = f32[2] parameter(1)
  zero = s32[] constant(0)
  {before}
  s = (s32[], f32[1], f32[2]) tuple(zero, x, y)
  w = (s32[], f32[1], f32[2]) while(s), condition=condition, body=body
  v = f32[2] get-tuple-element(w), index=2
  ROOT t = (f32[2]{more}) tuple(v{result})"""


def test_a_loop_counts_its_trips_and_awaits_its_state() -> None:
    module = program(LOOP_BODY.format(before="", more="", result=""), LESS + LOOP)
    found = timeline(module, MACHINE)
    trip = 9 + 12 + 140  # the condition and the counter touch 9 and 12 bytes; the sort hides in the gather
    assert found.seconds == 5 * trip
    (g,) = found.collectives
    assert (g.trips, g.waited, found.busy) == (5, 132, {"communication": 700})
    assert found.exposed == 5 * g.waited


def test_what_runs_already_delays_the_first_trip_only() -> None:
    before = gather("h", "x", 2, 2)
    module = program(LOOP_BODY.format(before=before, more=", f32[2]", result=", h"), LESS + LOOP)
    found = timeline(module, MACHINE)
    assert [(e.name, e.trips, e.start) for e in found.collectives] == [("h", 1, 0), ("g", 1, 140), ("g", 4, 301)]
    assert found.seconds == 280 + 4 * 161
    assert found.exposed == sum(e.trips * e.waited for e in found.collectives)


def test_the_slowest_branch_runs() -> None:
    branches = f"""some {{ x = f32[1] parameter(0)
  {gather("g", "x", 2, 1)} ROOT c = f32[1] slice(g), slice={{[0:1]}} }}
none {{ ROOT x = f32[1] parameter(0) }}
"""
    module = program("""x = f32[1] parameter(0)
  p = pred[] parameter(1)
  ROOT r = f32[1] conditional(p, x, x), true_computation=none, false_computation=some""", branches)
    assert timeline(module, MACHINE).seconds == forecast(module, MACHINE).seconds == 148


def test_op_by_op_all_values_lie_in_memory() -> None:
    module = program("""x = f32[100] parameter(0)
  a = f32[100] negate(x)
  ROOT b = f32[100] negate(a)""")
    assert timeline(module, MACHINE).seconds == 800
    assert timeline(module, replace(MACHINE, fused=False)).seconds == 1600


def test_values_inside_of_loops_cost_what_they_read() -> None:
    module = program("""x = f32[100] parameter(0)
  y = f32[] parameter(1)
  b = f32[100] broadcast(y), dimensions={}
  a = f32[100] add(x, b)
  n = f32[100] negate(a)
  m = f32[100] multiply(n, b)
  ROOT r = f32[] reduce(m, y), dimensions={0}, to_apply=sum""")
    e = module.entry
    found = {i.name: Clock(MACHINE, 1).parts(i).compute for i in e}
    assert found == {"x": 0, "y": 0, "b": 4, "a": 400, "n": 0, "m": 0, "r": 8}
    launched = {i.name: Clock(replace(MACHINE, launch_seconds=7.0), 1).parts(i).compute for i in e}
    assert {n for n in found if launched[n] != found[n]} == {"r"}
    assert launched["r"] == 15


SCAN = pytest.param("transformer_scan_train", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["mlp_train", SCAN])
def train(request: pytest.FixtureRequest) -> Module:
    return hloom.partition(hloom.parse((EXAMPLES / f"{request.param}.hlo").read_text()))


def shuffle(module: Module, seed: int) -> None:
    """Brings the instructions into another order that is valid: any of those that are ready stands next."""
    draw = random.Random(seed)
    for computation in module:
        waiting = {i: {*i.operands, *i.control_predecessors} for i in computation}
        order: list[Instruction] = []
        while waiting:
            order.append(draw.choice([i for i, needs in waiting.items() if not needs]))
            del waiting[order[-1]]
            for needs in waiting.values():
                needs.discard(order[-1])
        computation.reorder(order)


@pytest.mark.parametrize("name", ["h100", "cpu-cluster"])
def test_nothing_overlaps_without_a_share_that_does(train: Module, name: str) -> None:
    machine = replace(PRESETS[name], launch_seconds=1e-6, overlap_share=0.0)
    wanted = forecast(train, machine)
    found = timeline(train, machine)
    assert found.seconds == pytest.approx(wanted.seconds)
    assert found.communication == pytest.approx(wanted.collectives)
    assert found.exposed == pytest.approx(wanted.collectives)
    assert all(e.state == "exposed" for e in found.collectives)


TORUS = Links(((1, Link(1e-5, 1e9, 1e-6, 2, (2, 4))),))


def test_what_holds_in_any_order(train: Module) -> None:
    for seed in range(4):
        shuffle(train, seed)
        for share, engines, links in (
            (1.0, (), None), (0.6, (), None), (1.0, (("all-reduce", "sums"),), None), (0.3, ((4, "far"),), None),
            (1.0, (), TORUS), (0.6, (), TORUS),
        ):  # fmt: skip
            machine = replace(PRESETS["cpu-cluster"], launch_seconds=1e-6, overlap_share=share, engines=engines)
            if links is not None:
                machine = replace(machine, links=links, torus_engines=True)
            found, serial = timeline(train, machine), forecast(train, machine)
            assert found.communication == pytest.approx(serial.collectives)
            assert found.compute == pytest.approx(serial.seconds - serial.collectives)
            assert sum(e.trips * e.waited for e in found.collectives) == pytest.approx(found.exposed)
            assert all(0 <= e.waited <= e.seconds * (1 + 1e-9) for e in found.collectives)
            assert max(found.compute, *found.busy.values()) <= found.seconds * (1 + 1e-9)
            assert found.seconds <= serial.seconds * (1 + 1e-9)
            for engine in found.busy:
                row = [e for e in found.events if engine in e.engine.split(TOGETHER)]
                assert all(a.end <= b.start * (1 + 1e-12) for a, b in pairwise(row))


def test_a_faster_machine_is_never_slower(train: Module) -> None:
    shuffle(train, 7)
    machine = replace(PRESETS["cpu-cluster"], launch_seconds=1e-6, overlap_share=0.5)
    faster = [
        replace(machine, links=Links(((1, Link(1e-5, 1e9)),))), replace(machine, links=Links(((1, Link(3e-5, 3e9)),))),
        replace(machine, memory_bytes=2e10), replace(machine, by_bits=(), points=1e12),
        replace(machine, launch_seconds=0.0), replace(machine, overlap_share=0.7),
    ]  # fmt: skip
    before = timeline(train, machine).seconds
    after = [timeline(train, other).seconds for other in faster]
    assert all(seconds <= before * (1 + 1e-12) for seconds in after)
    assert sum(seconds < before for seconds in after) >= 4  # memory may bound all products, or the work


def test_a_machine_of_an_embedder_needs_no_more_than_before(train: Module) -> None:
    old = Slow()
    found = timeline(train, old)
    assert set(found.busy) == {"communication"}
    assert found.seconds <= forecast(train, old).seconds
    assert old.capacity == math.inf


def test_single_instructions_take_what_the_timeline_takes(train: Module) -> None:
    """Scalars of a computation are launched once."""
    machine = replace(PRESETS["h100"], launch_seconds=2e-6, overlap_share=1.0)
    devices = train.num_partitions * train.replica_count
    found = timeline(train, machine)
    for event in found.events:
        if event.is_collective:
            assert event.seconds == pytest.approx(Clock(machine, devices).collective(event.instruction))
        elif not event.instruction.op.is_control:
            alone = Clock(machine, 1).parts(event.instruction).compute
            is_later = event.instruction.shape.num_elements == 1 and event.seconds < machine.launch_seconds < alone
            assert event.seconds == pytest.approx(alone - is_later * machine.launch_seconds, abs=1e-12)


def test_a_clock_may_be_used_again_for_another_order(train: Module) -> None:
    machine = PRESETS["h100"]
    clock = Clock.of(train, machine)
    timeline(train, machine, clock)
    shuffle(train, 3)
    assert timeline(train, machine, clock).seconds == timeline(train, machine).seconds


def test_a_collective_of_single_devices_lets_none_wait() -> None:
    """It takes no time, and so ends when it begins: what an engine waited for was searched for ever."""
    text = """HloModule m, num_partitions=8, frontend_attributes={hloom.stage="local"}
ENTRY e {
  x = f32[4,256,128] parameter(0)
  y = f32[4,128,256] parameter(1)
  g = f32[4,256,256] all-gather(x), channel_id=1, replica_groups=[4,2]<=[8], dimensions={2}, use_global_device_ids=true
  h = f32[4,128,512] all-gather(y), channel_id=2, replica_groups=[4,2]<=[2,2,2]T(0,2,1), dimensions={2},
    use_global_device_ids=true
  r = f32[4,128,2,256] reshape(h)
  a = f32[4,128,2,256] all-to-all(r), channel_id=3, replica_groups={{0},{5},{3},{4},{7},{2},{6},{1}}, dimensions={2}
  t = f32[4,2,128,256] transpose(a), dimensions={0,2,1,3}
  ROOT z = f32[4,256,256] reshape(t)
}"""
    module = hloom.parse(text)
    schedule(module, PassContext(machine=PRESETS["tpu-v5e"]))
    found = hloom.timeline(module, "tpu-v5e")
    assert [c.instruction.opcode for c in found.collectives].count("all-to-all") == 1
    assert found.seconds >= found.exposed > 0
