"""The machine: times of collectives, memory and work, and that all passes ask the one of their context."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.machine import DEFAULT, SECOND, Cluster, Transfer
from hloom.cost.presets import parse_machine
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
