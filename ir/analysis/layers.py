"""Equal layers: parts of a computation that follow one another and differ only in their place.

A layer is a set of instructions. Two layers are equal if the instructions at equal places in them have the same ops,
attributes, shapes and annotations, and their operands and users are at equal places, too: in the same layer, in the one
before or after, or one instruction outside of all layers that all of them share. Order in the text and names do not
matter; parts of layers may run in opposite directions, as those of a backward pass do.

A shift takes each instruction to its like in the next layer. It grows from pairs of instructions whose neighbourhoods
look alike, along operands and users, and so takes time linear in the size of the computation. What it says is then
compared, edge by edge; layers at the ends, where the comparison fails, are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np

from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.op import Role
from ..hashes import Hashes, mixed

Layers = list[list[Instruction]]
"""The instructions of each layer; equal places are at equal numbers."""

_ROUNDS = 6  # relations that the neighbourhoods span from which a shift grows
_TRIALS = 3  # shifts that are tried
_Ints = np.ndarray[Any, np.dtype[np.int64]]


def find_layers(
    computation: Computation, marks: Mapping[Instruction, Hashable], least: int = 6, share: float = 0.0
) -> Layers:
    """Returns the longest run of at least so many equal layers of a computation; an empty list if there is none, or if
    it cannot have this share of the instructions.

    Instructions with different marks differ. Operands of the root do not count as such; their marks may tell them
    apart.
    """
    nodes = list(computation)
    kinds = _kinds(nodes, marks)
    repeated = sum(n for n in Counter(kinds).values() if n >= least)
    if repeated <= share * len(nodes):
        return []
    graph = _Graph(nodes, kinds, computation.root, least)
    best: Layers = []
    for seeds in graph.seeds():
        found = _Shift(graph, seeds).layers()
        if found and len(found) * len(found[0]) > len(best) * len(best[0] if best else ()):
            best = found
        if 2 * len(best) * len(best[0] if best else ()) > len(graph.nodes):
            break
    return best


class _Graph:
    """A computation in numbers. Uses by the root are left out."""

    def __init__(self, nodes: Sequence[Instruction], kinds: list[int], root: Instruction, least: int) -> None:
        self.nodes, self.least = nodes, least
        number = {instruction: n for n, instruction in enumerate(nodes)}
        kinds[number[root]] = -1
        self.kinds = np.array(kinds, np.int64)
        operands = [instruction.operands for instruction in nodes]
        operands[number[root]] = []
        counts = np.fromiter(map(len, operands), np.int64, len(operands))
        source = np.fromiter(map(number.__getitem__, chain.from_iterable(operands)), np.int64, int(counts.sum()))
        self.operands = _Lists(source, counts)
        user = np.repeat(np.arange(len(counts)), counts)
        self.edges = source, user, np.arange(len(source)) - np.repeat(self.operands.starts, counts)
        """The operand, the user and the operand's place of each edge."""
        self.users = _Lists(user[np.argsort(source, kind="stable")], np.bincount(source, minlength=len(counts)))

    def depths(self) -> list[int]:
        """Returns the length of the longest path to each instruction."""
        found: list[int] = []
        operands, end = cast(list[int], self.operands.items.tolist()), 0
        for count in cast(list[int], self.operands.counts.tolist()):
            start, end = end, end + count
            if count == 1:
                found.append(1 + found[operands[start]])
            elif count == 2:
                one, other = found[operands[start]], found[operands[start + 1]]
                found.append(1 + (one if one > other else other))
            else:
                found.append(1 + max([found[o] for o in operands[start:end]], default=0))
        return found

    def seeds(self) -> Iterator[tuple[_Ints, _Ints]]:
        """Yields pairs of instructions that may be in equal places of successive layers."""
        source, user, place = self.edges
        places = mixed(place.astype(np.uint64))
        colors: Hashes = mixed(self.kinds.astype(np.uint64))
        for _ in range(_ROUNDS):
            wider = colors.copy()
            np.add.at(wider, user, mixed(colors[source] + places))
            np.add.at(wider, source, mixed(colors[user] ^ places))
            colors = mixed(wider)
        order = np.argsort(colors, kind="stable")
        starts = np.flatnonzero(np.diff(colors[order], prepend=~colors[order[:1]]))
        counts = np.diff(starts, append=len(order))
        many = counts >= self.least
        sizes = Counter(cast(list[int], counts[many].tolist()))
        first = order[starts]
        for size, _ in sorted(sizes.items(), key=lambda s: (-s[0] * s[1], first[counts == s[0]].min()))[:_TRIALS]:
            alike = np.flatnonzero(counts == size)
            start = starts[min(alike.tolist(), key=lambda a: (self.operands.counts[first[a]] < 2, first[a]))]
            yield order[start : start + size - 1], order[start + 1 : start + size]


class _Lists:
    """A list of numbers for each instruction, all in one array."""

    def __init__(self, items: _Ints, counts: _Ints) -> None:
        self.items, self.counts = items, counts
        self.starts: _Ints = np.cumsum(counts) - counts

    def of(self, number: int) -> list[int]:
        start = int(self.starts[number])
        return self.items[start : start + int(self.counts[number])].tolist()

    def joined(self, numbers: _Ints) -> _Ints:
        """Returns the lists of these instructions, one after the other."""
        counts = self.counts[numbers]
        ends = np.cumsum(counts)
        return self.items[np.arange(int(counts.sum())) + np.repeat(self.starts[numbers] - ends + counts, counts)]


def _kinds(nodes: Sequence[Instruction], marks: Mapping[Instruction, Hashable]) -> list[int]:
    """Returns a number per instruction, equal for those that differ in their operands alone."""
    same: dict[Hashable, int] = {}  # by the identities of what instructions of equal layers mostly share
    equal: dict[Hashable, int] = {}
    found: list[int] = []
    for n, x in enumerate(nodes):
        config, mark, said = x.backend_config, marks.get(x), x.frontend_attributes
        rest: Hashable = len(x.operands)
        if config is not None or mark is not None or said:
            rest = rest, None if config is None else str(config), mark, tuple(said.items())
        key = x.identities, rest
        kind = same.get(key)
        if kind is None:
            own = None if x.op.role is Role.PARAMETER else x.attributes
            kind = same[key] = equal.setdefault((x.op, own, x.shape, x.annotation, rest), n)
        found.append(kind)
    return found


class _Shift:
    """A map from instructions to those in the next layer, which consists of columns: instructions at one place."""

    def __init__(self, graph: _Graph, seeds: tuple[_Ints, _Ints]) -> None:
        self.graph = graph
        self.after, self.before = (np.full(len(graph.nodes), -1, np.int64) for _ in range(2))
        self._grow(*seeds)
        self.column_of, self.place_in = self._columns()

    def _grow(self, one: _Ints, other: _Ints) -> None:
        """Maps instructions to others, and then, in rounds, the operands and users of these to those of the others."""
        one, other = self._mapped(one, other)
        while len(one):
            operands, users = self.graph.operands, self.graph.users
            even = users.counts[one] == users.counts[other]
            found = [self._mapped(operands.joined(one), operands.joined(other)),
                     self._mapped(users.joined(one[even]), users.joined(other[even]))]
            one, other = (np.concatenate(part) for part in zip(*found, strict=True))

    def _mapped(self, one: _Ints, other: _Ints) -> tuple[_Ints, _Ints]:
        """Maps instructions of the same kinds that are not mapped yet; returns these. Of pairs that exclude each other
        the first counts.
        """
        after, before, kinds = self.after, self.before, self.graph.kinds
        ones, others = [one[:0]], [other[:0]]
        while True:
            free = (one != other) & (after[one] < 0) & (before[other] < 0) & (kinds[one] == kinds[other])
            one, other = one[free], other[free]
            if not len(one):
                return np.concatenate(ones), np.concatenate(others)
            places = np.unique(one, return_index=True)[1]
            places = np.sort(places[np.unique(other[places], return_index=True)[1]])
            ones.append(one[places])
            others.append(other[places])
            after[ones[-1]], before[others[-1]] = others[-1], ones[-1]

    def _columns(self) -> tuple[_Ints, _Ints]:
        """Returns the number of the column of each instruction, -1 for none, and its place in it."""
        columns, places = np.full(len(self.after), -1, np.int64), np.zeros(len(self.after), np.int64)
        steps = [np.flatnonzero((self.before < 0) & (self.after >= 0))]
        numbers = np.arange(len(steps[0]))
        lengths = np.zeros(len(numbers), np.int64)
        alive = numbers
        while len(alive):
            columns[steps[-1]], places[steps[-1]] = alive, lengths[alive]
            lengths[alive] += 1
            next_ = self.after[steps[-1]]
            alive = alive[next_ >= 0]
            steps.append(next_[next_ >= 0])
        kept = lengths >= self.graph.least
        renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
        columns = np.where(columns >= 0, renumbered[columns], -1)
        return columns, np.where(columns >= 0, places, 0)

    def layers(self) -> Layers:
        """Returns the longest run of layers that are equal."""
        labels = self._labels()
        rows = _rows(self.graph, self.column_of, labels)
        runs: list[list[int]] = [[]]
        for label in sorted(rows):
            last = runs[-1][-1:]
            if rows[label] is None:
                runs.append([])
            elif last == [label - 1] and np.array_equal(cast(Any, rows[label]), cast(Any, rows[last[0]])):
                runs[-1].append(label)
            else:
                runs.append([label])
        run = max(runs, key=len)
        if len(run) < self.graph.least:
            return []
        inside = np.flatnonzero((self.column_of >= 0) & (labels >= run[0]) & (labels <= run[-1]))
        order = inside[np.lexsort((inside, self.column_of[inside], labels[inside]))]
        parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
        return [[self.graph.nodes[n] for n in part.tolist()] for part in parts]

    def _labels(self) -> _Ints:
        """Returns the number of the layer of each instruction in a column; 0 for others.

        Columns are joined by edges, those between like depths first: what follows at once is of the same layer.
        """
        graph, column_of, place_in, depths = self.graph, self.column_of, self.place_in, self.graph.depths()
        edges: list[tuple[int, int, int]] = []
        lengths = np.bincount(column_of[column_of >= 0])
        for n in np.flatnonzero((column_of >= 0) & (place_in == lengths[column_of] // 2)).tolist():
            near = (*graph.operands.of(n), *graph.users.of(n))
            edges += [(abs(depths[n] - depths[other]), n, other) for other in near if column_of[other] >= 0]
        base, joined = [0] * len(lengths), [[number] for number in range(len(lengths))]
        for _, n, other in sorted(edges):
            one, two = int(column_of[n]), int(column_of[other])
            group, more = joined[one], joined[two]
            if group is not more:
                step = base[one] + int(place_in[n]) - base[two] - int(place_in[other])
                for number in more:
                    base[number] += step
                    joined[number] = group
                group += more
        return np.where(column_of >= 0, np.array([*base, 0], np.int64)[column_of] + place_in, 0)


def _rows(graph: _Graph, columns: _Ints, layer: _Ints) -> dict[int, _Ints | None]:
    """Returns for each layer its instructions and their edges, sorted, without the number of the layer. None for a
    layer with an edge to one that is not next to it.
    """
    source, user, place = graph.edges
    inside = np.flatnonzero(columns >= 0)
    most, zeros = int(place.max(initial=0)) + 1, np.zeros(len(inside), np.int64)
    tables = [np.stack([layer[inside], columns[inside] * 3 * most, zeros, zeros])]
    for side, (own, other) in enumerate(((user, source), (source, user)), 1):
        mine = columns[own] >= 0
        own, other, at = own[mine], other[mine], place[mine]
        known = columns[other] >= 0
        far, step = np.where(known, columns[other], -1 - other), np.where(known, layer[other] - layer[own], 0)
        tables.append(np.stack([layer[own], (columns[own] * 3 + side) * most + at, far, step]))
    table = np.concatenate(tables, 1)
    table = table[:, np.lexsort(table[::-1])]
    found: dict[int, _Ints | None] = {}
    numbers, starts = np.unique(table[0], return_index=True)
    for number, part in zip(numbers.tolist(), np.split(table[1:], starts[1:], 1), strict=True):
        found[number] = part if (np.abs(part[2]) <= 1).all() else None
    return found
