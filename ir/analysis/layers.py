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

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
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
        self.nodes, self.kinds, self.least = nodes, kinds, least
        number = {instruction: n for n, instruction in enumerate(self.nodes)}
        self.kinds[number[root]] = -1
        self.operands = [[number[o] for o in instruction.operands] for instruction in self.nodes]
        self.operands[number[root]] = []
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for n, operands in enumerate(self.operands):
            for operand in operands:
                self.users[operand].append(n)

    @cached_property
    def edges(self) -> tuple[_Ints, _Ints, _Ints]:
        """The operand, the user and the operand's place of each edge."""
        source = np.array(list(chain.from_iterable(self.operands)), np.int64)
        counts = np.array(list(map(len, self.operands)), np.int64)
        user = np.repeat(np.arange(len(counts)), counts)
        return source, user, np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)

    def depths(self) -> list[int]:
        """Returns the length of the longest path to each instruction."""
        found: list[int] = []
        for operands in self.operands:
            found.append(1 + max([found[o] for o in operands]) if operands else 1)
        return found

    def seeds(self) -> Iterator[list[tuple[int, int]]]:
        """Yields pairs of instructions that may be in equal places of successive layers."""
        source, user, place = self.edges
        places = mixed(place.astype(np.uint64))
        colors: Hashes = mixed(np.array(self.kinds, np.int64).astype(np.uint64))
        for _ in range(_ROUNDS):
            wider = colors.copy()
            np.add.at(wider, user, mixed(colors[source] + places))
            np.add.at(wider, source, mixed(colors[user] ^ places))
            colors = mixed(wider)
        members: dict[int, list[int]] = {}
        for n, color in enumerate(colors.tolist()):
            members.setdefault(color, []).append(n)
        sizes = Counter(len(m) for m in members.values() if len(m) >= self.least)
        for size, _ in sorted(sizes.items(), key=lambda s: -s[0] * s[1])[:_TRIALS]:
            alike = [m for m in members.values() if len(m) == size]
            yield list(pairwise(max(alike, key=lambda m: len(self.operands[m[0]]) > 1)))


def _kinds(nodes: Sequence[Instruction], marks: Mapping[Instruction, Hashable]) -> list[int]:
    """Returns a number for each instruction that only those share which are alike but for their operands."""
    same: dict[Hashable, int] = {}  # by the identities of what instructions of equal layers mostly share
    equal: dict[Hashable, int] = {}
    found: list[int] = []
    for n, x in enumerate(nodes):
        own = None if x.op.role is Role.PARAMETER else x.attributes
        config = x.backend_config
        key = (
            x.op, id(own), id(x.shape), id(x.annotation), len(x.operands), None if config is None else str(config),
            marks.get(x), tuple(x.frontend_attributes.items()) if x.frontend_attributes else (),
        )  # fmt: skip
        kind = same.get(key)
        if kind is None:
            kind = same[key] = equal.setdefault((x.op, own, x.shape, x.annotation, *key[4:]), n)
        found.append(kind)
    return found


class _Shift:
    """A map from instructions to those in the next layer, which consists of columns: instructions at one place."""

    def __init__(self, graph: _Graph, seeds: Sequence[tuple[int, int]]) -> None:
        self.graph = graph
        self.after, self.before = [-1] * len(graph.nodes), [-1] * len(graph.nodes)
        self._grow(seeds)
        self.columns = [self._column(n) for n, b in enumerate(self.before) if b < 0 <= self.after[n]]
        self.columns = [column for column in self.columns if len(column) >= graph.least]
        self.column_of, self.place_in = [-1] * len(graph.nodes), [0] * len(graph.nodes)
        for number, column in enumerate(self.columns):
            for place, n in enumerate(column):
                self.column_of[n], self.place_in[n] = number, place

    def _grow(self, seeds: Sequence[tuple[int, int]]) -> None:
        after, before, graph = self.after, self.before, self.graph
        kinds, operands, users = graph.kinds, graph.operands, graph.users
        waiting: deque[int] = deque()
        for a, b in seeds:
            after[a], before[b] = b, a
            waiting.append(a)
        while waiting:
            a = waiting.popleft()
            b = after[a]
            for x, y in zip(operands[a], operands[b], strict=True):
                if x != y and after[x] < 0 and before[y] < 0 and kinds[x] == kinds[y]:
                    after[x], before[y] = y, x
                    waiting.append(x)
            if len(users[a]) == len(users[b]):
                for x, y in zip(users[a], users[b], strict=True):
                    if x != y and after[x] < 0 and before[y] < 0 and kinds[x] == kinds[y]:
                        after[x], before[y] = y, x
                        waiting.append(x)

    def _column(self, start: int) -> list[int]:
        found = [start]
        while (start := self.after[start]) >= 0:
            found.append(start)
        return found

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
        members: dict[int, list[tuple[int, int]]] = {label: [] for label in run}
        for n, label in enumerate(labels):
            if self.column_of[n] >= 0 and label in members:
                members[label].append((self.column_of[n], n))
        return [[self.graph.nodes[n] for _, n in sorted(members[label])] for label in run]

    def _labels(self) -> list[int]:
        """Returns the number of the layer of each instruction in a column; 0 for others.

        Columns are joined by edges, those between like depths first: what follows at once is of the same layer.
        """
        graph, column_of, depths = self.graph, self.column_of, self.graph.depths()
        edges: list[tuple[int, int, int]] = []
        for column in self.columns:
            n = column[len(column) // 2]
            near = (*graph.operands[n], *graph.users[n])
            edges += [(abs(depths[n] - depths[other]), n, other) for other in near if column_of[other] >= 0]
        base, joined = [0] * len(self.columns), [[number] for number in range(len(self.columns))]
        for _, n, other in sorted(edges):
            one, two = column_of[n], column_of[other]
            group, more = joined[one], joined[two]
            if group is not more:
                step = base[one] + self.place_in[n] - base[two] - self.place_in[other]
                for number in more:
                    base[number] += step
                    joined[number] = group
                group += more
        return [base[c] + p if c >= 0 else 0 for c, p in zip(column_of, self.place_in, strict=True)]


def _rows(graph: _Graph, column_of: Sequence[int], labels: Sequence[int]) -> dict[int, _Ints | None]:
    """Returns for each layer its instructions and their edges, sorted, without the number of the layer. None for a
    layer with an edge to one that is not next to it.
    """
    columns, layer = np.array(column_of, np.int64), np.array(labels, np.int64)
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
