"""The cost of a collective over the links of a cluster: that of the axes of a torus on which its groups lie, what was
measured, that of the best algorithm or of rails, or that of the slowest link.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.sharding.digit import Digits, product
from .algorithms import over_sides, transfer
from .fits import Fit, measured
from .formulas import Kind
from .links import Links
from .rails import over_rails
from .torus import placed
from .transfer import Transfer


def over_links(links: Links, fits: Sequence[Fit], kind: Kind, digits: Digits) -> Transfer:
    """Returns the cost of a collective over digits of the device number."""
    link = links.levels[-1][1]
    if link.places and (sides := placed(link, digits)) is not None:
        return over_sides(kind, link, tuple(sides.values()), product(digits))
    if fits or any(link.has_steps or link.rails for _, link in links.levels):
        levels = links.by_level(digits)
        if levels is not None:
            while len(levels) > 1 and levels[-1][1] == 1:
                levels.pop()
            found = measured(fits, kind, tuple([count for _, count in levels]))
            if found is not None:
                return found
            if any(link.has_steps for link, _ in levels):
                return transfer(kind, [level for level in levels if level[1] > 1] or levels[:1])
            if any(link.rails for link, _ in levels):
                return over_rails(kind, levels)
    return Transfer.over(links.across(digits))


def over_slowest(links: Links, fits: Sequence[Fit], kind: Kind, devices: int) -> Transfer:
    """Returns the cost of a collective of this many devices, wherever they are: all its links are the slowest."""
    found = measured(fits, kind, (*[1] * (len(links.levels) - 1), devices))
    if found is None and links.slowest.has_steps:
        found = transfer(kind, [(links.slowest, devices)])
    return found or Transfer.over(links.slowest)
