"""The lower bound of a program against the best of all its orders, and its critical path."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import hloom
import pytest
from hloom.cost.links import Link, Links
from hloom.cost.machine import Cluster
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline_seconds
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, Stage
from hloom.passes.base import PassContext, run_pass
from hloom.passes.schedule.bound import PATH, Bound, program_bound
from hloom.passes.schedule.orders import dependences
from hloom.passes.schedule.schedule import ScheduleCollectives
from support.command_line import ROOT

SUM = "sum { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"
GROUPS = "replica_groups={}, use_global_device_ids=true"
PAIRS = ("{{0,1},{1,0}}", "{{0,1},{1,2}}")
AXES = ("[2,2]<=[4]", "[2,2]<=[2,2]T(1,0)", "[1,4]<=[4]")


def _machine(rng: random.Random) -> Cluster:
    """A machine that fuses nothing: a megabyte of memory takes a millisecond, and about as long over links."""
    link = Link(rng.choice([0.0, 1e-4, 1e-3]), rng.choice([5e8, 1e9, 4e9]))
    machine = Cluster(Links(((1, link),)), 1e9, overlap_share=rng.choice([1.0, 0.9, 0.5, 0.0]), fused=False)
    if rng.random() < 0.3:
        torus = replace(link, torus=2, shape=(2, 2))
        return replace(machine, links=Links(((1, torus),)), torus_engines=True)
    return replace(machine, engines=(("all-reduce", "sums"),)) if rng.random() < 0.5 else machine


def _program(rng: random.Random, length: int, chain: bool) -> Module:
    """Ops and collectives on random earlier values; in a chain, each on the one before."""
    lines = ["x0 = f32[65536] parameter(0)"]
    for n in range(1, length + 1):
        first, second = (f"x{n - 1 if chain else rng.randrange(max(0, n - 4), n)}" for _ in range(2))
        lines.append(f"x{n} = f32[65536] " + rng.choice([
            f"add({first}, {second})", f"negate({first})",
            f"all-reduce({first}), channel_id={n}, {GROUPS.replace('{}', rng.choice(AXES))}, to_apply=sum",
            f"collective-permute({first}), channel_id={n}, source_target_pairs={rng.choice(PAIRS)}",
        ]))  # fmt: skip
    unread = [f"x{n}" for n in range(1, length + 1) if not any(f"x{n})" in t or f"x{n}," in t for t in lines[n + 1 :])]
    shape = ", ".join(["f32[65536]"] * len(unread))
    lines.append(f"ROOT r = ({shape}) tuple({', '.join(unread)})")
    return hloom.parse(f"HloModule m, num_partitions=4\n{SUM}ENTRY e {{\n" + "\n".join(lines) + "\n}\n")


def _orders(module: Module) -> Iterator[list[Instruction]]:
    """Yields all orders of the entry with operands before users."""
    needs = dependences(list(module.entry))

    def extended(done: list[Instruction]) -> Iterator[list[Instruction]]:
        if len(done) == len(needs):
            yield list(done)
        for i in needs:
            if i not in done and all(p in done for p in needs[i]):
                yield from extended([*done, i])

    yield from extended([])


def _bound_and_best(module: Module, machine: Cluster) -> tuple[Bound, float]:
    clock = Clock.of(module, machine)
    bound, best = program_bound(module, clock), float("inf")
    for order in list(_orders(module)):
        module.entry.reorder(order)
        best = min(best, timeline_seconds(module, clock))
    return bound, best


@pytest.mark.parametrize("seed", range(40))
def test_no_order_is_faster(seed: int) -> None:
    rng = random.Random(seed)
    module, machine = _program(rng, rng.randint(3, 6), chain=False), _machine(rng)
    bound, best = _bound_and_best(module, machine)
    assert 0 < bound.seconds <= best * (1 + 1e-9)


def test_no_combination_is_faster() -> None:
    combined = 0
    for seed in range(150):
        rng = random.Random(seed)
        module, machine = _program(rng, rng.randint(4, 8), chain=False), _machine(rng)
        module.stage = Stage.LOCAL
        bound, count = program_bound(module, Clock.of(module, machine)), sum(i.op.is_collective for i in module.entry)
        run_pass(ScheduleCollectives(), module, PassContext(machine=machine))
        assert bound.seconds <= timeline_seconds(module, Clock.of(module, machine)) * (1 + 1e-9)
        combined += sum(i.op.is_collective for i in module.entry) < count
    assert combined > 10


@pytest.mark.parametrize("seed", range(20))
def test_a_program_with_one_order_takes_its_bound(seed: int) -> None:
    rng = random.Random(seed)
    module, machine = _program(rng, rng.randint(3, 12), chain=True), _machine(rng)
    bound, best = _bound_and_best(module, machine)
    assert bound.seconds == pytest.approx(best, rel=1e-9)
    assert bound.length == pytest.approx(best, rel=1e-9)


def test_the_bound_is_close() -> None:
    """Most random programs reach the bound, if combined collectives save no latency and ops run beside them."""
    gaps: list[float] = []
    for seed in range(40):
        rng = random.Random(seed)
        module, machine = _program(rng, rng.randint(3, 6), chain=False), _machine(rng)
        link = Link(0.0, machine.links.slowest.bandwidth)
        bound, best = _bound_and_best(module, replace(machine, links=Links(((1, link),)), overlap_share=1.0))
        gaps.append(best / bound.seconds - 1)
    assert sum(gap < 1e-9 for gap in gaps) > 0.8 * len(gaps)
    assert sum(gaps) / len(gaps) < 0.05


LOOP = f"""HloModule m, num_partitions=2
{SUM}
body {{ s = (s32[], f32[1000000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[1000000] get-tuple-element(s), index=1
  g = f32[1000000] all-reduce(v), channel_id=1, {GROUPS}, to_apply=sum
  w = f32[1000000] negate(g)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[1000000]) tuple(j, w) }}
until {{ s = (s32[], f32[1000000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = f32[1000000] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[1000000]) tuple(zero, x)
  w = (s32[], f32[1000000]) while(s), condition=until, body=body
  v = f32[1000000] get-tuple-element(w), index=1
  ROOT r = f32[1000000] negate(v) }}
"""


def test_a_path_counts_the_trips_of_loops() -> None:
    module, machine = hloom.parse(LOOP), Cluster(Links(((1, Link(1e-3, 1e9)),)), 1e9)
    bound = program_bound(module, Clock.of(module, machine))
    assert bound.by == PATH
    assert bound.seconds == pytest.approx(hloom.timeline(module, machine).seconds)
    rows = [(s.instruction.name, s.runs, s.depth) for s in bound.path if s.seconds > 1e-6]
    assert rows == [("w", 1, 0), ("g", 5, 1), ("w", 5, 1), ("r", 1, 0)]
    assert bound.engines == {"communication": pytest.approx(5 * 5e-3)}


def test_heads_and_tails_bound_an_engine() -> None:
    """Two gathers on one engine before two ops: the second op waits for both gathers, though no path has both."""
    text = f"""HloModule m, num_partitions=2
{SUM}ENTRY e {{ x = f32[1000000] parameter(0)
  a = f32[1000000] all-reduce(x), channel_id=1, {GROUPS}, to_apply=sum
  b = f32[1000000] collective-permute(x), channel_id=2, source_target_pairs={{{{0,1}},{{1,0}}}}
  c = f32[1000000] negate(a)
  d = f32[1000000] negate(b)
  ROOT t = (f32[1000000], f32[1000000]) tuple(c, d) }}
"""
    module, machine = hloom.parse(text), Cluster(Links(((1, Link(0.0, 1e9)),)), 1e10, fused=False)
    bound, best = _bound_and_best(module, machine)
    assert bound.by == "communication"
    assert bound.length < bound.seconds == pytest.approx(best)


def test_permutes_along_other_pairs_have_a_latency_each() -> None:
    """Halos are sent to both sides: such permutes are never combined, so that one latency would leave a gap."""
    text = """HloModule m, num_partitions=4
ENTRY e { x = f32[8] parameter(0)
  down = f32[8] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3}}
  up = f32[8] collective-permute(x), channel_id=2, source_target_pairs={{1,0},{2,1},{3,2}}
  ROOT t = (f32[8], f32[8]) tuple(down, up) }
"""
    module, machine = hloom.parse(text), Cluster(Links(((1, Link(1e-3, 1e9)),)), 1e9)
    bound, best = _bound_and_best(module, machine)
    assert bound.seconds > 2e-3
    assert bound.seconds == pytest.approx(best)


def test_the_found_program_has_no_gap() -> None:
    """Two products between a gather and a reduction have one order."""
    text = (ROOT / "tests" / "passes" / "schedule" / "two_products.hlo").read_text()
    module = hloom.partition(hloom.parse(text), machine="h100")
    machine = hloom.parse_machine("h100")
    bound = program_bound(module, Clock.of(module, machine))
    assert hloom.timeline(module, machine).seconds == pytest.approx(bound.seconds, rel=0.02)
    kinds = [s.instruction.opcode for s in bound.path if s.seconds > 1e-5]
    assert kinds == ["all-gather", "dot", "tanh", "dot", "reduce-scatter"]


def test_what_collectives_slow_waits_for_the_first_and_the_last_too() -> None:
    """Nothing is computed beneath the first gather and the last sum; all between is slower beneath the other ones."""
    pieces = "".join(f"""
  g{n} = f32[1000000] collective-permute(x{n}), channel_id={n + 1}, source_target_pairs={{{{0,1}},{{1,0}}}}
  h{n} = f32[1000000] negate(g{n})
  y{n} = f32[1000000] all-reduce(h{n}), channel_id={n + 4}, {GROUPS}, to_apply=sum""" for n in range(2))
    text = f"""HloModule m, num_partitions=2
{SUM}ENTRY e {{ x0 = f32[1000000] parameter(0)
  x1 = f32[1000000] parameter(1){pieces}
  ROOT t = (f32[1000000], f32[1000000]) tuple(y0, y1) }}
"""
    module = hloom.parse(text)
    machine = Cluster(Links(((1, Link(0.0, 1e10)),)), 1e9, overlap_share=0.5, fused=False)
    bound, best = _bound_and_best(module, machine)
    assert bound.by == "compute"
    assert bound.seconds == pytest.approx(best)


def test_the_found_program_in_pieces_has_a_small_gap() -> None:
    text = (ROOT / "tests" / "passes" / "schedule" / "two_products.hlo").read_text()
    found = hloom.forecast(hloom.parse(text), "h100")
    assert found.seconds <= 1.02 * found.bound.seconds
