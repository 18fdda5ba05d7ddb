"""The times that a calibration of this machine takes."""

from __future__ import annotations

from typing import Any, cast

import hloom
from hloom.driver.calibration import least_of
from hloom.runtime.calibrate import Timer
from hloom.runtime.ranks.cores import core_count, seconds_on_cores


class _Ranks:
    """Stands for a communicator of ranks that all say the same, but for those on another host."""

    def __init__(self, size: int, elsewhere: int = 0) -> None:
        self.size, self.elsewhere = size, elsewhere

    def allgather(self, value: object) -> list[object]:
        return [value] * (self.size - self.elsewhere) + ["elsewhere"] * self.elsewhere


def test_ranks_of_one_host_count_by_processor_time() -> None:
    """Those of several hosts wait for a network, which no processor time shows."""
    timers = [Timer(None), *(Timer(cast(Any, _Ranks(*sizes))) for sizes in ((1, 0), (2, 0), (4, 1)))]
    assert [timer.processor for timer in timers] == [False, False, True, False]
    assert seconds_on_cores([2.0, 1.0]) == (2.0 if core_count() > 1 else 3.0)
    assert seconds_on_cores([1.0] * 3 * core_count()) == 3.0


def test_more_ranks_than_cores_are_slower() -> None:
    """Each of four ranks for a core has a quarter of it, also where its short program runs undisturbed."""
    few, many = (Timer(cast(Any, _Ranks(count))) for count in (core_count(), 4 * core_count()))
    assert (few.crowding, many.crowding) == (1.0, 4.0)
    product = """HloModule m
ENTRY e {
  x = f32[256,256] parameter(0)
  ROOT y = f32[256,256] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    runs = [timer.runner(hloom.parse(product)) for timer in (few, many)]
    in_turns = [[run() for run in runs] for _ in range(50)]  # whatever else runs is beside both
    alone, crowded = map(min, zip(*in_turns, strict=True))
    assert 2.0 < crowded / alone < 8.0


def test_of_turns_the_least_counts_alone_and_the_median_on_ranks() -> None:
    alone, also_alone, ranks = (Timer(comm) for comm in (None, cast(Any, _Ranks(1)), cast(Any, _Ranks(2))))
    assert [timer.typical([3.0, 1.0, 2.0]) for timer in (alone, also_alone, ranks)] == [1.0, 1.0, 2.0]


def test_times_of_zero_do_not_count() -> None:
    """The clock of a virtual machine stands still while another one has its core."""
    times = iter([0.0, 0.5, 0.0, 0.25, 0.5])
    assert least_of(lambda: next(times), 1.0) == 0.25
