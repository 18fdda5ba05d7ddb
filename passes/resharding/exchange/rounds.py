"""Rounds of an exchange: which pieces travel together.

In a round nobody sends twice or receives twice, and all pieces are padded to the largest size in each dimension. Its
cost is the product of these sizes plus a latency. Edge colouring gives the fewest rounds (König's theorem). Separate
rounds for small pieces, or adding each piece to the round that it enlarges least, may send fewer elements. The cheapest
of these are improved by swapping the pieces of two rounds along the paths that they form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Size = tuple[int, ...]

FEW_PIECES = 128  # up to this many pieces, several groupings are tried
_MOST_BORDERS = 6  # borders between large and small pieces that are tried
_MOST_IMPROVED = 3  # cheapest groupings that are improved
_MOST_PASSES = 8  # passes over all pairs of rounds
_MOST_PAIRS = 512  # pairs of rounds up to which rounds are improved


@dataclass(frozen=True, slots=True)
class Messages:
    """Pieces by number: the sender, receiver and size of each. A round costs `latency` elements in addition."""

    senders: Sequence[int]
    receivers: Sequence[int]
    sizes: Sequence[Size]
    latency: float

    def size(self, pieces: Iterable[int]) -> Size | None:
        """Returns the size to which the pieces are padded."""
        found = [self.sizes[piece] for piece in pieces]
        return tuple(map(max, zip(*found, strict=True))) if found else None

    def cost(self, size: Size | None) -> float:
        """Returns the cost of a round of this size."""
        return 0.0 if size is None else math.prod(size) + self.latency


def rounds_of(messages: Messages) -> list[list[int]]:
    """Returns the cheapest rounds found that contain each piece once; for many pieces the fewest rounds."""
    sizes, receivers = messages.sizes, messages.receivers
    order = sorted(range(len(sizes)), key=lambda n: (-math.prod(sizes[n]), sizes[n][::-1], receivers[n]))
    if len(order) > FEW_PIECES:
        return _coloured(order, messages)
    ways = [_coloured(order, messages), _least_enlarged(order, messages)]
    ways += [_coloured(order[:n], messages) + _coloured(order[n:], messages) for n in _borders(order, messages)]
    ways.sort(key=lambda way: _total(way, messages))
    return min((_improved(way, messages) for way in ways[:_MOST_IMPROVED]), key=lambda way: _total(way, messages))


def _total(rounds: list[list[int]], messages: Messages) -> float:
    return sum(messages.cost(messages.size(r)) for r in rounds)


def _borders(order: Sequence[int], messages: Messages) -> list[int]:
    """Returns where to separate large pieces from small ones: at the largest drops in size."""
    elements = [math.prod(messages.sizes[piece]) for piece in order]
    drops = [n for n in range(1, len(order)) if elements[n] < elements[n - 1]]
    return sorted(drops, key=lambda n: elements[n] / elements[n - 1])[:_MOST_BORDERS]


def _coloured(order: Sequence[int], messages: Messages) -> list[list[int]]:
    """Colours the pieces with as few rounds as the busiest device has pieces.

    Large pieces come first, into the first round where both devices are free, so that sizes within a round are alike.
    If no round is free on both sides, pieces of two rounds swap along a path that frees one.
    """
    # `~` keeps the numbers of senders and receivers apart.
    ends = [(s, ~r) for s, r in zip(messages.senders, messages.receivers, strict=True)]
    count: dict[int, int] = {}
    for end in itertools.chain.from_iterable(ends[piece] for piece in order):
        count[end] = count.get(end, 0) + 1
    degree = max(count.values(), default=0)
    at = {end: [-1] * degree for end in count}  # the piece per round
    for piece in order:
        sender, receiver = ends[piece]
        out, into = at[sender], at[receiver]
        number = next((n for n in range(degree) if out[n] == into[n] == -1), -1)
        if number < 0:
            number = out.index(-1)
            _free(receiver, number, into.index(-1), at, ends)
        out[number] = into[number] = piece
    rounds: list[list[int]] = [[] for _ in range(degree)]
    for sender in sorted(end for end in at if end >= 0):
        for number, piece in enumerate(at[sender]):
            if piece >= 0:
                rounds[number].append(piece)
    return [r for r in rounds if r]


def _free(device: int, number: int, other: int, at: dict[int, list[int]], ends: list[tuple[int, int]]) -> None:
    """Swaps two rounds along the path of pieces that begins at a device, so that the first is free there."""
    path: list[int] = []
    here, wanted = device, number
    while (piece := at[here][wanted]) >= 0:
        path.append(piece)
        here = ends[piece][0] if ends[piece][1] == here else ends[piece][1]
        wanted = other if wanted == number else number
    before = [(piece, number if step % 2 == 0 else other) for step, piece in enumerate(path)]
    for piece, was in before:
        for end in ends[piece]:
            if at[end][was] == piece:
                at[end][was] = -1
    for piece, was in before:
        for end in ends[piece]:
            at[end][other if was == number else number] = piece


def _least_enlarged(order: Sequence[int], messages: Messages) -> list[list[int]]:
    """Puts each piece, large ones first, into the round whose cost it increases least, or into a new one."""
    rounds: list[list[int]] = []
    sizes: list[Size] = []
    busy: list[set[int]] = []
    for piece in order:
        ends, size = {messages.senders[piece], ~messages.receivers[piece]}, messages.sizes[piece]
        best, least = len(rounds), messages.cost(size)
        for number, taken in enumerate(busy):
            if taken.isdisjoint(ends):
                more = messages.cost(_larger(sizes[number], size)) - messages.cost(sizes[number])
                if more < least:
                    best, least = number, more
        if best == len(rounds):
            rounds.append([])
            sizes.append(size)
            busy.append(set())
        rounds[best].append(piece)
        sizes[best] = tuple(map(max, sizes[best], size))
        busy[best] |= ends
    return rounds


def _improved(rounds: list[list[int]], messages: Messages) -> list[list[int]]:
    """Swaps pieces between pairs of rounds as long as that lowers the cost."""
    pairs = list(itertools.combinations(range(len(rounds)), 2))
    if len(pairs) > _MOST_PAIRS:
        return rounds
    rounds = list(rounds)
    costs = [messages.cost(messages.size(r)) for r in rounds]
    alone = [messages.cost(size) for size in messages.sizes]
    changed = set(range(len(rounds)))
    for _ in range(_MOST_PASSES):
        looked_at, changed = changed, set[int]()
        for one, other in pairs:
            if looked_at.isdisjoint((one, other)) and changed.isdisjoint((one, other)):
                continue
            if _least(rounds[one], rounds[other], alone, messages) >= costs[one] + costs[other] - 1e-9:
                continue
            divided = _divided(rounds[one], rounds[other], messages)
            found = [messages.cost(messages.size(r)) for r in divided]
            if sum(found) < costs[one] + costs[other] - 1e-9:
                rounds[one], rounds[other] = divided
                costs[one], costs[other] = found
                changed |= {one, other}
        if not changed:
            break
    return [r for r in rounds if r]


def _least(one: list[int], other: list[int], alone: Sequence[float], messages: Messages) -> float:
    """Returns a lower bound on the cost of two rounds of these pieces, by the costs of pieces `alone`.

    Where a device sends or receives twice, both rounds remain: one has the dearest piece, the other some piece.
    """
    ends = (messages.senders, messages.receivers)
    if not any({devices[piece] for piece in one} & {devices[piece] for piece in other} for devices in ends):
        return 0.0
    costs = [alone[piece] for piece in (*one, *other)]
    return max(costs) + min(costs)


def _divided(one: list[int], other: list[int], messages: Messages) -> list[list[int]]:
    """Distributes the pieces of two rounds over two rounds: each path, largest first, in the cheaper orientation."""
    paths = [((a, messages.size(a)), (b, messages.size(b))) for a, b in _paths(one, other, messages)]
    paths.sort(key=lambda path: -max(messages.cost(size) for _, size in path))
    first: list[int] = []
    second: list[int] = []
    size: Size | None = None
    size_2: Size | None = None
    for (a, of_a), (b, of_b) in paths:
        straight = messages.cost(_larger(size, of_a)) + messages.cost(_larger(size_2, of_b))
        if messages.cost(_larger(size, of_b)) + messages.cost(_larger(size_2, of_a)) < straight:
            a, of_a, b, of_b = b, of_b, a, of_a
        first, second = first + a, second + b
        size, size_2 = _larger(size, of_a), _larger(size_2, of_b)
    return [first, second]


def _paths(one: list[int], other: list[int], messages: Messages) -> list[tuple[list[int], list[int]]]:
    """Returns the connected components of the pieces of two rounds, which touch through devices, split by round."""
    ends = {piece: (messages.senders[piece], ~messages.receivers[piece]) for piece in (*one, *other)}
    touching: dict[int, list[int]] = {}
    for piece, (sender, receiver) in ends.items():
        touching.setdefault(sender, []).append(piece)
        touching.setdefault(receiver, []).append(piece)
    rest, found, is_first = set(ends), list[tuple[list[int], list[int]]](), set(one)
    for start in ends:
        path: list[int] = []
        waiting = [start]
        while waiting:
            piece = waiting.pop()
            if piece in rest:
                rest.discard(piece)
                path.append(piece)
                waiting += [p for end in ends[piece] for p in touching[end]]
        if path:
            found.append(([p for p in path if p in is_first], [p for p in path if p not in is_first]))
    return found


def _larger(size: Size | None, other: Size | None) -> Size | None:
    """Returns the smallest size that holds both."""
    if size is None:
        return other
    if other is None:
        return size
    return tuple(map(max, size, other))
