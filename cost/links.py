"""Links: latency and bandwidth of communication, by the digits in which device numbers differ.

A collective over some digits of the device number (see `ir.sharding.digit`) is limited by the slowest link that it
uses: it takes `latency + bytes / bandwidth`, for the bytes that a device receives. Levels are ranges of strides: on
hosts of eight devices, digits below stride 8 stay within a host, digits from stride 8 on cross hosts. A mesh axis is
such a range, so `over_axes` gives each axis its own link.

The text form is `LATENCY/BANDWIDTH`, then `;FROM:LATENCY/BANDWIDTH` for the levels above, where FROM is a stride or,
where a mesh is known, the name of an axis: `1us/100GB;8:5us/25GB`, `1us/100GB;y:5us/25GB`.

The default links have 100 GB/s and a latency of 0.01 ns, the time of one byte. So bytes decide, for arrays of any size,
and the number of collectives matters only between plans of equal bytes: this minimizes traffic on any machine. Real
latencies are about 1 us, worth 100 KB at this bandwidth; specifying them gives fewer collectives for small arrays.
"""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

from ..ir.diagnostics import fail
from ..ir.sharding.digit import Digits, cut
from ..ir.sharding.mesh import LARGEST_MESH, AxisRef, Mesh


@dataclass(frozen=True, slots=True)
class Link:
    """`latency` in seconds per collective, `bandwidth` in bytes per second that a device receives.

    `step` are the seconds of each step of an algorithm between two devices, in addition to the latency. `torus` is the
    number of axes of a torus; the bandwidth is then that of both links of one axis. 0 stands for a switch. `shape` are
    the devices along each axis where they are known. An axis whose number of nodes is a multiple of `wrap` is a ring,
    any other a line. The last axis has `cores` devices per node, which share the links of the node. All-to-alls cross
    the middle of a ring over `crossed` links: 2, or 1 if they do not use the one that closes it. By `rails` each device
    has such a link of its own, and a collective uses those of all its devices at once (`cost.rails`). `places` are, for
    each axis of the torus, the digits of the device number that count along it, those of the largest steps first; empty
    where they are not known.
    """

    latency: float = 1e-11
    bandwidth: float = 1e11
    step: float = 0.0
    torus: int = 0
    shape: tuple[int, ...] = ()
    wrap: int = 1
    cores: int = 1
    crossed: int = 2
    rails: bool = False
    places: tuple[Digits, ...] = ()

    @property
    def has_steps(self) -> bool:
        """Whether the cost depends on the number of devices."""
        return self.step > 0 or self.torus > 0

    def slower(self, other: Link) -> Link:
        """Returns a link with the worse latency, step and bandwidth of both, and the topology of the slower one."""
        narrow = min(self, other, key=lambda link: link.bandwidth)
        return replace(narrow, latency=max(self.latency, other.latency), step=max(self.step, other.step))


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a cluster. `levels` are (first stride, link) pairs with increasing strides that begin with 1."""

    levels: tuple[tuple[int, Link], ...] = ((1, Link()),)

    def across(self, digits: Digits) -> Link:
        """Returns the slowest link that a collective over these digits uses."""
        ends = [start for start, _ in self.levels[1:]] + [None]
        touched = [
            link
            for (start, link), end in zip(self.levels, ends, strict=True)
            if any(d.stride * d.size > start and (end is None or d.stride < end) for d in digits)
        ] or [self.levels[0][1]]
        return _slowest(touched)

    def by_level(self, digits: Digits) -> list[tuple[Link, int]] | None:
        """Returns the links of each level, fast ones first, and the devices along it that differ in these digits; None
        where a digit does not end with the level.
        """
        starts = [start for start, _ in self.levels]
        counts = [1] * len(starts)
        for digit in cut(digits, starts):
            level = bisect(starts, digit.stride) - 1
            if level + 1 < len(starts) and digit.stride * digit.size > starts[level + 1]:
                return None
            counts[level] *= digit.size
        return [(link, count) for (_, link), count in zip(self.levels, counts, strict=True)]

    @property
    def slowest(self) -> Link:
        """The slowest link of all levels, for traffic without a pattern."""
        return _slowest([link for _, link in self.levels])

    @property
    def fastest(self) -> Link:
        """The fastest link of all levels, for lower bounds; its latency includes a step."""
        links = [link for _, link in self.levels]
        return Link(min(i.latency + i.step for i in links), max(i.bandwidth * max(i.torus, 1) for i in links))

    def of_devices(self, count: int) -> Links:
        """Returns these links in a job of this many devices: a torus gets its shape, the closest to a cube. Raises
        CompileError if a torus of a given shape has fewer.
        """
        for start, link in self.levels:
            if link.shape and (devices := start * math.prod(link.shape)) < count:
                sides = "x".join(map(str, link.shape))
                fail(f"a torus of {sides} has {devices} devices, {count} are needed",
                     help=f"without :{sides} a torus has the shape closest to a cube")  # fmt: skip
        if not any(link.torus and not link.shape for _, link in self.levels):
            return self
        levels = [
            (start, replace(link, shape=near_cube(max(count // start, 1), link.torus)))
            if link.torus and not link.shape else (start, link)
            for start, link in self.levels
        ]  # fmt: skip
        return Links(tuple(levels))

    def times(self, by: float) -> Links:
        """Returns links over which all takes longer by this factor."""
        return Links(tuple(
            (start, replace(i, latency=i.latency * by, step=i.step * by, bandwidth=i.bandwidth / by))
            for start, i in self.levels
        ))  # fmt: skip

    @property
    def borders(self) -> tuple[int, ...]:
        """The first strides of the levels whose link differs from the level below."""
        return tuple(start for (_, below), (start, link) in pairwise(self.levels) if link != below)

    def between(self, low: int, high: int, link: Link) -> Links:
        """Returns these links with another link for strides in [low, high)."""
        cuts = sorted({low, high, *(start for start, _ in self.levels)})
        found = [(start, link if low <= start < high else self._at(start)) for start in cuts]
        return Links(tuple(found))

    def over_axes(self, mesh: Mesh, links: Mapping[str, Link]) -> Links:
        """Returns these links with a link for each named axis of a mesh. Raises KeyError for an unknown axis."""
        result = self
        for name, link in links.items():
            for digit in mesh.digits(AxisRef(name)):
                result = result.between(digit.stride, digit.stride * digit.size, link)
        return result

    def _at(self, stride: int) -> Link:
        return next(link for start, link in reversed(self.levels) if start <= stride)


def near_cube(count: int, axes: int) -> tuple[int, ...]:
    """Returns the sides, short ones first, of a block of this many devices whose sides differ least."""
    sides = [1] * axes
    left, prime, primes = count, 2, list[int]()
    while left > 1:
        prime = next((p for p in range(prime, math.isqrt(left) + 1) if left % p == 0), left)
        primes.append(prime)
        left //= prime
    for prime in reversed(primes):
        sides[sides.index(min(sides))] *= prime
    return tuple(sorted(sides))


DEFAULT = Links()


def _slowest(links: Sequence[Link]) -> Link:
    return reduce(Link.slower, links)


_SECONDS = {"s": "e0", "ms": "e-3", "us": "e-6", "ns": "e-9"}
_BYTES = {"B": "e0", "KB": "e3", "MB": "e6", "GB": "e9", "TB": "e12"}
_LINK = re.compile(r"(\d{1,24}(?:\.\d{1,24})?)(s|ms|us|ns)/(\d{1,24}(?:\.\d{1,24})?)(B|KB|MB|GB|TB)$")


def parse_links(text: str, mesh: Mesh | None = None) -> Links:
    """Parses links in the text form above; an empty text gives the default. Raises CompileError."""
    if not text:
        return DEFAULT
    first, *rest = text.split(";")
    links = replace(DEFAULT, levels=((1, _link(first)),))
    for part in rest:
        name, _, value = part.partition(":")
        link = _link(value)
        if name.isdecimal() and len(name) < 12 and links.levels[-1][0] < int(name) <= LARGEST_MESH:
            links = Links((*links.levels, (int(name), link)))
        elif mesh is not None and name in dict(mesh.axes):
            links = links.over_axes(mesh, {name: link})
        else:
            fail(f"'{part}' does not begin with a larger stride or the name of a mesh axis", help=_HELP)
    return links


_HELP = "write LATENCY/BANDWIDTH;STRIDE:LATENCY/BANDWIDTH, such as 1us/100GB;8:5us/25GB"


def _link(text: str) -> Link:
    match = _LINK.match(text.strip())
    if match is None or not float(match[3]):
        fail(f"'{text}' is not a latency and a bandwidth", help=_HELP)
    return Link(float(match[1] + _SECONDS[match[2]]), float(match[3] + _BYTES[match[4]]))
