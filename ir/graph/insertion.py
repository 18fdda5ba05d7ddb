"""Places of new instructions: what is appended to a computation, and where it belongs.

Instructions are appended to the order of their computation, and put in their places when the order is next read: once,
for any number of places.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from .instruction import Instruction

Placed = dict[Instruction, list[Instruction]]
Order = dict[Instruction, None]


class Insertions:
    """The instructions of a computation that are not in their places yet, and the present point of insertion."""

    __slots__ = ("after", "before", "point", "waiting")

    def __init__(self) -> None:
        self.point: list[Instruction] | None = None
        self.waiting: set[Instruction] = set()
        self.before: Placed = {}
        self.after: Placed = {}

    def put(self, instructions: list[Instruction], place: Instruction, placed: Placed) -> None:
        """Notes the place of instructions; `placed` is one of the two tables."""
        placed.setdefault(place, []).extend(instructions)
        self.waiting.update(instructions)

    def belong_to(self, places: set[Instruction]) -> bool:
        """Whether an instruction waits to be put before or after one of these."""
        return not (places.isdisjoint(self.before) and places.isdisjoint(self.after))

    def settled(self, order: Order) -> Order:
        """Returns the order with all instructions in their places. The same object if they are."""
        if not self.waiting:
            return order
        before, after, moved = self.before, self.after, self.waiting
        self.before, self.after, self.waiting = {}, {}, set()
        found: Order = {}
        for start in order:
            if start in moved:
                continue
            if start not in before and start not in after:
                found[start] = None
                continue
            stack = [(start, False)]
            while stack:
                instruction, is_next = stack.pop()
                if is_next:
                    if instruction in order:  # else it has been removed since
                        found[instruction] = None
                    continue
                stack += [(i, False) for i in reversed(after.get(instruction, ()))]
                stack.append((instruction, True))
                stack += [(i, False) for i in reversed(before.get(instruction, ()))]
        return found


def needs_first(instructions: Iterable[Instruction]) -> Order:
    """Returns instructions with operands and control predecessors before their users, otherwise in their own order.
    Raises ValueError if dependences form a cycle.
    """
    opened: set[Instruction] = set()
    done: Order = {}
    for start in instructions:
        stack = [start]
        while stack:
            instruction = stack[-1]
            waiting = [i for i in instruction.needs if i not in done] if instruction not in done else []
            if waiting and instruction in opened:
                raise ValueError(f"{instruction.name} depends on itself")
            opened.add(instruction)
            if waiting:
                stack += reversed(waiting)
                continue
            stack.pop()
            done.setdefault(instruction)
    return done


class Point:
    """An insertion point for the body of a `with` statement, which yields the list of the inserted instructions."""

    __slots__ = ("around", "insertions", "is_before", "made", "place")

    def __init__(self, insertions: Insertions, place: Instruction | None, is_before: bool) -> None:
        self.insertions, self.place, self.is_before = insertions, place, is_before
        self.made: list[Instruction] = []

    def __enter__(self) -> list[Instruction]:
        self.around, self.insertions.point = self.insertions.point, self.made
        return self.made

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.insertions.point = self.around
        if self.made and self.place is not None:
            insertions = self.insertions  # whose tables are others by now if the order has been read since
            insertions.put(self.made, self.place, insertions.before if self.is_before else insertions.after)
