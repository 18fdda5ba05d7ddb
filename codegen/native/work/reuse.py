"""Finds the bytes of each op that caches do not hold, by the bytes that a program touches between two uses of an array.

A program is followed in its order, as if it had just run before: loops for two trips, the second of which counts. An
array is the parameter, the constant or the result of an op that a value is or is a view of; state that loops forward
or update keeps its array. Slices that trips of a loop take of an array are arrays of their own. Arrays of the arena lie
where others have lain, so a result is never further away than the arena is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ....cost.host import HOST
from ....cost.memory_traffic import read_of_operands, written_of
from ....cost.seconds import trips_of
from ....cost.uses import overwritten
from ....ir.analysis.lifetimes import live_bytes
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import PassesOn
from ....ir.graph.module import Module
from ....ir.graph.op import Role
from ....ir.ops.control import WhileAttributes
from ....ir.ops.structure import element_index
from ..native_steps import widened_bytes
from ..step import StridedLayout
from .puts import forwards

_Key = Any  # of an array; for a tuple the list of the keys of its elements
_View = Callable[[Instruction], StridedLayout | None]
_IsCode = Callable[[Instruction], bool]
_TRIPS = 2  # that are followed
_FIRST_CACHE = HOST.cache_ways * HOST.cache_way
_LAST_CACHE = 2 * HOST.streamed


class Missed(NamedTuple):
    """The bytes that the first cache does not hold: those that are `close` in the second one, those that only the last
    cache holds, and those that none does.
    """

    close: float = 0.0
    near: float = 0.0
    far: float = 0.0

    def plus(self, more: Missed) -> Missed:
        return Missed(self.close + more.close, self.near + more.near, self.far + more.far)


def lost(filled: float) -> float:
    """Returns the share of bytes, from 0 to 1, that a cache of `HOST.second_ways` no longer holds when they are used
    again and so many of its sizes were touched since. Its sets are chosen by the addresses of pages, which lie anywhere
    in memory: a set is asked for a number of lines after Poisson's law, and loses them if these are more than its ways
    (Smith 1978, "A comparative study of set associative memory mapping algorithms").
    """
    if filled > 2:
        return 1.0
    lines, likely = filled * HOST.second_ways, 1.0
    kept = likely
    for others in range(1, HOST.second_ways):
        likely *= lines / others
        kept += likely
    return 1 - kept * math.exp(-lines)


class LastUses:
    """The arrays of a program in the order of their last use."""

    def __init__(self, second_cache: float = HOST.near_cache) -> None:
        self._sizes: dict[_Key, int] = {}
        self._second_cache = second_cache

    def touch(self, key: _Key, size: int, most: float = float("inf")) -> Missed:
        """Uses bytes of an array; returns which of these caches hold. `most` bounds the bytes that were touched since
        its last use, with its own.
        """
        touched = min(self._between(key) + size, max(most, size))
        self._sizes[key] = max(self._sizes.pop(key, 0), size)
        first, last = (min(max(touched - cache, 0), size) for cache in (_FIRST_CACHE, _LAST_CACHE))
        second = min(max(size * lost(touched / self._second_cache), last), first)
        return Missed(first - second, second - last, last)

    def _between(self, key: _Key) -> float:
        found = 0
        if key in self._sizes:
            for other in reversed(self._sizes):
                if other == key or found > _LAST_CACHE:
                    return found
                found += self._sizes[other]
        return float("inf")


class Reuse:
    """Counts the bytes that ops read from memory. `of` maps each op to its bytes that the first cache does not hold; a
    loop that Python starts and that `is_code` has those of copying the state that it
    changes. `before` maps each instruction to the bytes that a run has touched until then, `total` is all of them.
    """

    def __init__(
        self, module: Module, view: _View, is_code: _IsCode = lambda _: False, second_cache: float = HOST.near_cache
    ) -> None:
        self.of: dict[Instruction, Missed] = {}
        self.before: dict[Instruction, int] = {}
        self.total = 0
        self._view, self._is_code, self._uses = view, is_code, LastUses(second_cache)
        self._in_code = False
        self._arenas: dict[Computation, int] = {}
        self._slices = 0  # bytes of slices in a trip
        for _ in range(2):
            self.total = 0
            self._run(module.entry, {}, ())

    def _run(self, computation: Computation, keys: dict[Instruction, _Key], trip: tuple[int, ...]) -> _Key:
        """Follows a computation whose parameters have these keys; returns that of its root."""
        for instruction in computation:
            op, operands = instruction.op, instruction.operands
            self.before[instruction] = self.total
            if op.role is Role.PARAMETER:
                keys.setdefault(instruction, instruction)
            elif op.role is Role.TUPLE:
                keys[instruction] = [keys[o] for o in operands]
            elif op.role is Role.ELEMENT:
                whole, number = keys[operands[0]], element_index(instruction) or 0
                keys[instruction] = whole[number] if isinstance(whole, list) else (whole, number)
            elif len(operands) == 1 and (op.interface(PassesOn) or self._view(instruction) is not None):
                keys[instruction] = keys[operands[0]]
            elif op.is_control:
                keys[instruction] = self._control(instruction, [keys[o] for o in operands], trip)
            else:
                keys[instruction] = self._op(instruction, [keys[o] for o in operands], trip)
        return keys[computation.root]

    def _control(self, instruction: Instruction, given: list[_Key], trip: tuple[int, ...]) -> _Key:
        if instruction.op.role is not Role.LOOP:
            found: list[_Key] = []
            for number, called in enumerate(instruction.called()):
                own = given[number + 1 :] if instruction.op.role is Role.BRANCH else given
                found.append(self._run(called, dict(zip(called.parameters, own, strict=False)), trip))
            return found[0]
        is_flat = len(instruction.shape.elements) == instruction.shape.num_leaves
        if self._in_code or not is_flat or not self._is_code(instruction):
            return self._trips(instruction, given[0], trip)
        self.of[instruction], state = self._copied(instruction, given[0], trip)
        self._in_code = True
        left = self._trips(instruction, state, trip)
        self._in_code = False
        return left

    def _copied(
        self, loop: Instruction, given: _Key, trip: tuple[int, ...]
    ) -> tuple[Missed, list[_Key]]:
        """Follows copies of the arrays that a loop changes. Returns their bytes, and the keys of its state."""
        moved = Missed()
        body, found = loop.attributes_as(WhileAttributes).body, list[_Key]()
        for number, leaf in enumerate(loop.shape.leaves()):
            found.append(given[number] if isinstance(given, list) else (given, number))
            if not forwards(body, number):
                for key in (found[number], (loop, number)):
                    more = self._touch(key, leaf.byte_size, leaf.byte_size, trip)
                    moved = moved.plus(more)
                found[number] = loop, number
        return moved, found

    def _trips(self, instruction: Instruction, state: _Key, trip: tuple[int, ...]) -> _Key:
        """Follows the trips of a loop from this state on."""
        loop = instruction.attributes_as(WhileAttributes)
        body, test = loop.body, loop.condition
        before, trips = self._slices, trips_of(instruction)
        for number in range(max(min(trips, _TRIPS), 1)):
            self._slices = 0
            self._run(test, {test.parameters[0]: state}, (*trip, number))
            state = self._run(body, {body.parameters[0]: state}, (*trip, number))
        if trips > _TRIPS:
            self._uses.touch((instruction, "other trips"), self._slices * (trips - _TRIPS))
        self._slices += before
        return state

    def _op(self, instruction: Instruction, given: list[_Key], trip: tuple[int, ...]) -> _Key:
        found = Missed()
        kept, key = overwritten(instruction), instruction
        if instruction.op.role is Role.CONSTANT or instruction.op.is_collective:
            return key
        size = written_of(instruction)
        for number, (operand, own, read) in enumerate(
            zip(instruction.operands, given, read_of_operands(instruction), strict=True)
        ):
            if number in kept and self._is_repeated(operand):
                size = instruction.shape.byte_size
            elif number in kept:
                key = own
            elif read and not isinstance(own, list):
                more = self._touch(own, read, operand.shape.byte_size, trip)
                found = found.plus(more)
        for number, wide in enumerate(widened_bytes(instruction.op, instruction.call)):
            for _ in ("written", "read"):
                more = self._touch(("widened", number), wide, wide, ())
                found = found.plus(more)
        more = self._touch(key, size, instruction.shape.byte_size, trip, self._arena(instruction))
        self.of[instruction] = found.plus(more)
        return key

    def _is_repeated(self, value: Instruction) -> bool:
        """Whether elements of a value are the same ones in memory, so that nothing can be written into it."""
        layout = self._view(value)
        return layout is not None and 0 in layout.strides

    def _touch(
        self, key: _Key, size: int, whole: int, trip: tuple[int, ...], most: float = float("inf")
    ) -> Missed:
        self.total += size
        if trip and size < whole:
            self._slices += size
            return self._uses.touch((key, trip), size)
        return self._uses.touch(key, size, most)

    def _arena(self, instruction: Instruction) -> float:
        """Returns the bytes of the arena that a result lies in; those of a program's results lie anywhere."""
        computation = instruction.parent
        if computation is None or instruction is computation.root:
            return float("inf")
        if computation.root.op.role is Role.TUPLE and computation.root in instruction.users:
            return float("inf")
        if computation not in self._arenas:
            self._arenas[computation] = max(live_bytes(list(computation), computation.root, {}))
        return self._arenas[computation]
