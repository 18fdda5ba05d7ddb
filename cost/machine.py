"""The machine: how long devices take to exchange data, to read and write memory, and to compute.

Passes ask a `Machine` and nothing else. An embedder gives its own in the `PassContext`; `Cluster` is the usual one, of
devices that are all alike and the links between them.

Times are picoseconds. At the default's rates, those of current accelerators to an order of magnitude, a byte over a
link takes 10 and a byte of memory 1: costs are sums of whole numbers, and ways that cost the same compare equal.
`SECOND` converts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from ..ir.sharding.digit import Digits
from ..ir.sharding.mesh import Mesh
from ..ir.types.element_type import ElementType
from .formulas import Kind
from .links import DEFAULT as ONE_LINK
from .links import Link, Links, parse_links

SECOND = 1e12


@dataclass(frozen=True, slots=True)
class Transfer:
    """The time of a collective: `latency`, and `per_byte` for each byte that a device receives (above zero)."""

    latency: float
    per_byte: float

    @staticmethod
    def over(link: Link) -> Transfer:
        """A collective over this link."""
        return Transfer(link.latency * SECOND, SECOND / link.bandwidth)

    def time(self, received: float) -> float:
        """For so many bytes; nothing where no device receives any."""
        return self.per_byte * received + self.latency if received else 0.0

    def most(self, time: float) -> float:
        """The most bytes that a device may receive in a collective that takes no longer than this."""
        return max(time - self.latency, 0.0) / self.per_byte


class Machine(Protocol):
    """How long things take, in picoseconds. Immutable and hashable: plans are remembered by machine.

        @dataclass(frozen=True)
        class Slow(hloom.Machine):
            def collective(self, kind, digits, order=None):
                return Transfer(latency=5e6, per_byte=40.0)    # 5 us, 25 GB/s

            def memory(self, count):
                return count / 2                               # 2 TB/s

            def work(self, points, element):
                return points / (400 if element.bits <= 16 else 50)    # multiply-adds per picosecond

            fastest = Transfer(latency=5e6, per_byte=40.0)
    """

    def collective(self, kind: Kind, digits: Digits | None, order: tuple[int, ...] | None = None) -> Transfer:
        """A collective in groups of the devices that differ in `digits`, counted in a device order if one is given.

        Without digits, data goes between any devices.
        """
        ...

    def memory(self, count: float) -> float:
        """Reading or writing so many bytes of a device's memory."""
        ...

    def work(self, points: float, element: ElementType) -> float:
        """So many points of an op's index space on one device: multiply-adds of a contraction of such elements."""
        ...

    @property
    def fastest(self) -> Transfer:
        """No collective takes less: for lower bounds."""
        ...

    @property
    def levels(self) -> tuple[int, ...]:
        """The strides of the device number from which on collectives take another time; none if all take the same."""
        return ()


@dataclass(frozen=True, slots=True)
class Cluster(Machine):
    """Devices that are all alike, the links between them, and what each does in a second: `memory_bytes` read or
    written, `points` of index spaces computed (multiply-adds of a contraction) of whatever type.
    """

    links: Links = ONE_LINK
    memory_bytes: float = 1e12
    points: float = 1e14
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.links, self.memory_bytes, self.points)))

    def __hash__(self) -> int:
        return self._hash

    def collective(self, kind: Kind, digits: Digits | None, order: tuple[int, ...] | None = None) -> Transfer:
        """At the pace of the slowest link that it needs; of all links for any devices, and in an irregular order."""
        return _transfer(self, None if order is not None else digits)

    def memory(self, count: float) -> float:
        return count * (SECOND / self.memory_bytes)

    def work(self, points: float, element: ElementType) -> float:
        return points * (SECOND / self.points)

    @property
    def fastest(self) -> Transfer:
        return Transfer.over(self.links.fastest)

    @property
    def levels(self) -> tuple[int, ...]:
        return self.links.borders


@lru_cache(maxsize=65536)
def _transfer(cluster: Cluster, digits: Digits | None) -> Transfer:
    return Transfer.over(cluster.links.slowest if digits is None else cluster.links.across(digits))


DEFAULT = Cluster()


def parse_machine(links: str, mesh: Mesh | None = None) -> Machine:
    """The default with links as text (see `cost.links`), those of mesh axes too. Raises CompileError."""
    return Cluster(parse_links(links, mesh)) if links else DEFAULT
