"""Regions of a program that can run piece by piece: collectives with the products before and after them.

A region begins with an all-gather or all-to-all whose result products read, or with a product whose result is reduced
and scattered. It has everything behind it that works row by row (`cuts`), up to the next collective. What also needs
other values that depend on the region stays outside, so that all pieces can be computed before anything reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise

from ...cost.work import is_contraction
from ...ir.brief import brief
from ...ir.divisors import divisors
from ...ir.graph.attributes import Attributes
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ...ir.ops.collective_groups import groups_of, known_group_size
from .cuts import Cut, joined, operand_cuts, piece_shape, result_cut, row_count, sliced
from .roles import can_repeat

Renumbered = Callable[[Instruction, Attributes], Attributes]
"""Gives a copy of an instruction a channel of its own."""


def _as_it_is(_: Instruction, attributes: Attributes) -> Attributes:
    return attributes

_FINEST = 64  # units of a region: pieces end between them


@brief
@dataclass(frozen=True, slots=True)
class CutRegion:
    """The members of a region in order, each with its cut, the number of equal units between which they are cut, and
    the members that others read.
    """

    cuts: Mapping[Instruction, Cut]
    units: int
    exits: Sequence[Instruction]

    @property
    def entries(self) -> list[Instruction]:
        """The values that members read."""
        return list(dict.fromkeys(o for i in self.cuts for o in i.operands if o not in self.cuts))

    def mapped(self, copies: Mapping[Instruction, Instruction]) -> CutRegion:
        """Returns the same region of a copy of its members."""
        return CutRegion({copies[i]: cut for i, cut in self.cuts.items()}, self.units, [copies[i] for i in self.exits])


class RegionFinder:
    """Finds the regions of a computation, in its order, that may save more than `least` seconds in pieces, if `saves`
    tells how many an instruction saves at most: a negative number if it takes longer in pieces. One of a region's
    products takes a `launch` longer.
    """

    def __init__(
        self, computation: Computation, saves: Callable[[Instruction], float] | None = None, least: float = 0.0,
        launch: float = 0.0,
    ) -> None:  # fmt: skip
        self.computation = computation
        self.places = {i: place for place, i in enumerate(computation)}
        self.saves, self.least, self.launch = saves, least, launch

    def regions_at(self, seed: Instruction) -> Iterator[CutRegion]:
        """Yields the regions that begin with a collective, or with the product before it, one per dimension to cut."""
        for dim in range(seed.operands[0].shape.rank) if _can_move(seed) else ():
            for start, cut in _starts(seed, _first_cut(seed, dim)):
                grows = self._is_worth(start) and operand_cuts(start, cut) is not None
                found = self._grown(start, cut) if grows else None
                if found is not None and seed in found.cuts:
                    yield found

    def _grown(self, start: Instruction, cut: Cut) -> CutRegion | None:
        """Returns the region that begins with an instruction; None if nothing in it could overlap."""
        cuts, bit, closed = {start: cut}, 1 << self.places[start], set[Instruction]()
        seen = set(start.users)
        waiting = [(self.places[i], i) for i in seen]  # all that read members, in order
        heapify(waiting)
        while waiting:
            _, i = heappop(waiting)
            inside = [n for n, o in enumerate(i.operands) if o in cuts]
            is_behind = any(o not in cuts and self.needed[o] & bit for o in i.operands)
            found = None if is_behind or any(i.operands[n] in closed for n in inside) else _joining(i, inside[0], cuts)
            if found is None:
                continue
            cuts[i] = found
            if i.op.is_collective:
                closed.add(i)
            for user in i.users:
                if user not in seen:
                    seen.add(user)
                    heappush(waiting, (self.places[user], user))
        return _trimmed(cuts, start)

    def _is_worth(self, start: Instruction) -> bool:
        """Whether a region that begins here may save enough. Where nothing behind saves any, products cost."""
        if self.saves is None:
            return True
        behind = self._behind[start] or min(self._to_product[start], -self.launch)
        return self.saves(start) + behind > self.least

    @cached_property
    def _behind(self) -> Mapping[Instruction, float]:
        """The seconds that a region saves at most behind each instruction, up to the next collectives. It has a path to
        each of its members, and what costs more than it leads to may stay outside.
        """
        found, saves = dict[Instruction, float](), self.saves
        assert saves is not None
        for i in reversed(self.places):
            found[i] = sum([max(saves(u) + (0.0 if u.op.is_collective else found[u]), 0.0) for u in i.users])
        return found

    @cached_property
    def _to_product(self) -> Mapping[Instruction, float]:
        """The most seconds that instructions save on a path from each one to a product, without other collectives."""
        found, saves = dict[Instruction, float](), self.saves
        assert saves is not None
        for i in reversed(self.places):
            users = [u for u in i.users if not u.op.is_collective]
            found[i] = max([saves(u) + (0.0 if is_contraction(u) else found[u]) for u in users], default=-math.inf)
        return found

    @cached_property
    def needed(self) -> Mapping[Instruction, int]:
        """The instructions on which each depends, itself among them, as bits at their places."""
        found: dict[Instruction, int] = {}
        for i, place in self.places.items():
            bits = 1 << place
            for operand in i.operands:
                bits |= found[operand]
            found[i] = bits
        return found


def _first_cut(seed: Instruction, dim: int) -> Cut:
    """Returns the cut of a collective's result with the fewest blocks."""
    before, after = seed.operands[0].shape.dims[dim], seed.shape.dims[dim]
    groups = groups_of(seed)
    exchanged = before == after and groups is not None and dim in getattr(seed.attributes, "dimensions", ())
    return Cut(dim, known_group_size(groups) or 1 if exchanged and groups is not None else max(after // before, 1))


def _starts(seed: Instruction, cut: Cut) -> Iterator[tuple[Instruction, Cut]]:
    """Yields the first member of regions around a collective: itself, or the product that it takes the result of."""
    yield seed, cut
    value: Instruction | None = seed
    while value is not None and not is_contraction(value):
        needed = operand_cuts(value, cut)
        cuts = [(o, c) for o, c in zip(value.operands, needed or (), strict=False) if c is not None]
        value, cut = next(((o, c) for o, c in cuts if _is_inside(o) and len(o.users) == 1), (None, cut))
    if value is not None:
        yield value, cut


def _can_move(collective: Instruction) -> bool:
    """Whether a collective in groups has one operand and one array, with elements, as its result."""
    shape, count = collective.shape, len(collective.operands)
    is_plain = groups_of(collective) is not None and count == 1 and shape.is_array and not shape.is_dynamic
    return is_plain and shape.num_elements > 0


def _is_inside(value: Instruction) -> bool:
    return is_contraction(value) or (value.op.is_fusible and can_repeat(value))


def _joining(i: Instruction, operand: int, cuts: Mapping[Instruction, Cut]) -> Cut | None:
    """Returns the cut of an instruction that joins a region; None if it cannot."""
    if not (_can_move(i) if i.op.is_collective else _is_inside(i)) or not i.shape.is_array:
        return None
    cut = result_cut(i, operand, cuts[i.operands[operand]])
    needed = operand_cuts(i, cut) if cut is not None else None
    if needed is None or any(o in cuts and cuts[o] != c for o, c in zip(i.operands, needed, strict=True)):
        return None
    return cut


def _trimmed(cuts: dict[Instruction, Cut], start: Instruction) -> CutRegion | None:
    """Returns the region of the members that lead to a product or to a collective."""
    kept = dict[Instruction, Cut]()
    for i in reversed(cuts):
        if is_contraction(i) or i.op.is_collective or any(u in kept for u in i.users):
            kept[i] = cuts[i]
    if start not in kept or not any(is_contraction(i) for i in kept) or not any(i.op.is_collective for i in kept):
        return None
    rows = math.gcd(*(row_count(i, cut) for i, cut in kept.items()))
    units = max(n for n in divisors(rows) if n <= _FINEST)
    members = dict(reversed(kept.items()))
    root = start.parent.root if start.parent is not None else None
    exits = [i for i in members if i is root or any(u not in members for u in i.users)]
    return CutRegion(members, units, exits) if units > 1 else None


@brief
@dataclass(slots=True)
class Piece:
    """The units of a piece, the members `made` for it, and the rows of other values that they read."""

    begin: int
    end: int
    made: dict[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])
    read: dict[tuple[Instruction, Cut], Instruction] = field(
        default_factory=dict[tuple[Instruction, Cut], Instruction]
    )


@brief
@dataclass(slots=True)
class PieceEmitter:
    """Emits a region piece by piece, at the end of a computation; a collective that begins it comes first for all of
    them.
    """

    computation: Computation
    region: CutRegion
    renumbered: Renumbered = _as_it_is
    first: list[Instruction] = field(init=False)
    rest: list[Instruction] = field(init=False)
    needed: dict[Instruction, list[Cut | None]] = field(init=False)

    def __post_init__(self) -> None:
        members = list(self.region.cuts)
        count = int(members[0].op.is_collective)
        self.first, self.rest = members[:count], members[count:]
        cuts = {i: operand_cuts(i, cut) for i, cut in self.region.cuts.items()}
        self.needed = {i: needed for i, needed in cuts.items() if needed is not None}

    def emit(self, sizes: Sequence[int]) -> dict[Instruction, Instruction]:
        """Emits pieces of these numbers of units. Returns the values of the exits."""
        pieces = [Piece(begin, end) for begin, end in pairwise(accumulate(sizes, initial=0))]
        for members in self.first, self.rest:
            for piece in pieces:
                self.emit_members(members, piece)
        cuts = self.region.cuts
        return {i: joined(self.computation, [p.made[i] for p in pieces], cuts[i]) for i in self.region.exits}

    def emit_members(self, members: Iterable[Instruction], piece: Piece) -> None:
        """Emits members of a piece, and what they read of other values."""
        for i in members:
            cut, made = self.region.cuts[i], piece.made
            operands = [
                made[o] if o in made else o if c is None else self._read(o, c, piece)
                for o, c in zip(i.operands, self.needed[i], strict=True)
            ]
            shape = piece_shape(i.shape, cut, cut.rows(i.shape) * (piece.end - piece.begin) // self.region.units)
            attributes = self.renumbered(i, i.op.localize(i.call, [o.shape for o in operands], shape))
            made[i] = new = self.computation.add(i.op, operands, attributes, shape, i.name, i)
            new.frontend_attributes, new.backend_config = i.frontend_attributes, i.backend_config

    def _read(self, value: Instruction, cut: Cut, piece: Piece) -> Instruction:
        """Returns a piece of a value from outside. What every row of a broadcast repeats is broadcast anew."""
        known, key = piece.read, (value, cut)
        if key not in known:
            units, rows = self.region.units, cut.rows(value.shape)
            begin, end = rows * piece.begin // units, rows * piece.end // units
            needed = operand_cuts(value, cut) if value.op.is_fusible and len(value.operands) == 1 else None
            if needed == [None] and can_repeat(value) and value.op.role is not Role.CONSTANT:
                shape = piece_shape(value.shape, cut, end - begin)
                attributes = value.op.localize(value.call, [o.shape for o in value.operands], shape)
                known[key] = self.computation.add(value.op, value.operands, attributes, shape, value.name, value)
            else:
                known[key] = sliced(self.computation, value, cut, begin, end)
        return known[key]
