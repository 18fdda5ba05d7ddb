"""Draws the graph of a section: its heavy ops as nodes in rows, and the values between them as edges.

Every other op joins the latest heavy op among its operands, which keeps the graph free of circles. A row is the length
of the longest path to a node; nodes of a row are ordered by the mean place of their neighbours, in a few sweeps. The
time is linear in the size of the section.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.brief import brief
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from .phases import is_heavy

MOST_NODES = 90
_WIDTH = 7  # nodes of a row, at most
_SWEEPS = 6
_FARTHEST = 8  # ops between a parameter and the op that reads it


@brief
@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A heavy op at a place of the picture, the number of ops that joined it, and the parameters that it reads, moved
    or gathered as they may be.
    """

    instruction: Instruction
    x: float
    y: int
    joined: int
    parameters: tuple[Instruction, ...]


@brief
@dataclass(frozen=True, slots=True)
class Drawing:
    """Nodes, edges between their numbers with the value that each carries, and the number of nodes left out."""

    nodes: tuple[DrawnNode, ...]
    edges: tuple[tuple[int, int, Instruction], ...]
    left_out: int


def drawing(members: Sequence[Instruction]) -> Drawing:
    """Lays out the graph of instructions, which are in program order."""
    anchors = _anchors(members)
    heavy = [i for i in members if anchors.get(i) is i]
    if len(heavy) > MOST_NODES:
        largest = set(sorted(heavy, key=lambda i: (not i.op.is_collective, -i.shape.byte_size))[:MOST_NODES])
        nodes = [i for i in heavy if i in largest]
    else:
        nodes = heavy
    number = {i: n for n, i in enumerate(nodes)}
    joined = [0] * len(nodes)
    edges: dict[tuple[int, int], Instruction] = {}
    for i in members:
        anchor = anchors.get(i)
        if anchor is None or anchor not in number:
            continue
        to = number[anchor]
        joined[to] += 1
        for operand in i.operands:
            before = anchors.get(operand)
            if before is not None and before is not anchor and before in number:
                edges.setdefault((number[before], to), operand)
    places = _places(len(nodes), list(edges))
    drawn = tuple(DrawnNode(i, *places[n], joined[n], _read(i)) for n, i in enumerate(nodes))
    return Drawing(drawn, tuple((a, b, value) for (a, b), value in edges.items()), len(heavy) - len(nodes))


def _anchors(members: Sequence[Instruction]) -> dict[Instruction, Instruction]:
    """Returns the heavy op that each instruction joins: the latest among its operands, or the first that uses it."""
    found: dict[Instruction, Instruction] = {}
    place = {i: n for n, i in enumerate(members)}
    for i in members:
        if is_heavy(i):
            found[i] = i
        elif before := [found[o] for o in i.operands if o in found]:
            found[i] = max(before, key=place.__getitem__)
    for i in reversed(members):
        users = [found[u] for u in i.users if u in found]
        if i not in found and users and i.op.role is not Role.PARAMETER:
            found[i] = min(users, key=place.__getitem__)
    return found


def _read(instruction: Instruction) -> tuple[Instruction, ...]:
    """Returns the parameters that an op reads, directly or through ops of one operand and collectives."""
    found: dict[Instruction, None] = {}
    for operand in instruction.operands:
        for _ in range(_FARTHEST):
            if len(operand.operands) != 1 or (is_heavy(operand) and not operand.op.is_collective):
                break
            operand = operand.operands[0]
        if operand.op.role is Role.PARAMETER and operand.shape.is_array:
            found[operand] = None
    return tuple(found)


def _places(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, int]]:
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    rank = [0] * count
    for n in range(count):  # edges lead to later nodes
        rank[n] = 1 + max((rank[p] for p in before[n]), default=-1)
    for n in reversed(range(count)):
        if not before[n] and after[n]:
            rank[n] = max(0, min(rank[s] for s in after[n]) - 1)
    by_rank: dict[int, list[int]] = {}
    for n in range(count):
        by_rank.setdefault(rank[n], []).append(n)
    rows = [row[i : i + _WIDTH] for _, row in sorted(by_rank.items()) for i in range(0, len(row), _WIDTH)]
    x = {n: k - (len(row) - 1) / 2 for row in rows for k, n in enumerate(row)}
    for sweep in range(_SWEEPS):
        _sweep(rows if sweep % 2 == 0 else rows[::-1], before if sweep % 2 == 0 else after, x)
    left = min(x.values(), default=0.0)
    y = {n: number for number, row in enumerate(rows) for n in row}
    return [(round(x[n] - left, 2), y[n]) for n in range(count)]


def _sweep(rows: Sequence[list[int]], neighbours: Sequence[list[int]], x: dict[int, float]) -> None:
    """Orders each row by the mean place of the neighbours, and moves it as a whole towards them."""
    for row in rows:
        wanted = {n: sum(x[m] for m in near) / len(near) if (near := neighbours[n]) else x[n] for n in row}
        row.sort(key=lambda n: (wanted[n], n))
        room = (_WIDTH - len(row)) / 2
        middle = max(-room, min(room, sum(wanted.values()) / len(row)))
        for k, n in enumerate(row):
            x[n] = middle + k - (len(row) - 1) / 2
