"""Collectives and products in pieces: the numbers of the program at once, in less time where both overlap."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hloom
import pytest
from hloom.cost.machine import Cluster
from hloom.cost.presets import parse_machine
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pass
from hloom.passes.pipelines import partition
from hloom.passes.schedule.in_pieces import InPieces, may_gain
from hloom.passes.schedule.piece_sizes import PieceSizes
from hloom.passes.schedule.regions import RegionFinder
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.proof.prove import prove
from hloom.runtime.simulator import simulate
from hypothesis import given, settings
from programs.random.generate import programs
from support.command_line import ROOT, environment, have_mpi
from support.compare import compare
from support.layered_programs import Model
from support.partition_check import partitioned


def feed_forward(rows: int, width: int, hidden: int, element: str = "f32", devices: int = 4) -> str:
    """Returns two products on rows that all devices gather, and whose results they sum and scatter."""
    mesh = f"mesh['m'={devices}]"
    dot = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"""HloModule feed_forward, num_partitions={devices}
ENTRY e {{
  x = {element}[{rows},{width}] parameter(0), sharding={{{mesh}, [{{'m'}}, {{}}]}}
  w1 = {element}[{width},{hidden}] parameter(1), sharding={{{mesh}, [{{}}, {{'m'}}]}}
  w2 = {element}[{hidden},{width}] parameter(2), sharding={{{mesh}, [{{'m'}}, {{}}]}}
  b = {element}[{hidden}] parameter(3), sharding={{{mesh}, [{{'m'}}]}}
  h = {element}[{rows},{hidden}] dot(x, w1), {dot}
  bb = {element}[{rows},{hidden}] broadcast(b), dimensions={{1}}
  a = {element}[{rows},{hidden}] add(h, bb)
  g = {element}[{rows},{hidden}] tanh(a)
  ROOT y = {element}[{rows},{width}] dot(g, w2), {dot}, sharding={{{mesh}, [{{'m'}}, {{}}]}}
}}"""


def experts(groups: int = 4, tokens: int = 8, width: int = 16, hidden: int = 32) -> str:
    """Returns products of experts, to which tokens go by one all-to-all and from which they come by another."""
    mesh = "mesh['d'=4]"
    rows = f"sharding={{{mesh}, [{{'d'}}, {{}}, {{}}, {{}}]}}"
    columns = f"sharding={{{mesh}, [{{}}, {{'d'}}, {{}}, {{}}]}}"
    return f"""HloModule experts, num_partitions=4
ENTRY e {{
  x = f32[{groups},4,{tokens},{width}] parameter(0), {rows}
  w1 = f32[4,{width},{hidden}] parameter(1), sharding={{{mesh}, [{{'d'}}, {{}}, {{}}]}}
  w2 = f32[4,{hidden},{width}] parameter(2), sharding={{{mesh}, [{{'d'}}, {{}}, {{}}]}}
  there = f32[{groups},4,{tokens},{width}] copy(x), {columns}
  h = f32[4,{groups},{tokens},{hidden}] dot(there, w1), lhs_batch_dims={{1}}, rhs_batch_dims={{0}}, \
lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}
  g = f32[4,{groups},{tokens},{hidden}] tanh(h)
  y = f32[4,{groups},{tokens},{width}] dot(g, w2), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, \
lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}
  back = f32[{groups},4,{tokens},{width}] transpose(y), dimensions={{1,0,2,3}}, {columns}
  ROOT r = f32[{groups},4,{tokens},{width}] copy(back), {rows}
}}"""


SLOW_LINKS = parse_machine("work=f32:1T,bf16:1T;memory=1TB", "100ns/20GB")


def in_pieces(local: Module, count: int = 0) -> tuple[Module, bool]:
    module = clone_module(local)
    changed = run_pass(InPieces(count=count), module, PassContext(machine=SLOW_LINKS, verify="each"))
    return module, changed


def check(whole: Module, local: Module, module: Module) -> None:
    """Checks a rewritten program, as it is printed, against the one before: by numbers, and by a proof."""
    inputs = inputs_for_module(whole)
    assert compare(simulate(hloom.parse(module.to_text()), inputs), simulate(local, inputs)).equal
    assert prove(whole, module).is_equal


def counted(module: Module, opcode: str) -> int:
    return sum(i.opcode == opcode for i in module.entry)


@pytest.mark.parametrize(("rows", "count"), [(32, 2), (32, 3), (24, 4), (20, 5)])
def test_gathered_and_scattered_products(rows: int, count: int) -> None:
    """Also in pieces of different sizes: 8 rows of a device in 3, and 6 in 4."""
    whole = hloom.parse(feed_forward(rows, 16, 32))
    local = hloom.partition(hloom.parse(feed_forward(rows, 16, 32))).module
    module, changed = in_pieces(local, count)
    assert changed
    assert (counted(module, "all-gather"), counted(module, "reduce-scatter")) == (count, count)
    assert counted(module, "dot") == 2 * count
    check(whole, local, module)


@pytest.mark.parametrize("count", [2, 3])
def test_experts(count: int) -> None:
    whole, local = hloom.parse(experts()), hloom.partition(hloom.parse(experts())).module
    assert counted(local, "all-to-all") == 2
    module, changed = in_pieces(local, count)
    assert changed
    assert counted(module, "all-to-all") == 2 * count
    check(whole, local, module)


@pytest.mark.parametrize(("latency", "is_tried"), [("100ns", True), ("1s", False)])
def test_regions_that_latency_fills_are_not_tried(latency: str, is_tried: bool) -> None:
    """Two pieces have the latency of each collective twice, which is known before any is made."""
    machine = parse_machine("work=f32:1T,bf16:1T;memory=1TB", f"{latency}/20GB")
    local = partition(hloom.parse(feed_forward(512, 256, 512)), context := PassContext(machine=machine))
    clock, finder = Clock.of(local, machine), RegionFinder(local.entry)
    regions = [r for i in local.entry if i.op.is_collective for r in finder.regions_at(i)]
    assert regions
    assert any(may_gain(region, clock) for region in regions) is is_tried
    assert InPieces().may_change(local, context) is is_tried


@pytest.mark.parametrize(("launch", "count"), [(0.0, 3), (1e-6, 0)])
def test_regions_whose_launches_cost_more_than_they_save_do_not_grow(launch: float, count: int) -> None:
    """Ops between two collectives launch twice in pieces, which is known before a region is made."""
    machine = parse_machine("work=f32:1T,bf16:1T;memory=1TB", "100ns/20GB")
    assert isinstance(machine, Cluster)
    machine = replace(machine, launch_seconds=launch)
    local = partition(hloom.parse(experts(4, 32, 64, 128)), PassContext(machine=machine))
    finder = InPieces().finder(local, local.entry, Clock.of(local, machine))
    assert len([r for i in local.entry if i.op.is_collective for r in finder.regions_at(i)]) == count


class _OfAnyRegion(InPieces):
    """Tries regions whatever their collectives take beside latency."""

    def finder(self, module: Module, computation: Computation, clock: Clock) -> RegionFinder:
        return RegionFinder(computation)


@pytest.mark.parametrize(("latency", "launch", "gain"), [
    ("800ns", 0.0, (True, True)), ("1600ns", 0.0, (True, False)), ("800ns", 1e-6, (False, False)),
    ("100ns", 4e-7, (True, False)), ("100ns", 1e-6, (False, False))])  # fmt: skip
def test_what_latency_fills_would_not_gain(latency: str, launch: float, gain: tuple[bool, bool]) -> None:
    """The regions that are left out by the times of their collectives alone are none that pieces make faster."""
    machine = parse_machine("work=f32:1T,bf16:1T;memory=1TB", f"{latency}/20GB")
    assert isinstance(machine, Cluster)
    machine = replace(machine, launch_seconds=launch)
    for text, gains in zip((feed_forward(256, 128, 256), experts(4, 32, 64, 128)), gain, strict=True):
        local = partition(hloom.parse(text), context := PassContext(machine=machine))
        every = clone_module(local)
        changed = run_pass(_OfAnyRegion(), every, context), run_pass(InPieces(), local, context)
        assert changed == (gains, gains)
        assert local.to_text() == every.to_text()


TABLE = [("h100", 0.8), ("tpu-v4", 0.75)]


@pytest.mark.parametrize(("machine", "share"), TABLE)
def test_a_layer_of_llama_takes_less_time(machine: str, share: float) -> None:
    """Llama 70B's feed-forward layer on 8 devices; `schedule` does it by itself, and says both times."""
    context = PassContext(machine=parse_machine(machine))
    local = partition(hloom.parse(feed_forward(8192, 8192, 28672, "bf16", 8)), context)
    before = timeline(local, context.machine)
    schedule(local, context)
    after = timeline(local, context.machine)
    assert after.seconds < share * before.seconds
    assert after.exposed < 0.35 * before.exposed
    assert any("pieces of" in d.message and "at once" in d.message for d in context.diagnostics.found)


@pytest.mark.parametrize("machine", ["h100", "tpu-v4"])
def test_no_three_pieces_are_better_than_what_is_found(machine: str) -> None:
    """Of all sizes; and single pieces tell the times of programs in pieces, but for what joins them."""
    context = PassContext(machine=parse_machine(machine))
    local = partition(hloom.load(str(ROOT / "tests" / "passes" / "schedule" / "two_products.hlo")), context)
    clock = Clock.of(local, context.machine)
    (region,) = (r for i in local.entry if i.opcode == "all-gather" for r in RegionFinder(local.entry).regions_at(i))
    sizes, units = PieceSizes(local, clock, region), region.units
    best = min(sizes.found(), key=sizes.seconds)
    three = ((a, b, units - a - b) for a in range(1, units) for b in range(1, units - a))
    assert sizes.seconds(best) <= min(map(sizes.seconds, three))
    assert run_pass(InPieces(count=4), local, context)
    joining = sum(clock.parts(i).compute for i in local.entry if i.opcode == "concatenate")
    times = sizes.seconds((units // 4,) * 4) + joining
    assert timeline(local, context.machine).seconds == pytest.approx(times, rel=0.01)


@pytest.mark.parametrize("kind", ["dp", "fsdp", "tp", "both"])
def test_no_collective_waits_longer_than_it_takes(kind: str) -> None:
    """Nor is a program faster than its contractions, so that short collectives need no schedule."""
    module = partition(hloom.parse(Model(kind=kind, model=2, loop=False, width=64, hidden=128).text()))
    for name in ("tpu-v4", "h100"):
        clock = Clock.of(module, parse_machine(name))
        found = timeline(module, clock.machine, clock)
        assert found.collectives
        assert 0 < clock.contractions(module.entry) <= found.seconds
        assert all(e.waited <= clock.started(e.instruction) * (1 + 1e-9) for e in found.collectives)


def test_what_is_too_small_stays() -> None:
    """Latency is all that these collectives take."""
    context = PassContext(machine=parse_machine("h100"))
    local = partition(hloom.parse(feed_forward(32, 16, 32)), context)
    assert not run_pass(InPieces(), local, context)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(programs())
def test_random_programs_keep_their_numbers(module: Module) -> None:
    local = partitioned(module)
    new, changed = in_pieces(local, 2)
    if changed:
        inputs = inputs_for_module(module)
        assert compare(simulate(hloom.parse(new.to_text()), inputs), simulate(local, inputs)).equal


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks(ranks: int, tmp_path: Path) -> None:
    if not have_mpi():
        pytest.skip("there is no mpiexec")
    path = tmp_path / "whole.hlo"
    path.write_text(feed_forward(64, 64, 128))
    done = subprocess.run(
        [sys.executable, "-m", "hloom", "run", str(path), "--ranks", str(ranks), "--check", "--schedule", "--machine",
         "work=f32:1G;memory=1TB", "--links", "1us/100MB"],
        capture_output=True, text=True, env=environment(PYTHONPATH=str(ROOT / ".import")), timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pieces of" in done.stderr


def test_an_array_without_elements_has_no_pieces() -> None:
    module = hloom.parse("""HloModule nothing, num_partitions=4
      add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
      ENTRY e {
        x = f32[0] parameter(0)
        ROOT y = f32[0] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true,
          to_apply=add
      }""")
    assert not list(RegionFinder(module.entry).regions_at(module.entry.root))
    assert [i.opcode for i in schedule(module).entry] == ["parameter", "all-reduce"]
