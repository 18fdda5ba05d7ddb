"""Simulates the failures and repairs of a pod's hosts over time, to check the sums of `pod`.

Each host is up and down in turns, for exponential times. The simulation walks through all events of all hosts, and at
each moment places as many slices as fit. It shares with `pod` the extent of blocks, and no arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.diagnostics import fail
from ...ir.types.literal import Array
from .pod import Mix, Pod, placed

_HOURS = 24.0
_MOST = 1 << 30  # entries of the table of cubes at each event


@dataclass(frozen=True, slots=True)
class PodEvents:
    """The history of a simulated pod: times between events as shares of all time, and the cubes that were up then."""

    pod: Pod
    shares: Array
    up: Array
    failures_per_day: float

    def switched(self, cubes: int) -> float:
        """Returns the goodput of slices of this many cubes, any that are up."""
        return float((self.shares * (self.up.sum(1) // cubes * cubes)).sum()) / self.pod.cubes

    def static(self, cubes: int) -> float | None:
        """Returns the goodput of slices that are aligned blocks; None if no blocks of this many cubes fill the pod."""
        block = self.pod.block(cubes)
        if block is None:
            return None
        (x, y, z), (a, b, c) = self.pod.side, block
        whole = self.up.reshape(-1, x // a, a, y // b, b, z // c, c).all((2, 4, 6)).sum((1, 2, 3))
        return float((self.shares * whole).sum()) * cubes / self.pod.cubes


    def switched_mix(self, mix: Mix) -> float:
        """Returns the goodput of a mix of jobs, the largest first, on any cubes that are up."""
        taken = np.array([placed(mix, cubes) for cubes in range(self.pod.cubes + 1)])
        return float((self.shares * taken[self.up.sum(1)]).sum()) / self.pod.cubes

    def static_mix(self, mix: Mix) -> float | None:
        """Returns the goodput of a mix on aligned blocks, the largest jobs first, each on the first block that is up
        and free; None if no blocks of some size fill the pod.
        """
        (x, y, z), free = self.pod.side, self.up.copy()
        for size, count in sorted(mix, reverse=True):
            block = self.pod.block(size)
            if block is None:
                return None
            a, b, c = block
            parts = free.reshape(-1, x // a, a, y // b, b, z // c, c)  # a view, so that taken cubes are marked
            whole = parts.all((2, 4, 6))
            first = whole.reshape(len(free), -1).cumsum(1).reshape(whole.shape) <= count
            parts &= ~(whole & first)[:, :, None, :, None, :, None]
        return float((self.shares * (self.up & ~free).sum(1)).sum()) / self.pod.cubes


def simulate_pod(pod: Pod, host: float, repair_hours: float, days: float, seed: int = 0) -> PodEvents:
    """Simulates a pod whose hosts are up for the share `host` of time, and take `repair_hours` to repair on average.
    Raises CompileError for more events than can be held.
    """
    draw, hours = np.random.default_rng(seed), days * _HOURS
    up_hours = repair_hours * host / (1 - host)
    expected = 2 * hours / (up_hours + repair_hours) * pod.cubes * pod.hosts
    if expected * pod.cubes > _MOST:
        fail(f"about {expected:,.0f} failures and repairs in {days:,.0f} days are too many to simulate: "
             f"at most {_MOST // pod.cubes:,} are possible for {pod.cubes:,} cubes", help="simulate fewer days")
    times: list[Array] = []
    changes: list[Array] = []
    cubes: list[Array] = []
    down = np.zeros(pod.cubes, np.int64)
    for number in range(pod.cubes * pod.hosts):
        cube, is_up = number // pod.hosts, bool(draw.random() < host)  # as it is after a long time
        down[cube] += not is_up
        turns = int(2 * hours / (up_hours + repair_hours)) + 8
        at = np.zeros(1)
        while at[-1] < hours:  # nearly always once
            lengths = draw.exponential(1.0, turns)
            states = (np.arange(len(at) - 1, len(at) - 1 + turns) % 2 == 0) == is_up
            at = np.concatenate([at, at[-1] + np.cumsum(lengths * np.where(states, up_hours, repair_hours))])
        at = at[1:][at[1:] < hours]
        times.append(at)
        cubes.append(np.full(len(at), cube))
        changes.append(np.where((np.arange(len(at)) % 2 == 0) == is_up, 1, -1))  # of the hosts that are down
    order = np.argsort(np.concatenate(times), kind="stable")
    moments, where, change = (np.concatenate(part)[order] for part in (times, cubes, changes))
    counts = np.zeros((len(moments) + 1, pod.cubes), np.int16)
    counts[np.arange(1, len(moments) + 1), where] = change
    counts[0] = down
    np.cumsum(counts, axis=0, out=counts)
    shares = np.diff(np.concatenate([[0.0], moments, [hours]])) / hours
    return PodEvents(pod, shares, counts == 0, float((change > 0).sum()) / days)
