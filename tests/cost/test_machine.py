"""The machine: times of collectives, memory and work, and that all passes ask the one of their context."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.collectives import wire_bytes
from hloom.cost.fits import Fit
from hloom.cost.machine import DEFAULT, SECOND, Cluster, Transfer
from hloom.cost.presets import parse_machine
from hloom.cost.seconds import Clock
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.sharding import REPLICATED, Sharding
from hloom.ir.types.element_type import F32
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.resharding.certificate import reshard
from support.slow_machine import Slow

# A row of four numbers: one collective with real latencies, fewer bytes in two without.
ROW = """HloModule m, num_partitions=8
ENTRY e {
  x = f32[64] parameter(0), sharding={devices=[8]<=[8]}
  ROOT y = f32[64] copy(x), sharding={devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}
}
"""


def test_times_of_the_default_are_whole_picoseconds() -> None:
    transfer = DEFAULT.collective("all-gather", (Digit(2, 1),))
    assert transfer == DEFAULT.fastest == Transfer(latency=10.0, per_byte=10.0)
    assert (transfer.time(3), transfer.time(0), transfer.most(40), transfer.most(5)) == (40, 0, 3, 0)
    assert (DEFAULT.memory(7), DEFAULT.work(300, F32), DEFAULT.levels) == (7, 3, ())


def test_an_irregular_order_and_any_devices_take_the_slowest_link() -> None:
    machine = parse_machine(links="1us/100GB;4:5us/25GB")
    near, far = Transfer(1e6, 10.0), Transfer(5e6, 40.0)
    assert machine.collective("all-gather", (Digit(4, 1),)) == machine.fastest == near
    assert machine.collective("all-gather", (Digit(2, 4),)) == far
    assert machine.collective("all-gather", (Digit(4, 1),), (0, 2, 1, 3)) == far
    assert machine.collective("collective-permute", None) == far
    assert machine.levels == (4,)
    assert machine == parse_machine(links="1us/100GB;4:5us/25GB")
    assert len({machine, parse_machine(links="1us/100GB;4:5us/25GB"), Cluster(), DEFAULT}) == 2


def test_the_partitioner_asks_the_machine_of_its_context() -> None:
    counts: list[int] = []
    for machine in (DEFAULT, parse_machine(links="1us/100GB"), Slow()):
        module = hloom.parse(ROW)
        run_pipeline(parse_pipeline("propagate,spmd-partition"), module, PassContext(machine=machine))
        counts.append(len(hloom.collectives(module)))
    assert counts[0] > counts[1] == counts[2] == 1


def test_certificates_are_in_seconds() -> None:
    shape, rows = hloom.frontends.parse_shape("f32[8]"), hloom.frontends.parse_sharding("{devices=[4]<=[4]}")
    assert isinstance(rows, Sharding)
    found = reshard(shape, rows, REPLICATED, machine=Slow())
    assert (found.received_bytes, found.seconds) == (24, pytest.approx((1e6 + 240) / SECOND))


def test_each_array_of_a_measured_collective_takes_time() -> None:
    """Three arrays in one collective wait once and are packed three times; one that joins saves the rest of its wait.
    """
    fits = tuple(Fit("all-reduce", (count,), 1e-5, 1e9, array) for count, array in ((2, 1e-6), (4, 3e-6)))
    text = """HloModule m, num_partitions=3
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[300] parameter(0)
 one = f32[300] all-reduce(x), to_apply=add, channel_id=1, replica_groups={{0,1,2}}
 ROOT all = (f32[300], f32[300], f32[300]) all-reduce(x, x, x), to_apply=add, channel_id=2, replica_groups={{0,1,2}}
}"""
    module = hloom.parse(text)
    clock, by_name = Clock(Cluster(fits=fits), 3), {i.name: i for i in module.entry}
    received = 1e-9 * wire_bytes(by_name["one"], 3)
    assert clock.collective(by_name["one"]) == pytest.approx(1e-5 + received)
    assert clock.collective(by_name["all"]) == pytest.approx(1e-5 + 2 * 2e-6 + 3 * received)
    assert clock.latency(by_name["one"]) == pytest.approx(1e-5 - 2e-6)
    apart = Clock(Cluster(fits=fits), 3, combined=False)
    assert apart.collective(by_name["all"]) == pytest.approx(3 * (1e-5 + received))
    assert Cluster(fits=fits).slower(2.0).fits[0] == Fit("all-reduce", (2,), 2e-5, 0.5e9, 2e-6)
