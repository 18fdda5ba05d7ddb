"""Judges a program of many equal layers by a short one, in which a few layers stand for all.

The short program has one of the equal layers, with the program before and after them; or three or five, if layers near
the ends are divided in another way than the others. It is divided among the devices once. There two more of the same
layer follow the first (`more_layers`), and both programs are scheduled. The difference tells the cost of a layer. That
is exact for computation and for parameters. The schedule of one may hide more than that of the other by chance, and
such a difference would count once per layer: so a layer adds at least no exposed time, and at most the mean of all
layers of the longer program. An engine that runs longer than the ops that hide it delays only a program of many layers:
the whole takes at least as long as this engine runs in it, with the time before and after its collectives.

Where the whole may not fit into memory, or has no equal layers that can be cut out, the short program tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...cost.seconds import Clock
from ...cost.sizes import sized
from ...ir.analysis.fewer_layers import LayerSeam, ShortProgram, equal_layers, without_layers
from ...ir.analysis.layers import Layers
from ...ir.brief import brief
from ...ir.diagnostics import CompileError, Diagnostics
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ..base import PassContext, run_pipeline
from ..pipelines import PARTITION, exchange_in_types
from ..propagation.propagate import Propagate
from ..scheduling import SCHEDULE
from .judge import Judged
from .listed import LISTED, ListedForecast, ListedProgram, gathers_of, scheduled_forecast
from .more_layers import add_layers, is_even, numbered
from .time_left import TimeLeft

Likes = Mapping[Instruction, Instruction]

_MORE = 2  # layers that are added to a short program
_LEAST = 8  # equal layers from which on a program is judged by a short one
_FULL = 0.9  # share of the limit from which on the whole is judged
_BEYOND = 1.5  # times the limit, from which on it is not: no list schedule of it fits
_LEFT = ((1, 0), (2, 1), (3, 2))  # equal layers that stay on each side of the gap
_PROPAGATE = Propagate(fold=False)  # alone: the program is prepared, and has annotations of one mesh
_SHORTEN = SCHEDULE[:-1]  # what does not depend on the schedule


@brief
@dataclass(frozen=True, slots=True, eq=False)
class RepeatableLayer:
    """A short program with a layer that more may follow, at its seam. `left` of the equal layers are in it. It stands
    for the `others`, which are missing. `layer` is that of the whole.
    """

    program: ShortProgram
    seam: LayerSeam[int]
    left: int
    layer: Sequence[Instruction]
    others: Layers

    @staticmethod
    def of(module: Module, layers: Layers, gap: range) -> RepeatableLayer | None:
        """Returns a program without the layers of a gap; None if they cannot be cut."""
        short = without_layers(module, layers, gap)
        if short is None:
            return None
        others = [layers[n] for n in gap]
        return RepeatableLayer(short, numbered(short), len(layers) - len(gap), layers[gap[0] - 1], others)

    @property
    def missing(self) -> int:
        return len(self.others)

    def local(self, module: Module, context: PassContext) -> Module | None:
        """Returns the short program with annotations as that of each device, in place; None if it cannot be divided, or
        values next to the layer have other shardings than those of the layer that would take their place.
        """
        silent = Diagnostics(remarks=False)
        own = replace(context, num_devices=module.num_partitions, diagnostics=silent, records=[], reshardings=[])
        try:
            run_pipeline((_PROPAGATE,), module, own)
            if not is_even(self.seam, module):
                return None
            run_pipeline(PARTITION, module, own)
            exchange_in_types(module, own)
            run_pipeline(_SHORTEN, module, own)
        except CompileError:
            return None
        return module

    def divided(self, module: Module, context: PassContext) -> tuple[Module, Module, Likes] | None:
        """Returns the program per device of the short one with annotations, which is changed; that with more layers;
        and the instruction of the first that each of the second is a copy of. None if these do not follow from it.
        """
        local = self.local(module, context)
        if local is None or any(i.op.is_collective for c in local if c is not local.entry for i in c):
            return None  # loops may communicate for other trips
        copies = dict[Instruction, Instruction]()
        longer = clone_module(local, copies)
        added = add_layers(longer, self.seam, _MORE)
        if added is None:
            return None
        clones = {copy: i for i, copy in copies.items()}
        return local, longer, clones | {copy: clones[like] for copy, like in added.items()}

    def listed(self, module: Module, context: PassContext) -> tuple[ListedProgram, ListedProgram] | None:
        """Returns both programs of `divided` in their list schedules; None if it returns none."""
        if (both := self.divided(module, context)) is None:
            return None
        local, longer, likes = both
        clock = Clock.of(local, context.machine)
        gathers = gathers_of(local, clock)
        early = {i for found in gathers.values() for i in found}
        found = {longer.entry: [i for i in longer.entry if likes.get(i) in early]}  # no other has collectives
        return ListedProgram(local, clock, gathers), ListedProgram(longer, clock.of_likes(likes), found)

    def scheduled(self, module: Module, context: PassContext, limit: int, left: TimeLeft) -> Judged | None:
        """Returns the forecast of the whole from both programs of `divided` with all rewrites, within as many bytes
        each (0: those of the machine) and in the time that is `left`; None if it does not follow, or may not fit.
        """
        if (both := self.divided(module, context)) is None:
            return None
        silent = Diagnostics(remarks=False)
        own = replace(context, num_devices=module.num_partitions, diagnostics=silent, records=[], reshardings=[])
        try:
            few, more = (scheduled_forecast(program, own, limit, left) for program in both[:2])
        except CompileError:
            return None
        found = self.whole(few, more, 0)
        return found if found.peak <= _FULL * (limit or context.machine.capacity) else None

    def whole(self, few: ListedForecast, more: ListedForecast, given: int) -> Judged:
        """Returns the forecast of the whole, with so many bytes of parameters, from those of the short program and of
        the one with more layers.
        """
        computing = self.in_whole(few.computing, more.computing)
        added = min(max((more.exposed - few.exposed) / _MORE, 0.0), more.exposed / (self.left + _MORE))
        seconds, busy = computing + more.exposed + (self.missing - _MORE) * added, 0.0
        for engine in few.engines.keys() & more.engines.keys():
            parts = zip(few.engines[engine], more.engines[engine], strict=True)
            before, runs, after = (self.in_whole(one, other) for one, other in parts)
            seconds, busy = max(seconds, before + runs + after), max(busy, runs)
        peak = round(self.in_whole(few.peak, more.peak))
        return Judged(seconds, seconds - computing, peak, busy=busy, given=given)

    def in_whole(self, few: float, more: float) -> float:
        """Returns a figure of the whole, to which each layer adds as much."""
        return few + self.missing * (more - few) / _MORE


@brief
@dataclass(frozen=True, slots=True)
class ShortPrograms:
    """The short programs of one with many equal layers, the shortest first. Judging the whole takes about `scale` times
    as long as judging by this one.
    """

    scale: float
    layers: Sequence[RepeatableLayer]

    @staticmethod
    def of(module: Module) -> ShortPrograms | None:
        """Returns the short programs of a prepared one; None if it has too few equal layers, or they cannot be cut."""
        layers = equal_layers(module)
        gaps = (range(n, len(layers) - after) for n, after in _LEFT) if len(layers) >= _LEAST else ()
        found = [one for gap in gaps if (one := RepeatableLayer.of(module, layers, gap)) is not None]
        return ShortPrograms(_size(module) / _size(found[0].program.module), found) if found else None

    def rewritten(
        self, annotated: Callable[[ShortProgram], Module], context: PassContext, limit: int, left: TimeLeft,
        stands: Callable[[RepeatableLayer], bool],
    ) -> Judged | None:
        """Returns the forecast of the whole with all rewrites by a short program as it is `annotated`, like `judge`."""
        layer = next(filter(stands, self.layers), None)
        return None if layer is None else layer.scheduled(annotated(layer.program), context, limit, left)

    def judge(
        self, annotated: Callable[[ShortProgram], Module], context: PassContext, limit: float,
        stands: Callable[[RepeatableLayer], bool],
    ) -> Judged | None:
        """Returns the forecast of the whole in `limit` bytes by a short program as it is `annotated`, whose layer
        `stands` for the missing ones; None if it does not follow. It does not tell which buffers live at the peak.
        """
        for layer in filter(stands, self.layers):
            if (listed := layer.listed(annotated(layer.program), context)) is not None:
                return _judged(layer, *listed, context, limit)
        return None


def _judged(
    layer: RepeatableLayer, few: ListedProgram, more: ListedProgram, context: PassContext, limit: float
) -> Judged | None:
    """Returns the forecast of the whole by the fastest rule with which it fits; None if it may not fit, unless it is
    far from fitting.
    """
    given = round(layer.in_whole(few.given, more.given))
    for rule in sorted(LISTED, key=more.seconds):
        found = layer.whole(few.forecast(rule, context), more.forecast(rule, context), given)
        least, what = (given, "the parameters alone take") if given > limit else (found.peak, "a list schedule takes")
        if given > limit or found.peak > _BEYOND * limit:
            return Judged(math.inf, 0.0, max(found.peak, given), f"{what} {sized(least)} on a device", given=given)
        if found.peak <= _FULL * limit:
            return found
    return None


def _size(module: Module) -> int:
    return sum(len(computation) for computation in module)
