"""Judges a program of many equal layers by two short ones, in which a few layers stand for all.

The difference of the two tells the cost of a layer. That is exact for computation and for parameters. The schedule
of one may hide more than that of the other by chance, and such a difference would count once per layer: so a layer adds
at least no exposed time, and at most the mean of all layers of the longer program. Where the whole may not fit into
memory, or has no equal layers that can be cut out, the short programs tell nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...ir.analysis.fewer_layers import ShortProgram, equal_layers, without_layers
from ...ir.brief import brief
from ...ir.graph.module import Module
from ..schedule.sizes import sized
from .judge import Judged

_ENDS = (1, 2)  # equal layers that stay on each side of the gap
_LEAST = 12  # equal layers from which on two short programs take less time than the whole
_FULL = 0.9  # share of the limit from which on the whole is judged


@brief
@dataclass(frozen=True, slots=True)
class ShortPrograms:
    """The short programs of one with so many equal `layers`. Judging the whole takes about `scale` times as long as
    judging both of these.
    """

    layers: int
    scale: float
    programs: tuple[ShortProgram, ...]

    @staticmethod
    def of(module: Module) -> ShortPrograms | None:
        """Returns the short programs of a prepared one; None if it has too few equal layers, or they cannot be cut."""
        layers = equal_layers(module)
        enough = len(layers) >= _LEAST
        cut = [without_layers(module, layers, range(n, len(layers) - n)) for n in _ENDS if enough]
        found = tuple(short for short in cut if short is not None)
        if len(found) < len(_ENDS):
            return None
        return ShortPrograms(len(layers), _size(module) / sum(_size(short.module) for short in found), found)

    def judge(self, judge: Callable[[ShortProgram], Judged], limit: float) -> Judged | None:
        """Returns the forecast of the whole in `limit` bytes from those of both programs, which `judge` gives; None if
        it does not follow from them. It does not tell which buffers live at the peak.
        """
        few, more = map(judge, self.programs)
        if not few.given or not more.given:
            return None
        given = round(self._whole(few.given, more.given))
        if given > limit:
            peak = max(round(self._whole(few.peak, more.peak)), given)
            return Judged(math.inf, 0.0, peak, f"the parameters alone take {sized(given)} on a device", given=given)
        if not few.fits or not more.fits or (peak := round(self._whole(few.peak, more.peak))) > _FULL * limit:
            return None
        exposed = self._whole(few.exposed, more.exposed, 0.0, more.exposed / (2 * _ENDS[1]))
        seconds = self._whole(few.computing, more.computing) + exposed
        return Judged(seconds, exposed, peak, busy=self._whole(few.busy, more.busy), given=given)

    def _whole(self, few: float, more: float, least: float = -math.inf, most: float = math.inf) -> float:
        """Returns the value of the whole, to which each layer adds at least and at most so much."""
        added = (more - few) / (2 * (_ENDS[1] - _ENDS[0]))
        return more + (self.layers - 2 * _ENDS[1]) * min(max(added, least), most)


def _size(module: Module) -> int:
    return sum(len(computation) for computation in module)
