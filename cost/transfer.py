"""The cost of a collective as a function of the bytes that a device receives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .links import Link

SECOND = 1e12  # picoseconds


@dataclass(frozen=True, slots=True)
class Transfer:
    """The cost of a collective: `latency`, plus `per_byte` (above zero) for each byte that a device receives.

    `others` are the costs of other algorithms for the same collective. The time is that of the best for the bytes. Each
    array that a collective combines after the first takes `per_array` more.
    """

    latency: float
    per_byte: float
    others: tuple[Transfer, ...] = ()
    per_array: float = 0.0

    @staticmethod
    def over(link: Link) -> Transfer:
        """Returns the cost of a collective over this link."""
        return Transfer(link.latency * SECOND, SECOND / link.bandwidth)

    @staticmethod
    def best(found: Iterable[Transfer]) -> Transfer:
        """Keeps the lower envelope of these latency/bandwidth lines."""
        kept: list[Transfer] = []
        for one in sorted(found, key=lambda t: (t.latency, t.per_byte)):
            if not kept or one.per_byte < kept[-1].per_byte:
                kept.append(Transfer(one.latency, one.per_byte, per_array=one.per_array))
        return replace(kept[-1], others=tuple(kept[:-1]))

    def time(self, received: float, arrays: int = 1) -> float:
        """Returns the time to receive this number of bytes in so many arrays; 0 for none."""
        if not received:
            return 0.0
        found = self.per_byte * received + self.latency
        if arrays > 1:
            found += self.per_array * (arrays - 1)
        return min(found, *[t.time(received, arrays) for t in self.others]) if self.others else found

    def most(self, time: float) -> float:
        """Returns the most bytes that a device can receive within this time."""
        found = max(time - self.latency, 0.0) / self.per_byte
        return max(found, *[t.most(time) for t in self.others]) if self.others else found
