"""Decisions that other times turn: with another machine, and within the error of forecasts."""

from __future__ import annotations

from dataclasses import replace

import hloom
import pytest
from hloom.cost.links import Link, Links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.digit import Digit
from hloom.passes.base import PassContext
from hloom.report.turned import close_decisions, what_if

# Each device computes the product alike, from a gathered x, or a half of it, and the large result is gathered.
PROGRAM = """HloModule m
ENTRY e {
  x = f32[256,64] parameter(0), sharding={devices=[2,1]<=[2]}
  w = f32[64,4096] parameter(1), sharding={replicated}
  ROOT r = f32[256,4096] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
}"""


def machine(bandwidth: float) -> Cluster:
    return Cluster(Links(((1, Link(1e-6, bandwidth)),)), points=1e12, known_error=0.2)


def sizes(bandwidth: float) -> list[str]:
    local = hloom.partition(hloom.parse(PROGRAM), machine=machine(bandwidth))
    return [c.groups + str(c.buffer_bytes) for c in hloom.collectives(local)]


@pytest.fixture(scope="module")
def border() -> float:
    """The bandwidth at which the decision turns."""
    slow, fast = 1e9, 1e13
    assert sizes(slow) != sizes(fast)
    while fast / slow > 1.02:
        middle = (slow * fast) ** 0.5
        slow, fast = (middle, fast) if sizes(middle) == sizes(1e9) else (slow, middle)
    return slow


def test_another_machine_turns_decisions(border: float) -> None:
    module, context = hloom.parse(PROGRAM), PassContext(machine=machine(border / 10))
    (found, *_) = what_if(module, context, machine(border * 10))
    assert found.here != found.there
    assert found.bytes > 0
    assert what_if(module, context, machine(border / 10)) == []


def test_decisions_near_the_border_are_close(border: float) -> None:
    def close(machine: Cluster) -> bool:
        return bool(close_decisions(hloom.parse(PROGRAM), PassContext(machine=machine)))

    assert close(machine(border * 1.05))
    assert close(machine(border / 1.05))
    assert not close(machine(border * 1.5))
    assert close(replace(machine(border * 1.5), known_error=0.9))


def test_slower_collectives_leave_the_rest() -> None:
    h100 = hloom.parse_machine("h100")
    half = h100.slower(2.0)
    one, two = (m.collective("all-gather", (Digit(8, 1),)) for m in (h100, half))
    assert (two.latency, two.per_byte) == (pytest.approx(2 * one.latency), pytest.approx(2 * one.per_byte))
    assert half.memory(1e6) == h100.memory(1e6)
