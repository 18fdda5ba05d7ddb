"""Costs of collectives as measured: a latency and a bandwidth per kind and group, and between measured groups.

Rows of the same kind and group are other ways to do the same, such as protocols; the best for the bytes counts. For
group sizes between two that were measured the cost lies between theirs, in proportion to the devices. Larger groups
than all that were measured have the bandwidth of the largest, and more latency in proportion to the devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from .formulas import Kind
from .transfer import SECOND, Transfer


@dataclass(frozen=True, slots=True)
class Fit:
    """A measured collective: `latency` in seconds, `bandwidth` in bytes per second that a device receives, and the
    seconds of each `array` that it combines after the first. It takes those of `cold` more where caches hold nothing of
    the code that starts and ends it.

    `devices` are those of a group along each level of links, the fast links first: (8, 4) for groups of four nodes with
    eight devices each, (1, 4) for groups of one device of each of four nodes.
    """

    kind: Kind
    devices: tuple[int, ...]
    latency: float
    bandwidth: float
    array: float = 0.0
    cold: float = 0.0

    def slower(self, by: float) -> Fit:
        """Returns a collective that takes longer by this factor."""
        return Fit(self.kind, self.devices, self.latency * by, self.bandwidth / by, self.array * by, self.cold * by)


def measured(fits: Sequence[Fit], kind: Kind, devices: tuple[int, ...]) -> Transfer | None:
    """Interpolates between the fits of a collective's kind that differ from it at most along the slowest level; None if
    there are none.
    """
    *inside, last = devices
    rows: dict[int, list[Fit]] = {}
    for fit in fits:
        if fit.kind == kind and fit.devices[:-1] == tuple(inside) and len(fit.devices) == len(devices):
            rows.setdefault(fit.devices[-1], []).append(fit)
    if not rows:
        return None
    below = max((n for n in rows if n <= last), default=min(rows))
    above = min((n for n in rows if n >= last), default=max(rows))
    if below == above:
        longer = max(last / below, 1.0)
        return Transfer.best([_transfer(replace(f, latency=f.latency * longer)) for f in rows[below]])
    part = (last - below) / (above - below)
    pairs = zip_longest(rows[below], rows[above])
    return Transfer.best([
        _transfer(_mixed(a or rows[below][-1], b or rows[above][-1], part)) for a, b in pairs
    ])  # fmt: skip


def _mixed(a: Fit, b: Fit, part: float) -> Fit:
    """Returns a cost between two, this part of the way from the first."""
    latency, bandwidth, array = (
        x + part * (y - x) for x, y in ((a.latency, b.latency), (a.bandwidth, b.bandwidth), (a.array, b.array))
    )
    return Fit(a.kind, a.devices, latency, bandwidth, array)


def _transfer(fit: Fit) -> Transfer:
    return Transfer(fit.latency * SECOND, SECOND / fit.bandwidth, per_array=fit.array * SECOND)
