"""The time of a plan: forecasts begin only where one fits, and what is left can be shared."""

from __future__ import annotations

import math
import time

import hloom
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.passes.base import PassContext
from hloom.passes.planning.judge import Effort, judge
from hloom.passes.planning.time_left import TimeLeft
from support.training_steps import clipped_adam

SLOW_MEMORY = Cluster(links=parse_links("1us/10GB"), memory_bytes=1e9, points=1e12)


def test_a_forecast_begins_where_there_is_time_for_it() -> None:
    now = time.monotonic()
    left = TimeLeft(now + 1000, longest=300)
    assert left.allows()
    assert left.allows(3)
    assert not left.allows(4)
    half = left.share(0.5)
    assert half.allows()
    assert not half.allows(2)
    assert left.until == left.deadline - 300
    assert not TimeLeft(now - 1).allows()


def test_the_first_forecast_counts_until_there_is_a_second_one() -> None:
    first = TimeLeft(math.inf).after(6.5)
    assert first.longest == 6.5
    second = first.share(0.5).after(1.9)
    assert second.longest == 1.9
    assert second.after(2.5).after(1.5).longest == 2.5


def test_a_search_loses_patience_some_forecasts_after_the_best_one() -> None:
    now = time.process_time()
    assert TimeLeft(math.inf, longest=10.0).is_patient  # nothing is found yet
    assert TimeLeft(math.inf, longest=10.0, found=now - 50.0).is_patient
    assert not TimeLeft(math.inf, longest=10.0, found=now - 70.0).is_patient
    assert TimeLeft(math.inf, longest=0.001, found=now).is_patient  # for a moment at least
    assert not TimeLeft(math.inf, longest=0.001, found=now - 2.0).is_patient
    assert TimeLeft(math.inf, longest=10.0, found=now - 90.0).better().is_patient


def test_from_a_moment_on_divided_states_are_not_scheduled_as_well() -> None:
    module, context = hloom.parse(clipped_adam(4, 64, 256, 64, 16)), PassContext(machine=SLOW_MEMORY)
    divided, whole = (judge(module, context, 4, left=TimeLeft(until)).seconds for until in (math.inf, 0.0))
    assert divided < 0.6 * whole


def test_a_late_schedule_looks_for_no_less_memory() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[64,64] parameter(0)
  a = f32[64,64] tanh(x)
  b = f32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,64] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT d = f32[64,64] add(a, c)
}"""
    module, context = hloom.parse(text), PassContext(machine=SLOW_MEMORY)
    whole = judge(module, context, 1, effort=Effort.QUICK)
    limit = whole.peak - 1000
    soon, late = (judge(module, context, 1, limit, effort=Effort.QUICK, left=TimeLeft(end)) for end in (math.inf, 0.0))
    assert soon.fits
    assert soon.peak <= limit
    assert not late.fits
    assert late.peak == whole.peak
