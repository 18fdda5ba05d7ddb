"""Collectives that delay a scheduled program start earlier: the same ops in another order, in less time."""

from __future__ import annotations

import random

import hloom
import numpy as np
import pytest
from hloom.cost.memory import peak_memory
from hloom.cost.presets import parse_machine
from hloom.cost.resumed import ResumedOrders
from hloom.cost.seconds import Clock
from hloom.cost.simulation import Steps
from hloom.cost.sizes import Bytes
from hloom.cost.timeline import timeline_seconds
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.passes.base import PassContext, run_pass
from hloom.passes.schedule.critical_chain import critical_chain
from hloom.passes.schedule.fastest import Fastest
from hloom.passes.schedule.recorded import record, recorded_forecast
from hloom.passes.schedule.start_earlier import StartEarlier
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from support.layered_programs import Model

MACHINE, SLOW = (parse_machine("work=f32:1G;memory=10GB", f"1us/{rate}") for rate in ("1GB", "20MB"))
BEHIND = """HloModule behind, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,64] parameter(0)
  w = f32[256,256] parameter(1)
  long = f32[256,256] all-reduce(w), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64] all-reduce(y), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  z = f32[64,64] dot(s, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  v = f32[256,256] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[64,64], f32[256,256], f32[256,256]) tuple(z, v, long)
}"""


def seconds(module: Module, machine: hloom.Machine = MACHINE) -> float:
    return timeline_seconds(module, Clock.of(module, machine))


def scheduled(module: Module) -> Module:
    return schedule(clone_module(module), PassContext(machine=MACHINE), fastest=Fastest(earlier=None))


def test_a_short_collective_starts_before_a_long_one() -> None:
    """The product waits for a sum that stands behind a long one, which no one waits for, on the same engine."""
    module = hloom.parse(BEHIND)
    module.stage = hloom.Stage.LOCAL
    context = PassContext(machine=SLOW)
    run_pass(Fastest(earlier=None, pieces=None), module, context)
    order = [module.entry.find(n) for n in ("x", "w", "long", "y", "s", "z", "v", "r")]
    module.entry.reorder([i for i in order if i is not None])
    before = seconds(module, SLOW)
    record(module, before, peak_memory(module))
    assert run_pass(StartEarlier(), module, context)
    names = [i.name for i in module.entry]
    assert names.index("s") < names.index("long")
    assert seconds(module, SLOW) < 0.6 * before
    assert recorded_forecast(module) == (pytest.approx(seconds(module, SLOW), rel=1e-5), peak_memory(module))
    assert "changes of the order: 1;" in context.diagnostics.found[-1].message
    assert not run_pass(StartEarlier(), module, context)


BEFORE = """HloModule before, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,64] parameter(0)
  w = f32[128,128] parameter(1)
  v = f32[128,128] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64] all-reduce(y), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  z = f32[64,64] dot(s, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[64,64], f32[128,128]) tuple(z, v)
}"""


def test_computation_before_a_collective_fills_the_stall_after_it() -> None:
    """The product `v`, which nothing needs, takes longer than the sum, and hides it."""
    module, context = hloom.parse(BEFORE), PassContext(machine=SLOW)
    module.stage = hloom.Stage.LOCAL
    clock = Clock.of(module, SLOW)
    chain = critical_chain(ResumedOrders(module.entry, clock, Steps()))
    assert [([i.name for i in ops], c.name) for ops, c in chain.delaying] == [(["v", "y"], "s")]
    assert [(c.name, i and i.name) for c, i in chain.awaited] == [("s", "z")]
    record(module, seconds(module, SLOW), peak_memory(module))
    assert run_pass(StartEarlier(), module, context)
    assert [i.name for i in module.entry if i.opcode not in ("parameter", "tuple")] == ["y", "s", "v", "z"]
    assert seconds(module, SLOW) == pytest.approx(clock.serial(module.entry).compute, rel=1e-9)


def test_orders_that_do_not_fit_are_not_taken() -> None:
    """The largest number of changes that fits is kept, and further ones are checked."""
    module, context = hloom.parse(BEFORE), PassContext(machine=SLOW)
    module.stage = hloom.Stage.LOCAL
    given = module.to_text()
    record(module, seconds(module, SLOW), 1)
    assert not run_pass(StartEarlier(), module, context)
    assert [i.name for i in module.entry] == [i.name for i in hloom.parse(given).entry]
    assert run_pass(StartEarlier(memory=Bytes(1 << 30)), module, context)


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(24) if seed != 5)])
def test_random_steps(seed: int) -> None:
    """Bits and peak stay, and no time is lost."""
    whole = hloom.parse(Model.random(random.Random(seed).randint, ("fsdp", "tp", "both")[seed % 3]).text())
    plain = scheduled(hloom.partition(clone_module(whole), machine=MACHINE))
    new = clone_module(plain)
    moved = run_pass(StartEarlier(), new, PassContext(machine=MACHINE))
    check(new)
    assert moved is (seconds(new) < seconds(plain))
    assert seconds(new) <= seconds(plain)
    assert peak_memory(new) <= peak_memory(plain)
    inputs = inputs_for_module(whole)
    for ours, theirs in zip(simulate(new, inputs), simulate(plain, inputs), strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.slow
def test_no_collective_alone_moves_for_the_better() -> None:
    """Also those that no critical chain holds, in a step of three layers on 64 devices."""
    pytest.importorskip("jax")
    from models import dense

    machine = parse_machine("h100")
    program = dense.dense(dense.Transformer(
        layers=3, width=1024, hidden=4096, heads=8, head=128, vocabulary=32000, batch=8, sequence=4096,
        positions="rotary", tied=False, scan=False), {"data": 8, "model": 8}, dense.FSDP_SEQUENCE)  # fmt: skip
    context = PassContext(machine=machine)
    module = schedule(hloom.partition(program.module, machine=machine).module, context, int(500e9))
    ours, order = seconds(module, machine), list(module.entry)
    tried = 0
    for place, one in enumerate(order):
        for step in (-8, -4, -2, 2, 4, 8) if one.op.is_collective else ():
            new = order[:place] + order[place + 1 :]
            new.insert(place + step, one)
            places = {i: n for n, i in enumerate(new)}
            if all(places[needed] < places[i] for i in (one, *one.users) for needed in i.needs):
                module.entry.reorder(new)
                tried += 1
                assert seconds(module, machine) > ours * (1 - 1e-5), (one.name, step)
    assert tried > 20


def test_large_programs_stay() -> None:
    module = scheduled(hloom.partition(hloom.parse(Model(kind="tp").text()), machine=MACHINE))
    text = module.to_text()
    assert not run_pass(StartEarlier(instructions=10), module, PassContext(machine=MACHINE))
    assert module.to_text() == text
