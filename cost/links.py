"""Links: how long devices take to exchange data, by what their numbers differ in.

A collective over some digits of the device number (see `ir.digit`) runs at the pace of the slowest link that it needs:
`latency + bytes / bandwidth`, with the bytes that a device receives. Levels are ranges of strides: on hosts of eight
devices, digits below stride 8 stay within a host and those from stride 8 on cross hosts. A mesh axis is such a range,
so `over_axes` gives each axis its own link.

As text: `LATENCY/BANDWIDTH`, then `;FROM:LATENCY/BANDWIDTH` for the levels above, where FROM is a stride or, where a
mesh is known, the name of an axis: `1us/100GB;8:5us/25GB`, `1us/100GB;y:5us/25GB`.

The default has links of 100 GB/s and a latency of 0.01 ns, as much as one byte. With it bytes decide, for arrays of any
size, and the number of collectives only between plans of the same bytes: the least traffic, on whatever machine. Real
latencies are about 1 us, worth 100 KB at this bandwidth; those who give them get fewer collectives for small arrays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

from ..ir.diagnostics import fail
from ..ir.sharding.digit import Digits
from ..ir.sharding.mesh import AxisRef, Mesh


@dataclass(frozen=True, slots=True)
class Link:
    """`latency` in seconds per collective, `bandwidth` in bytes per second that a device receives."""

    latency: float = 1e-11
    bandwidth: float = 1e11

    def slower(self, other: Link) -> Link:
        """The worse of both in latency, and in bandwidth."""
        return Link(max(self.latency, other.latency), min(self.bandwidth, other.bandwidth))


@dataclass(frozen=True, slots=True)
class Links:
    """`levels` are (first stride, link) with growing strides; the first begins at stride 1, each ends at the next."""

    levels: tuple[tuple[int, Link], ...] = ((1, Link()),)

    def across(self, digits: Digits) -> Link:
        """The link of a collective over these digits."""
        ends = [start for start, _ in self.levels[1:]] + [None]
        touched = [
            link
            for (start, link), end in zip(self.levels, ends, strict=True)
            if any(d.stride * d.size > start and (end is None or d.stride < end) for d in digits)
        ] or [self.levels[0][1]]
        return _slowest(touched)

    @property
    def slowest(self) -> Link:
        """For traffic without a pattern."""
        return _slowest([link for _, link in self.levels])

    @property
    def fastest(self) -> Link:
        """What no collective beats: for lower bounds."""
        links = [link for _, link in self.levels]
        return Link(min(i.latency for i in links), max(i.bandwidth for i in links))

    @property
    def borders(self) -> tuple[int, ...]:
        """The first strides of the levels whose link is not that of the level below."""
        return tuple(start for (_, below), (start, link) in pairwise(self.levels) if link != below)

    def between(self, low: int, high: int, link: Link) -> Links:
        """The same with another link for the strides from `low` up to, not including, `high`."""
        cuts = sorted({low, high, *(start for start, _ in self.levels)})
        found = [(start, link if low <= start < high else self._at(start)) for start in cuts]
        return Links(tuple(found))

    def over_axes(self, mesh: Mesh, links: Mapping[str, Link]) -> Links:
        """The same with a link for each named axis of a mesh. Raises KeyError for an unknown axis."""
        result = self
        for name, link in links.items():
            for digit in mesh.digits(AxisRef(name)):
                result = result.between(digit.stride, digit.stride * digit.size, link)
        return result

    def _at(self, stride: int) -> Link:
        return next(link for start, link in reversed(self.levels) if start <= stride)


DEFAULT = Links()


def _slowest(links: Sequence[Link]) -> Link:
    return reduce(Link.slower, links)


_SECONDS = {"s": "e0", "ms": "e-3", "us": "e-6", "ns": "e-9"}
_BYTES = {"B": "e0", "KB": "e3", "MB": "e6", "GB": "e9", "TB": "e12"}
_LINK = re.compile(r"(\d+(?:\.\d+)?)(s|ms|us|ns)/(\d+(?:\.\d+)?)(B|KB|MB|GB|TB)$")


def parse_links(text: str, mesh: Mesh | None = None) -> Links:
    """Links from text as above; no text gives the default. Raises CompileError."""
    if not text:
        return DEFAULT
    first, *rest = text.split(";")
    links = replace(DEFAULT, levels=((1, _link(first)),))
    for part in rest:
        name, _, value = part.partition(":")
        link = _link(value)
        if name.isdigit() and int(name) > links.levels[-1][0]:
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
