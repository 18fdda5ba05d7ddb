"""Chooses the sizes of pieces: by the times of single pieces, one after the other on the engines.

A product of some rows may take as long as one of a few rows more (`cost.products`), and what the first and the last
piece wait for is hidden by nothing. So good sizes are irregular. A local search moves units from one piece to another,
divides a piece and joins two, as long as this helps. It costs little: a piece of each size is timed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ...cost.seconds import Clock
from ...cost.simulation import EngineSimulation, Steps, TimedStep, steps_of
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from .regions import CutRegion, Piece, PieceEmitter

Sizes = tuple[int, ...]

_COUNTS = (2, 3, 4, 6, 8, 12, 16)  # of pieces, to begin with
_STARTS = 3  # of searches, each of which
_TRIES = 200  # tries so many sizes,
_IDLE = 64  # of which so many in a row may be no better


class _Timed(NamedTuple):
    """One piece: what comes before everything else, such as its gather, the rest, and what takes time of both."""

    first: list[Instruction]
    rest: list[Instruction]
    steps: dict[Instruction, TimedStep]


class PieceSizes:
    """Searches the sizes of the pieces of a region, which is given as part of a program of its own."""

    def __init__(self, module: Module, clock: Clock, region: CutRegion) -> None:
        self.module, self.clock, self.region = module, clock, region
        self.pieces: dict[int, _Timed] = {}
        self.known: dict[Sizes, float] = {}

    def usual(self) -> Sizes:
        """Returns the best of some sizes: equal ones, and such that grow from the ends to the middle."""
        return min(self._starts(), key=self.seconds)

    def found(self) -> set[Sizes]:
        """Returns the best usual sizes of a few numbers of pieces, and what searches from there find."""
        starts = sorted(self._starts(), key=self.seconds)[:_STARTS]
        return {*starts, *map(self._refined, starts)}

    def _starts(self) -> Iterator[Sizes]:
        """Yields the best usual sizes of each number of pieces."""
        for count in (c for c in _COUNTS if c <= self.region.units):
            yield min(_usual(self.region.units, count), key=self.seconds)

    def _refined(self, sizes: Sizes) -> Sizes:
        """Returns better sizes than these, or these."""
        tried, idle = {sizes}, 0
        while idle < _IDLE and len(tried) < _TRIES:
            new = next((s for s in _neighbours(sizes) if s not in tried), None)
            if new is None:
                break
            tried.add(new)
            idle += 1
            if self.seconds(new) < self.seconds(sizes):
                sizes, idle = new, 0
        return sizes

    def seconds(self, sizes: Sizes) -> float:
        """Returns the seconds of pieces that are computed one after the other; the first collectives start at once."""
        if sizes not in self.known:
            pieces = [(self._piece(size), dict[Instruction, float]()) for size in sizes]
            simulation = EngineSimulation(self.clock, Steps(), self.clock.machine.overlap)
            for piece, ends in pieces:
                simulation.proceed(piece.first, piece.steps, ends)
            for piece, ends in pieces:
                simulation.proceed(piece.rest, piece.steps, ends)
            for _, ends in pieces:
                simulation.await_all(ends, ends)
            self.known[sizes] = simulation.now
        return self.known[sizes]

    def _piece(self, size: int) -> _Timed:
        """Returns a piece of a size."""
        if size not in self.pieces:
            computation = Computation("piece")
            copy = copied(self.region, computation)
            emitter, piece = PieceEmitter(computation, copy), Piece(0, size)
            emitter.emit_members(emitter.first, piece)
            first = set(computation)
            emitter.emit_members(emitter.rest, piece)
            computation.remove_all(copy.cuts)
            computation.root = computation.add("tuple", [piece.made[i] for i in copy.exits])
            clock = Clock.of(module_of(computation, self.module), self.clock.machine)
            firsts, rest = [i for i in computation if i in first], [i for i in computation if i not in first]
            self.pieces[size] = _Timed(firsts, rest, steps_of(computation, clock))
        return self.pieces[size]


def copied(region: CutRegion, computation: Computation) -> CutRegion:
    """Returns a copy of a region in another computation, whose parameters are what it reads."""
    copies = {e: computation.parameter(n, e.shape) for n, e in enumerate(region.entries)}
    for i in region.cuts:
        copies[i] = computation.add(i.op, [copies[o] for o in i.operands], i.attributes, i.shape, i.name)
    return region.mapped(copies)


def module_of(computation: Computation, like: Module) -> Module:
    """Returns a program of a computation, for as many devices as another one."""
    module = Module(computation.name)
    module.num_partitions, module.replica_count = like.num_partitions, like.replica_count
    module.add_computation(computation, entry=True)
    return module


def even(units: int, weights: tuple[int, ...]) -> Sizes:
    """Divides units by weights; every piece has one."""
    total, ends = sum(weights), [0]
    for n in range(len(weights)):
        ends.append(max(round(units * sum(weights[: n + 1]) / total), ends[-1] + 1))
    left = len(weights)
    ends = [min(end, units - (left - n)) for n, end in enumerate(ends)]
    return tuple(b - a for a, b in pairwise(ends))


def _usual(units: int, count: int) -> Iterator[Sizes]:
    yield even(units, (1,) * count)
    if count > 2:
        yield even(units, tuple(min(n, count - 1 - n) + 1 for n in range(count)))
        yield even(units, tuple(2 ** min(n, count - 1 - n, 3) for n in range(count)))


def _neighbours(sizes: Sizes) -> Iterator[Sizes]:
    """Yields sizes with units moved between two pieces side by side, with a piece divided, and with two joined."""
    for n, (a, b) in enumerate(pairwise(sizes)):
        for step in (1, 2, 4, 8):
            for moved in (step, -step):
                if a > moved and b > -moved:
                    yield (*sizes[:n], a - moved, b + moved, *sizes[n + 2 :])
    for n, size in enumerate(sizes):
        for part in (1, 2, 4, 8, 16):
            if part < size:
                yield (*sizes[:n], part, size - part, *sizes[n + 1 :])
                yield (*sizes[:n], size - part, part, *sizes[n + 1 :])
    for n, (a, b) in enumerate(pairwise(sizes)):
        if len(sizes) > 2:
            yield (*sizes[:n], a + b, *sizes[n + 2 :])
