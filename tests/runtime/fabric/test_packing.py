"""Operands of a collective travel as one message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.graph.module import Module
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime.fabric.one_per_rank import OneDevicePerRank
from hloom.runtime.fabric.packing import Buffers, Rows
from hloom.runtime.plan.compile import Compilation

PROGRAM = """HloModule m, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[4,6] parameter(0)
  w = f32[4,1] parameter(1)
  ROOT r = OP, channel_id=1, replica_groups={{0,1}}
}"""
GLOBAL = ", use_global_device_ids=true"
KINDS = {
    "Iallgather": f"(f32[8,6], f32[8,1]) all-gather(x, w), dimensions={{0}}{GLOBAL}",
    "Iallreduce": f"(f32[4,6], f32[4,1]) all-reduce(x, w), to_apply=add{GLOBAL}",
    "Ireduce_scatter_block": f"(f32[2,6], f32[2,1]) reduce-scatter(x, w), dimensions={{0}}, to_apply=add{GLOBAL}",
    "Ibcast": "(f32[4,6], f32[4,1]) collective-broadcast(x, w)",
}


class FakeComm:
    """Counts the operations that are started."""

    size, rank = 2, 0

    def __init__(self) -> None:
        self.started: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def start(*_: Any, **__: Any) -> None:
            self.started.append(name)

        return start


class FakeMpi:
    BYTE, SUM = "BYTE", "SUM"


def _program(op: str) -> Module:
    return parse(PROGRAM.replace("OP", op))


@pytest.mark.parametrize("name", KINDS)
def test_one_message(name: str) -> None:
    compilation = Compilation(module := _program(KINDS[name]), ProcessGrid(1, 2))
    compilation.plan(module.entry)
    (collective,) = compilation.collectives
    comm, requests = FakeComm(), list[Any]()
    start = OneDevicePerRank(FakeMpi, comm, collective, requests, lambda _: None, Buffers())
    end = start.start([np.ones((4, 6), np.float32), np.ones((4, 1), np.float32)])
    assert (comm.started, len(requests)) == ([name], 1)
    assert end is not None
    assert [r.shape for r in end()] == [shape.dims for shape in collective.results]


@pytest.mark.parametrize("rows", [1, 3])
def test_arrays_come_out_as_they_went_in(rows: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, (rows, *dims)).astype(kind) for dims, kind in
              [((2, 3), np.float32), ((), np.int8), ((0, 4), np.int32), ((5,), np.complex64)]]  # fmt: skip
    places = Rows.of(arrays)
    packed = places.pack(arrays, np.empty(rows * places.ends[-1], np.uint8))
    for number, array in enumerate(arrays):
        part = places.part(packed, number)
        assert part.dtype == array.dtype
        np.testing.assert_array_equal(part, array)


def test_buffers_are_used_again() -> None:
    buffers = Buffers()
    first = buffers.take(8)
    assert buffers.take(8) is not first
    buffers.give(first)
    assert buffers.take(16) is not first
    assert buffers.take(8) is first
