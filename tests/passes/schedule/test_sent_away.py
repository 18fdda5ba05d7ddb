"""Values of layers that are written out, on the host while no one reads them: the bits, less memory, and the time."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

import hloom
import numpy as np
import pytest
from hloom.cost.machine import Cluster
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.passes.base import PassContext
from hloom.passes.schedule.bound import program_bound
from hloom.passes.schedule.on_host import moves_to_host
from hloom.passes.schedule.rematerialize import rematerialize
from hloom.passes.schedule.sent_away import HostLink, leaves_of
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from support.layered_programs import Model
from support.xla_runner import compile_text

UNLINKED = PRESETS["cpu-cluster"]
FAST, SLOW = (replace(UNLINKED, host_bytes=rate) for rate in (3e9, 1e6))
LAYERS = Model(layers=4, batch=2048, width=32, hidden=64, data=2, model=1, kind="dp", loop=False)


def programs(model: Model) -> tuple[Module, Module]:
    """The program, and that of a device."""
    whole = hloom.parse(model.text())
    return whole, hloom.partition(clone_module(whole)).module


def lower(local: Module, share: float, offload: bool = True, machine: Cluster = FAST) -> Module:
    """The program of a device in this share of its peak, or in as little as is reached."""
    new = clone_module(local)
    rematerialize(new, Clock.of(new, machine), share * live_memory(local).peak, offload=offload)
    check(new)
    return hloom.parse(new.to_text())


def same(whole: Module, new: Module, local: Module, backend: Literal["native", "reference"]) -> None:
    inputs = inputs_for_module(whole)
    ours, plain = (hloom.compile(m, backend=backend).simulate(inputs) for m in (new, local))
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(ours, plain, strict=True))


def test_written_out_layers() -> None:
    """What a layer saves is away from its next layer to its gradient; to compute it again takes longer, and frees less.
    """
    whole, local = programs(LAYERS)
    new, again = (lower(local, 0.6, offload) for offload in (True, False))
    peaks = [live_memory(m).peak for m in (local, new, again)]
    assert peaks[1] < 0.6 * peaks[0] < peaks[2]
    assert moves_to_host(new) > 5
    assert timeline(new, FAST).seconds < timeline(again, FAST).seconds
    assert program_bound(new, Clock.of(new, FAST)).seconds <= timeline(new, FAST).seconds
    same(whole, new, local, "reference")


def test_moves_run_beside_computation() -> None:
    """Values are written on the host as soon as the link has brought them, and come back just in time."""
    _, local = programs(LAYERS)
    new = lower(local, 0.7)
    place = {i: n for n, i in enumerate(new.entry)}
    peak = place[next(i for i in new.entry if i.name == live_memory(new).at)]
    leaves = list(leaves_of(new.entry))
    assert len(leaves) == moves_to_host(new) > 5
    assert all(place[f.move] < place[f.written] < place[f.back] for f in leaves)
    assert min(place[f.written] for f in leaves) < peak / 4
    assert max(place[f.back] for f in leaves) > (peak + len(place)) / 2
    assert timeline(new, FAST).seconds < 1.06 * timeline(local, FAST).seconds


def test_a_schedule_tries_it_within_memory() -> None:
    _, local = programs(LAYERS)
    limit = int(0.65 * live_memory(local).peak)
    context = PassContext(machine=FAST)
    new = schedule(clone_module(local), context, memory=limit)
    assert moves_to_host(new) > 5
    assert live_memory(new).peak <= limit
    assert any(f"{moves_to_host(new)} lie on the host" in d.message for d in context.diagnostics.found)


@pytest.mark.slow
def test_a_slow_link_is_not_used() -> None:
    """What is computed again is faster there; on the fast link it is not."""
    whole, local = programs(LAYERS)
    limit = int(0.8 * live_memory(local).peak)
    new, slow = (schedule(clone_module(local), PassContext(machine=m), memory=limit) for m in (FAST, SLOW))
    assert moves_to_host(slow) == 0 < moves_to_host(new)
    assert timeline(new, FAST).seconds < timeline(slow, FAST).seconds
    for scheduled in (new, slow):
        same(whole, scheduled, local, "native")
        assert hloom.prove(whole, scheduled).is_equal


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 24))])
def test_random_models(seed: int) -> None:
    choose = random.Random(seed)
    whole, local = programs(Model.random(choose.randint, ("dp", "fsdp", "tp", "both")[seed % 4]))
    new = lower(local, choose.choice([0.0, 0.5, 0.7]))
    assert live_memory(new).peak <= live_memory(local).peak
    same(whole, new, local, "reference")
    assert hloom.prove(whole, new).is_equal


KEPT = """HloModule m, num_partitions=2, frontend_attributes={{hloom.stage="local"}}
ENTRY e {{
  x = {0}[64,64] parameter(0)
  w = f32[64,64] parameter(1)
  early = {0}[64,64] {1}(x, x)
  t = f32[64,64] dot(w, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  most = f32[64,256] concatenate(t, t, w, w), dimensions={{1}}
  d = f32[64,64] dot(most, most), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  beneath = f32[64,64] tanh(d)
  late = {0}[64,64] {1}(early, x)
  ROOT r = (f32[64,64], {0}[64,64]) tuple(beneath, late)
}}"""


@pytest.mark.parametrize(("element", "op"), [("bf16", "add"), ("pred", "or"), ("c64", "add"), ("s4", "add")])
def test_arrays_of_any_type(element: str, op: str) -> None:
    local = hloom.parse(KEPT.format(element, op))
    new = lower(local, 0.0, machine=replace(UNLINKED, host_bytes=1e12))
    assert moves_to_host(new) == 1
    same(local, new, local, "reference")


MIXED = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e {
  x = f32[64,64] parameter(0)
  w = f32[64,64] parameter(1)
  early = f32[64,64] add(x, x)
  t = f32[64,64] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  u = f32[64,64] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  near = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  most = f32[64,256] concatenate(u, u, w, w), dimensions={1}
  d = f32[64,64] dot(most, most), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  beneath = f32[64,64] tanh(d)
  next = f32[64,64] multiply(beneath, near)
  v = f32[64,64] dot(next, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[64,64] dot(v, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  late = f32[64,64] add(early, y)
  ROOT r = (f32[64,64], f32[64,64]) tuple(next, late)
}"""


def test_what_is_away_is_not_computed_again() -> None:
    """The link has time for `early` alone: `near`, which a product makes, is computed again beside it."""
    local = hloom.parse(MIXED)
    new = clone_module(local)
    count = rematerialize(new, Clock.of(new, FAST), 0.8 * live_memory(local).peak, offload=True)
    assert (count, moves_to_host(new)) == (2, 1)
    assert live_memory(new).peak <= 0.8 * live_memory(local).peak
    same(local, new, local, "reference")


@pytest.mark.slow
def test_xla_compiles_and_runs_it() -> None:
    """XLA for CPUs has one memory, and drops the moves."""
    whole, local = programs(replace(LAYERS, batch=64, data=1))
    new = lower(local, 0.5)
    assert moves_to_host(new) > 0
    inputs = [np.asarray(i) for i in inputs_for_module(whole)]
    results = compile_text(new.to_text()).run([inputs])[0]
    for ours, theirs in zip(hloom.evaluate(whole, inputs), results, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-3, atol=1e-3)


def test_one_direction_of_a_link() -> None:
    """One value moves at a time, none before it is there; the second waits for the first one."""
    link = HostLink(10.0, [(1.0, 4.0), (2.0, 3.0)])
    assert link.late() == 0
    assert link.late((0.0, 1.0)) == 0
    assert link.late((9.0, 2.5)) == 1.5
    assert link.late((0.0, 4.0)) == 1.0
