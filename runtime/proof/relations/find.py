"""Finds the relation of a value, from its arrays on all devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ....ir.brief import brief
from ....ir.factors.sharding_rule import Monoid
from ....ir.time_limit import check_time
from ....ir.types.literal import Array
from .. import field
from ..field import UNDEFINED, ZERO
from ..flow import ValueLeaf
from ..oracle import Oracle
from .devices import DeviceAxes, DeviceGrouping
from .fits import TileFit, likely_tile, rearranged_in, tile_with_holes, tiles_in
from .index import Index, Source, holds_elements, is_telling
from .record import Run
from .relation import Relation, RelationKind

Found = dict[int, tuple[Source, TileFit]]
Combine = Callable[[Array, Array], Array]

_FEW = 16  # different numbers in an array tell too little of where it comes from
_MOST_VOTED = 2  # values that may have holes
_MOST_COMPARED = 64  # values of the original, for an array of numbers that are in many values


@brief
@dataclass
class Finder:
    """Finds relations to the values in `index`.

    `oracle` has the order of elements of the run; without one, there are no extremes of parts, and no tiles with holes.
    `varying` are the values that depend on inputs, `by_device` those that depend on the device number.
    """

    index: Index
    devices: DeviceAxes
    oracle: Oracle | None
    varying: set[ValueLeaf]
    by_device: set[ValueLeaf]

    def __post_init__(self) -> None:
        self._tiles: dict[int, tuple[Array, Found]] = {}  # the arrays, too, so that their identities stay

    def relate(self, place: ValueLeaf, run: Run) -> Relation:
        """The relation of a value in one run. Raises TimeLimit."""
        check_time()
        is_float = holds_elements(place, next(iter(run.values())))
        telling = is_float and any(is_telling(a).any() for a in run.values())
        alike = not is_float or all(np.unique(a).size <= _FEW for a in run.values())
        found = self._tile(place, run, tiles_in) if telling else None
        if found is None and alike:
            found = self._aligned(place, run, is_float)
        if found is None and telling:
            found = self._partial(place, run) or self._tile(place, run, rearranged_in)
            found = found or (self._holes(place, run) if self.oracle is not None else None)
        if found is None and alike and place in self.varying:
            found = self._counted(place, run, is_float)
        if found is None and place not in self.varying:
            found = Relation(RelationKind.DEVICE if place in self.by_device else RelationKind.CONSTANT)
        return found or Relation(RelationKind.NONE)

    def _tile(self, place: ValueLeaf, run: Run, search: Callable[[Index, Array], Found]) -> Relation | None:
        found: dict[int, Found] = {}
        for device, array in run.items():
            if is_telling(array).any():
                found[device] = self._searched(array, search)
                if not found[device]:
                    return None
        common = set[int].intersection(*(set(f) for f in found.values()))
        blank = [d for d in run if d not in found]
        if not common or any(not _is_padding(run[d]) for d in blank):
            return None
        fits = next(iter(found.values()))
        options = [fits[number][0] for number in fits if number in common]
        if search is rearranged_in:
            options = [s for s in options if len({f[id(s)][1].strides for f in found.values()}) == 1]
        chosen = _preferred(options, place)
        if chosen is None:
            return None
        source, value = chosen
        kind = RelationKind.TILE if search is tiles_in else RelationKind.REARRANGED
        return Relation(kind, source, value, {d: found[d][id(source)][1] if d in found else None for d in run})

    def _searched(self, array: Array, search: Callable[[Index, Array], Found]) -> Found:
        if search is not tiles_in:
            return search(self.index, array)
        if id(array) not in self._tiles:
            self._tiles[id(array)] = array, search(self.index, array)
        return self._tiles[id(array)][1]

    def _holes(self, place: ValueLeaf, run: Run) -> Relation | None:
        arrays = {d: a for d, a in run.items() if is_telling(a).any()}
        votes = Counter(id(s) for a in arrays.values() for found, _ in self.index.candidates(a) for s in found)
        sources = {id(s): s for s in self.index.sources}
        for number, _ in votes.most_common(_MOST_VOTED):
            fits = {d: tile_with_holes(sources[number], a) for d, a in arrays.items()}
            if all(fits.values()):
                source, value = _preferred([sources[number]], place) or (None, None)
                return Relation(RelationKind.HOLES, source, value, {d: fits.get(d) for d in run})
        return None

    # -- parts that devices combine

    def _partial(self, place: ValueLeaf, run: Run) -> Relation | None:
        combined: dict[Monoid, Combine] = {Monoid.ADD: field.add}
        if self.oracle is not None:
            combined[Monoid.MAXIMUM] = _extreme(self.oracle, np.maximum)
            combined[Monoid.MINIMUM] = _extreme(self.oracle, np.minimum)
        for monoid, combine in combined.items():
            for grouping in self.devices.groupings:
                found = self._combined(place, run, grouping, combine)
                if found is not None:
                    masked = monoid is Monoid.ADD and _is_masked(run, grouping)
                    kind = RelationKind.MASKED if masked else RelationKind.PARTIAL
                    return Relation(kind, found.source, found.value, found.fits, grouping, monoid)
        return None

    def _combined(self, place: ValueLeaf, run: Run, grouping: DeviceGrouping, combine: Combine) -> Relation | None:
        if any(d not in run for group in grouping.groups for d in group):
            return None
        wholes: Run = {}
        for group in grouping.groups:
            some = reduce(combine, [self.index.sample(run[d]) for d in group])
            if is_telling(some).any() and not self.index.holds(some).any():
                return None
            whole = reduce(combine, [run[d] for d in group])
            if len(wholes) == 0 and not is_telling(whole).any() and is_telling(run[group[0]]).any():
                return None
            if is_telling(whole).any() and not tiles_in(self.index, whole):
                return None
            wholes.update(dict.fromkeys(group, whole))
        return self._tile(place, wholes, tiles_in) if any(is_telling(a).any() for a in wholes.values()) else None

    # -- numbers that are in many values

    def _aligned(self, place: ValueLeaf, run: Run, is_float: bool) -> Relation | None:
        telling = {d: a for d, a in run.items() if not _is_padding(a)}
        told = telling or run
        first = next(iter(told.values()))
        known = [
            s for s in self.index.sources
            if s.is_float == is_float and s.array.dtype == first.dtype and s.array.ndim == first.ndim
        ]  # fmt: skip
        known.sort(key=lambda s: -max(_likeness(p, place) for p in s.places))
        arrays = {id(a): a for a in told.values()}
        for source in known[:_MOST_COMPARED]:
            fits: dict[int, TileFit] = {}
            for number, array in arrays.items():
                fit = likely_tile(source, array)
                if fit is None:
                    break
                fits[number] = fit
            if len(fits) == len(arrays):
                value = max(source.places, key=lambda p: _likeness(p, place))
                return Relation(RelationKind.TILE, source, value, {d: fits.get(id(a)) for d, a in run.items()})
        return None

    def _counted(self, place: ValueLeaf, run: Run, is_float: bool) -> Relation | None:
        first = next(iter(run.values()))
        if not is_float and first.dtype.kind not in "iu":
            return None
        combine: Combine = field.add if is_float else np.add
        for grouping in self.devices.groupings:
            if all(d in run for group in grouping.groups for d in group):
                wholes = {d: reduce(combine, [run[e] for e in g]) for g in grouping.groups for d in g}
                found = self._aligned(place, wholes, is_float) if any(w.any() for w in wholes.values()) else None
                if found is not None:
                    return Relation(RelationKind.PARTIAL, found.source, found.value, found.fits, grouping, Monoid.ADD)
        return None


def _extreme(oracle: Oracle, choose: Combine) -> Combine:
    def combine(a: Array, b: Array) -> Array:
        return oracle.elements(choose(oracle.keys(a), oracle.keys(b)))

    return combine


def _is_padding(array: Array) -> bool:
    """Whether an array without distinctive elements may be padding alone."""
    return bool((array == UNDEFINED).all() or (array == array.reshape(-1)[0]).all()) if array.size else True


def _is_masked(run: Run, grouping: DeviceGrouping) -> bool:
    return all(
        bool((np.sum([(run[d] != ZERO) for d in group], axis=0) <= 1).all()) for group in grouping.groups
    )


def _likeness(value: ValueLeaf, place: ValueLeaf) -> int:
    """Rates the likeness of a value of the original to a value per device, by name, op and metadata."""
    mine, other = place.instruction, value.instruction
    return 4 * (mine.name == other.name) + 2 * (mine.op is other.op) + (mine.metadata == other.metadata)


def _preferred(options: Sequence[Source], place: ValueLeaf) -> tuple[Source, ValueLeaf] | None:
    values: Iterable[tuple[Source, ValueLeaf]] = ((s, p) for s in options for p in s.places)
    return max(values, key=lambda v: _likeness(v[1], place), default=None)
