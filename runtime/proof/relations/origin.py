"""Finds the first wrong instruction of a partitioned program whose results differ from those of the original.

The search begins at a wrong element of a result, and goes back: through instructions that move elements to the source
of the element, through element-wise ones to the operand that differs from the original's. Where the right operands are
not known, it continues with operands that have no relation to the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....ir.graph.attributes import Dims
from ....ir.sharding.tiling import Tiling
from ....ir.time_limit import check_time
from ....ir.tools.placement import Placement
from ....ir.types.literal import Array
from ...fabric.tiles import tile_slices
from ..field import UNDEFINED
from ..flow import ValueLeaf
from ..verdict import Origin
from .fits import TileFit, usual_share, usual_tile
from .index import Source, is_telling, leaf_is_float
from .moves import moves, taken_from
from .relate import Relations
from .relation import RelationKind

_PARTS = (RelationKind.PARTIAL, RelationKind.MASKED)
_VOTED = 3  # values of the original that an array may be a tile of


@dataclass(frozen=True)
class Wrong:
    """An element of a value on a device in one run, the right element, and its place in the original."""

    place: ValueLeaf
    run: int
    device: int
    at: Dims
    want: Any
    source: Source
    position: int


class Search:
    """The search for the first wrong instruction. `placements` are those of the results."""

    def __init__(self, relations: Relations, placements: Sequence[Placement]) -> None:
        self.relations = relations
        self.flow = relations.flow
        self.known = relations.by_place
        self._order = {v.place: n for n, v in enumerate(relations.values)}
        self._results = list(zip(self.flow.results(), relations.whole.results(), placements, strict=True))
        self._source_of = {p: s for s in relations.index.sources for p in s.places}
        self._begun: set[ValueLeaf] = set()  # where the search has been, from one result
        self._sources = {id(s): s for s in relations.index.sources}
        self._deviating: dict[ValueLeaf, Wrong | None] = {}
        self._misusing: dict[ValueLeaf, ValueLeaf | None] = {}

    def origin(self) -> Origin | None:
        """The first wrong instruction; None if no result has a wrong element."""
        ends: list[Wrong | ValueLeaf] = []
        for wrong in self.results():
            self._begun.clear()
            ends += [self._followed(wrong)] if isinstance(wrong, Wrong) else []
        if not ends:
            return None
        return self._described(min(ends, key=lambda e: self._order[e.place if isinstance(e, Wrong) else e]))

    def results(self) -> Iterator[Wrong | Source | None]:
        """Finds the first wrong element of each array of the result. If there is none, its value of the original; None
        if that is not known.
        """
        for place, whole, placement in self._results:
            source = self._source_of.get(whole) if whole is not None else None
            if not placement.shape.is_array:
                continue
            if place is None or place not in self.known or source is None or placement.tiling is None:
                yield None
                continue
            yield self._wrong_result(place, placement, placement.tiling, source) or source

    def _wrong_result(self, place: ValueLeaf, placement: Placement, tiling: Tiling, source: Source) -> Wrong | None:
        run = len(self.known[place].runs) - 1
        for device in self.known[place].runs[run]:
            slices = tile_slices(tiling, placement.shape.dims, device % self.relations.devices.grid.partitions)
            parts = (0,) * (source.array.ndim - len(slices))  # of complex numbers
            found = self._mismatch(place, run, device, source, TileFit((*(int(s.start) for s in slices), *parts)))
            if found is not None:
                return found
        return None

    def _mismatch(self, place: ValueLeaf, run: int, device: int, source: Source, fit: TileFit) -> Wrong | None:
        array = self.known[place].runs[run][device]
        positions = fit.positions(array.shape, source.array.shape)
        if not source.array.size:
            return None
        wanted = source.array.reshape(-1)[np.maximum(positions, 0)]
        wrong = np.argwhere((positions >= 0) & (wanted != array))
        if not len(wrong):
            return None
        at = tuple(map(int, wrong[0]))
        return Wrong(place, run, device, at, wanted[at], source, int(positions[at]))

    # -- back from a wrong element

    def _followed(self, wrong: Wrong) -> Wrong | ValueLeaf:
        """Follows a wrong element to the instruction that makes it."""
        if self._kind(wrong.place) in _PARTS or wrong.place in self._begun:
            return wrong.place
        self._begun.add(wrong.place)
        seen: set[tuple[ValueLeaf, int]] = set()
        while (wrong.place, wrong.run) not in seen:
            seen.add((wrong.place, wrong.run))
            place = wrong.place
            if place not in self.flow.making:
                before = self._carried(wrong)
            elif moves(place):
                return self._moved(wrong)
            else:
                before = self._computed(wrong)
            if before is None:
                return self._without(place, wrong)
            if self._kind(before.place) in _PARTS and self._kind(place) not in _PARTS:
                return self._before(place, before.place, _PARTS)[0]
            wrong = before
        return wrong

    def _carried(self, wrong: Wrong) -> Wrong | None:
        """Follows an element through a loop or a call."""
        have = self._array(wrong)[wrong.at]
        for operand in self.flow.operands(wrong.place):
            for run, arrays in enumerate(self.known[operand].runs if operand in self.known else ()):
                array = arrays.get(wrong.device)
                if array is not None and array.shape == self._array(wrong).shape and array[wrong.at] == have:
                    return replace(wrong, place=operand, run=run)
        return None

    def _computed(self, wrong: Wrong) -> Wrong | None:
        """Follows an element through an element-wise op to the operand that differs from the original's."""
        place = wrong.place
        operands = self._reads(place)
        meant = self._meant(wrong) if place.instruction.op.is_elementwise else None
        for operand, value in zip(operands or (), meant or (), strict=meant is not None):
            source = self._source_of.get(value)
            if operand not in self.known or source is None:
                return None
            array = self._array(replace(wrong, place=operand))
            for at, position in _same_place(wrong, array):
                want = source.array.reshape(-1)[position if source.array.ndim else 0]
                if array[at] != want:
                    return Wrong(operand, self._run(operand, wrong.run), wrong.device, at, want, source, position)
        return None

    def _meant(self, wrong: Wrong) -> list[ValueLeaf] | None:
        """Returns the operands of the same op in the original."""
        own = wrong.place.instruction
        for value in sorted(wrong.source.places, key=lambda v: v.instruction.name != own.name):
            making = self.relations.whole.making.get(value)
            reads = [r for r in making.reads if r is not None] if making is not None else []
            if value.instruction.op is own.op and len(reads) == len(self._reads(wrong.place)):
                return reads
        return None

    # -- through moves

    def _moved(self, wrong: Wrong) -> Wrong | ValueLeaf:
        """Follows an element through moves. The first of them, in program order, with the right element among its
        operands is wrong.
        """
        blamed: Wrong | None = None
        joined: ValueLeaf | None = None
        last = wrong
        current, seen = wrong, set[ValueLeaf]()
        while moves(current.place) and current.place in self.flow.making and current.place not in seen:
            seen.add(current.place)
            last = current if self._reads(current.place) else last
            reads = [r for r in self._reads(current.place) if r in self.known]
            if self._holds(current, reads):
                blamed = current
            if sum(leaf_is_float(r) == leaf_is_float(current.place) and _rank(r) > 0 for r in reads) > 1:
                joined = current.place
            runs = [self.known[r].runs[self._run(r, current.run)] for r in reads]
            taken = taken_from(self.flow, runs, current.place, current.device, current.at)
            if taken is None:
                break
            place, device, at = taken
            if self._kind(place) in _PARTS and self._kind(current.place) not in _PARTS:
                return self._before(current.place, place, _PARTS)[0]
            current = replace(current, place=place, run=self._run(place, current.run), device=device, at=at)
        if current.place not in seen and not self._is_right(current) and self.flow.operands(current.place):
            return self._followed(current)
        return blamed or joined or last

    def _holds(self, wrong: Wrong, reads: Sequence[ValueLeaf]) -> bool:
        """Whether an operand contains the right element: on any device for a collective."""
        alike = [r for r in reads if leaf_is_float(r) == leaf_is_float(wrong.place)]
        runs = [self.known[r].runs[self._run(r, wrong.run)] for r in alike]
        exchanged = wrong.place.instruction.op.is_collective
        arrays = [a for run in runs for d, a in run.items() if exchanged or d == wrong.device]
        return any(bool((a == wrong.want).any()) for a in arrays)

    def _is_right(self, wrong: Wrong) -> bool:
        """Whether the value is related to the original, so that its elements are only misplaced."""
        kind = self.known[wrong.place].relation.kind
        return kind in (RelationKind.TILE, RelationKind.REARRANGED)

    # -- where the element that belongs there is not known

    def _without(self, place: ValueLeaf, wrong: Wrong) -> Wrong | ValueLeaf:
        """Continues with the operands without a relation, to the first instruction that is certainly wrong, else to the
        first one whose operands all have one.
        """
        ends: list[tuple[bool, int, Wrong | ValueLeaf]] = []
        found, stack = {place}, [place]
        while stack:
            place = stack.pop()
            out = self._out_of_line(place) if place is not wrong.place else None
            operands = [p for p in self.flow.operands(place) if p in self.known and leaf_is_float(p)]
            before = [p for p in operands if self._kind(p) is RelationKind.NONE]
            before = before or [p for p in operands if self._kind(p) is RelationKind.HOLES and not moves(place)]
            stack += [p for p in before if p not in found]
            found.update(before)
            blamed = self._followed(out) if out is not None else None if before else self._misused(place)
            if blamed is not None or not before:
                at = wrong if place is wrong.place else place
                ends.append((blamed is None and not moves(place), self._order[place], blamed or at))
        return min(ends, key=lambda e: e[:2])[2] if ends else wrong

    def _kind(self, place: ValueLeaf) -> RelationKind | None:
        return self.known[place].relation.kind if place in self.known else None

    def _out_of_line(self, place: ValueLeaf) -> Wrong | None:
        """Returns an element that deviates from the tile that most others belong to. Many ways lead to one value."""
        if place not in self._deviating:
            self._deviating[place] = self._deviation(place)
        return self._deviating[place]

    def _deviation(self, place: ValueLeaf) -> Wrong | None:
        check_time()
        related = self.known[place]
        run = next((n for n, r in enumerate(related.relations) if r.kind in (RelationKind.NONE, RelationKind.HOLES)), 0)
        votes: Counter[int] = Counter()
        for array in related.runs[run].values():
            for sources, _ in self.relations.index.candidates(array):
                votes.update(id(s) for s in sources if s.array.ndim == array.ndim)
        for source in (self._sources[number] for number, _ in votes.most_common(_VOTED)):
            for device, array in related.runs[run].items():
                fit = usual_tile(source, array)
                if fit is not None and 2 * usual_share(source, array, fit) > 1:
                    found = self._mismatch(place, run, device, source, fit)
                    if found is not None:
                        return found
        return None

    def _misused(self, place: ValueLeaf) -> ValueLeaf | None:
        """Returns the instruction that makes an operand other than the one of the same op in the original."""
        if place not in self._misusing:
            self._misusing[place] = self._misuse(place)
        return self._misusing[place]

    def _misuse(self, place: ValueLeaf) -> ValueLeaf | None:
        operands = self._reads(place)
        meant = self._counterpart(place, operands)
        for operand, value in zip(operands, meant or (), strict=meant is not None):
            kind = self.known[operand].relation.kind
            if kind in _PARTS:
                return self._before(place, operand, _PARTS)[0]
            if kind is RelationKind.CONSTANT and not self._is(operand, value) and self._is_telling(operand):
                return self._before(place, operand, (RelationKind.CONSTANT,))[1]
        masked = [o for o in operands if self._is_padded(o) and _rank(o) > 0]
        return masked[0] if masked and not moves(place) else None

    def _is_padded(self, place: ValueLeaf) -> bool:
        """Whether the value is a tile with one number beyond the ends of the original's value: a mask makes such."""
        related = self.known.get(place)
        if related is None or related.relation.kind is not RelationKind.TILE or related.relation.source is None:
            return False
        relation, source = related.relation, related.relation.source
        beyond = [
            array[fit.positions(array.shape, source.array.shape) < 0]
            for array, fit in ((related.runs[0].get(d), f) for d, f in relation.fits.items())
            if fit is not None and array is not None
        ]
        numbers = np.unique(np.concatenate(beyond)) if beyond else np.zeros(0, np.uint64)
        return numbers.size == 1 and int(numbers[0]) != int(UNDEFINED)

    def _counterpart(self, place: ValueLeaf, operands: Sequence[ValueLeaf]) -> list[ValueLeaf] | None:
        """Returns the operands of the original's value with the same op and most of the same operands."""
        best, most = None, 0
        for value, making in self.relations.whole.making.items():
            found = [r for r in making.reads if r is not None]
            if value.instruction.op is place.instruction.op and len(found) == len(operands):
                same = sum(map(self._is, operands, found))
                score = 2 * same + (value.instruction.name == place.instruction.name)
                if score > most and same >= len(operands) - 1 and all(o in self.known for o in operands):
                    best, most = found, score
        return best

    def _is(self, place: ValueLeaf, value: ValueLeaf) -> bool:
        source = self.known[place].relation.source if place in self.known else None
        return source is not None and self._source_of.get(value) is source

    def _is_telling(self, place: ValueLeaf) -> bool:
        return leaf_is_float(place) and any(is_telling(a).any() for r in self.known[place].runs for a in r.values())

    def _before(
        self, user: ValueLeaf, place: ValueLeaf, kinds: tuple[RelationKind, ...]
    ) -> tuple[ValueLeaf, ValueLeaf]:
        """Returns the earliest value of these kinds that leads to this one through such values alone, and its user on
        the way. The search ends where two of these meet, as in sums that are combined together.
        """
        seen: set[ValueLeaf] = set()
        while place not in seen:
            seen.add(place)
            before = [p for p in self.flow.operands(place) if p in self.known]
            found = [p for p in before if self.known[p].relation.kind in kinds]
            if len(found) == 1:
                user, place = place, found[0]
        return user, place

    # -- values

    def _reads(self, place: ValueLeaf) -> list[ValueLeaf]:
        making = self.flow.making.get(place)
        return [r for r in making.reads if r is not None] if making is not None else []

    def _run(self, place: ValueLeaf, run: int) -> int:
        return min(run, len(self.known[place].runs) - 1)

    def _array(self, wrong: Wrong) -> Array:
        return self.known[wrong.place].runs[self._run(wrong.place, wrong.run)][wrong.device]

    # -- the description

    def _described(self, blamed: Wrong | ValueLeaf) -> Origin:
        instruction = (blamed.place if isinstance(blamed, Wrong) else blamed).instruction
        location = instruction.location
        origin = Origin(
            instruction.opcode,
            instruction.name,
            f"{location.source.name}:{location.line}" if location is not None else "",
            str(instruction.frontend_attributes.get("hloom.cause", "")),
            instruction.metadata.op_name if instruction.metadata else "",
        )
        if not isinstance(blamed, Wrong):
            return origin
        have = np.asarray(self._array(blamed)[blamed.at])
        position = int(blamed.source.positions_of(have)) if blamed.source.is_float and is_telling(have) else -1
        what = f"is {_named(blamed.source, position)}" if position >= 0 else "is no element of that value"
        return replace(
            origin, device=blamed.device, element=blamed.at,
            what=f"should be {_named(blamed.source, blamed.position)}, {what}",
        )  # fmt: skip


def _rank(place: ValueLeaf) -> int:
    return list(place.instruction.shape.leaves())[place.leaf].rank


def _named(source: Source, position: int) -> str:
    at = [int(i) for i in np.unravel_index(position, source.array.shape)]
    return f"element {at} of {source.places[0]}"


def _same_place(wrong: Wrong, array: Array) -> list[tuple[Dims, int]]:
    """Where an operand has the element at the place of a wrong one, and where the original has that. A complex number
    has two, in a last dimension.
    """
    at, position = wrong.at, wrong.position
    if not array.ndim:
        return [((), 0)]
    if array.ndim > len(at):
        return [((*at, part), 2 * position + part) for part in range(2)]
    return [(at, position)] if array.ndim == len(at) else [(at[:-1], position // 2)]
