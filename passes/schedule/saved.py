"""Recomputes in a loop what an earlier loop saves for it, or keeps that on the host.

    before:  forward:   s' = dynamic-update-slice(s, f(x), i)      backward:  y = dynamic-slice(s, j)
    after:   forward:   (s is gone)                                backward:  y = f(dynamic-slice(saved x, j))

The loop over a model's layers saves values of each trip for the loop of their gradients, each as a *stack* with one
entry per trip. An entry can be recomputed from entries of other stacks, which the second loop reads at the same index,
from arrays that both loops leave unchanged, and from their slices at that index, such as the weights of a layer (Chen
et al., "Training deep nets with sublinear memory cost", 2016). Where the machine has a link to its host, a stack may
also stay there (`on_host`), which takes what its entries need beyond the computation of a trip. Stacks that free most
bytes per second go first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...cost.machine import SECOND
from ...cost.seconds import Clock
from ...ir.brief import brief
from ...ir.graph.clone import clone_instruction
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.control import WhileAttributes
from ...ir.ops.entries import is_reshape, read_at, written_at
from ...ir.ops.structure import element_index
from ...ir.tools.control_flow import computations_run
from ...ir.tools.trip_count import counter
from ..cleanup.dce import sweep
from ..cleanup.dead_loop_state import remove_dead_state
from ..cleanup.loop_state import editable_loops, elements
from ..cleanup.tuple_elements import bypass_tuples
from .on_host import ENTRIES_ON_DEVICE, can_start_on_host, keep_on_host
from .regather import divert, readers_of
from .roles import can_repeat

_LONGEST = 200  # instructions that recompute one entry


def free_saved(module: Module, clock: Clock, excess: float, offload: bool = False, if_faster: bool = False) -> int:
    """Recomputes entries of stacks, in place, or with `offload` keeps them on the host, until this many bytes of stacks
    are gone. Returns the number of stacks. `clock` has the times of the program before. With `if_faster`, only entries
    are recomputed that take longer to be saved and read.
    """
    count = 0
    edited: set[Computation] = set()
    for computation in computations_run(module):
        loops = [i for i in editable_loops(module, computation)
                 if "known_induction_variable" not in i.call.config]  # its number would not stay
        for loop in loops:
            body = loop.attributes_as(WhileAttributes).body
            bypass_tuples(body)
            sweep(body)
        pairs = [_Pair.of(a, b) for n, a in enumerate(loops) for b in loops[n + 1 :]]
        found: list[_Again | _OnHost] = []
        for pair in filter(None, pairs):
            again = (one for one in pair.candidates(clock) if one.seconds < one.saved or not if_faster)
            found += [*again, *(pair.movable(clock) if offload else ())]
        while found and excess > 0:
            best = min(found, key=lambda c: c.rank)
            found.remove(best)
            if best.pair.first not in edited and best.take(module):  # else its steps are old
                edited.add(best.pair.second)
                excess -= best.size
                count += 1
    if count:
        remove_dead_state(module)
    return count


@brief
@dataclass(frozen=True, slots=True)
class _Again:
    """An entry to recompute: what the first loop's body writes into the stack, the slices that read it in the second
    one, the instructions of the first body that compute it, the stacks these read, and the seconds in which it is
    computed again, or is saved and read.
    """

    pair: _Pair
    entry: Instruction
    slices: list[Instruction]
    steps: list[Instruction]
    needed: frozenset[Instruction]
    seconds: float
    saved: float
    size: int

    @property
    def rank(self) -> float:
        """Seconds per byte; less is better."""
        return self.seconds / self.size

    def take(self, module: Module) -> bool:
        return self.pair.take(self)


@brief
@dataclass(frozen=True, slots=True)
class _OnHost:
    """An entry to keep on the host, and the seconds of its move there or back in each trip."""

    pair: _Pair
    entry: Instruction
    seconds: float
    size: int

    @property
    def rank(self) -> float:
        """Seconds per byte by which both moves take longer than the trips in which nothing else moves."""
        late = sum(max(self.seconds - left, 0.0) for left in self.pair.left)
        return self.pair.trips * late / self.size

    def take(self, module: Module) -> bool:
        return self.pair.take_to_host(self, module)


@brief
@dataclass(slots=True)
class _Pair:
    """Two loops of which the first saves stacks for the second. `slices` are those that the second body takes of each
    stack, all at index `at`, by the entry that the first body writes. `same` maps unchanged state of the first body to
    the second's. `whole` are the entries whose stacks nothing else reads. `kept` stacks are read by recomputed entries,
    `gone` ones are recomputed. `numbers` are those of the stacks in both states; `left` are the seconds of a trip of
    each loop in which nothing moves to or from the host.
    """

    loops: tuple[Instruction, Instruction]
    first: Computation
    second: Computation
    trips: int
    index: Instruction
    at: Instruction
    slices: dict[Instruction, list[Instruction]]
    same: dict[Instruction, Instruction]
    whole: list[Instruction]
    sizes: dict[Instruction, int]
    kept: set[Instruction] = field(default_factory=set[Instruction])
    gone: set[Instruction] = field(default_factory=set[Instruction])
    numbers: dict[Instruction, tuple[int, int]] = field(default_factory=dict[Instruction, "tuple[int, int]"])
    left: list[float] = field(default_factory=list[float])

    @staticmethod
    def of(writer: Instruction, reader: Instruction) -> _Pair | None:
        """Returns the stacks and arrays that two loops share; None if the second reads no stacks of the first."""
        found = counter(writer)
        first, second = (i.attributes_as(WhileAttributes).body for i in (writer, reader))
        if found is None or found.start or found.step != 1 or not found.trips:
            return None
        passed = dict(_passed(writer, reader, second))
        index = next(iter(elements(first.parameters[0], found.index)), None)
        if index is None:
            return None
        pair = _Pair((writer, reader), first, second, found.trips, index, index, {}, {}, [], {})
        stacks = {n: entry for n, entry in enumerate(map(pair._entry, first.root.operands)) if entry is not None}
        starts: dict[Instruction, int] = {}
        for number, inside in passed.items():
            for at in filter(None, map(read_at, inside.users if number in stacks else ())):
                starts[at] = starts.get(at, 0) + 1
        if not starts:
            return None
        pair.at = max(starts, key=lambda i: starts[i])
        for number, inside in passed.items():
            if number not in stacks:
                pair._note_same(number, inside)
                continue
            taken = [u for u in inside.users if read_at(u) is pair.at]
            if taken:
                entry = stacks[number]
                pair.slices[entry] = taken
                pair.sizes[entry] = inside.shape.device_bytes
                pair.numbers[entry] = number, element_index(inside) or 0
                others = set(inside.users).difference(taken) - {second.root}
                if not others and entry not in pair.whole and _is_read_once(writer, reader, number):
                    pair.whole.append(entry)
        return pair

    def _note_same(self, number: int, inside: Instruction) -> None:
        for own in elements(self.first.parameters[0], number):
            if self.first.root.operands[number] is own:
                self.same[own] = inside

    def _entry(self, result: Instruction) -> Instruction | None:
        """Returns the entry that a trip writes into the stack that the body returns here; None for other state."""
        if written_at(result) is not self.index or list(result.users) != [self.first.root]:
            return None
        state, entry = result.operands[:2]
        number = element_index(state)
        if number is None or state.operands[0] is not self.first.parameters[0] or list(state.users) != [result]:
            return None
        return entry if self.first.root.operands[number] is result and state.shape.dims[0] == self.trips else None

    def candidates(self, clock: Clock) -> Iterator[_Again]:
        """Yields the entries that can be recomputed."""
        for entry in self.whole:
            steps = self._steps(entry) if self.sizes[entry] else None
            if steps is not None:
                seconds = self.trips * _of_a_kernel(steps, clock)
                needed = frozenset(n for s in steps for o in s.operands if (n := self._saved(o)) not in (None, entry))
                moves = (*(u for u in entry.users if written_at(u) is self.index), *self.slices[entry])
                saved = self.trips * sum(clock.alone(move).total for move in moves)
                yield _Again(self, entry, self.slices[entry], steps, needed, seconds, saved, self.sizes[entry])

    def movable(self, clock: Clock) -> Iterator[_OnHost]:
        """Yields the entries that can lie on the host."""
        self.left = [clock.serial(c).total for c in (self.first, self.second)]
        for entry in self.whole:
            one = self.sizes[entry] // self.trips
            freed = self.sizes[entry] - ENTRIES_ON_DEVICE * one
            if freed > 0 and can_start_on_host(self.loops[0], self.numbers[entry][0]):
                yield _OnHost(self, entry, clock.moved(one), freed)

    def take_to_host(self, one: _OnHost, module: Module) -> bool:
        """Keeps an entry on the host, if it was not recomputed before."""
        if one.entry in self.gone:
            return False
        self.gone.add(one.entry)
        self.left = [left - one.seconds for left in self.left]
        numbers, slices = self.numbers[one.entry], self.slices[one.entry]
        self.slices[one.entry] = keep_on_host(module, *self.loops, numbers, slices)
        return True

    def _saved(self, value: Instruction) -> Instruction | None:
        """Returns the entry that is a value of the first body, perhaps in another shape; None if none is saved."""
        if value in self.slices:
            return value
        return next((u for u in value.users if u in self.slices and is_reshape(u)), None)

    def _steps(self, entry: Instruction) -> list[Instruction] | None:
        """Returns the instructions of the first body that compute an entry from values of the second one, in order.
        Returns None if the second has too little, or if they are too many.
        """
        found, stack = {entry}, [entry]
        while stack:
            value = stack.pop()
            for number, operand in enumerate(value.operands):
                known = operand in found or operand in self.same or self._saved(operand) not in (None, entry)
                if known or (number == 1 and read_at(value) is self.index and self._fits(value)):
                    continue
                if (operand.op.role is not Role.CONSTANT and not can_repeat(operand)) or len(found) == _LONGEST:
                    return None
                found.add(operand)
                stack.append(operand)
        return [i for i in self.first if i in found]

    def _fits(self, read: Instruction) -> bool:
        """Whether an array that is read by entries has one for each trip."""
        return read.operands[0].shape.dims[0] == self.trips

    def take(self, again: _Again) -> bool:
        """Recomputes an entry in the second body, just before its first reader; whether that fits what was done before.
        """
        if again.entry in self.kept | self.gone or not self.gone.isdisjoint(again.needed):
            return False  # another one needs it, or it needs another one that is not saved any more
        self.kept |= again.needed
        self.gone.add(again.entry)
        place = {i: n for n, i in enumerate(self.second)}
        first = min((r for s in again.slices for r in readers_of(s)), key=place.__getitem__)
        late = {i for i, n in place.items() if n >= place[first]}
        copies: dict[Instruction, Instruction] = {}
        with self.second.at(before=first):
            for step in again.steps:
                operands = [self._present(o, copies, late) for o in step.operands]
                copies[step] = clone_instruction(self.second, step, operands, lambda called: called)
            for old in again.slices:
                divert(self.second, old, copies[again.entry], readers_of(old))
                self.second.remove(old)
        return True

    def _present(
        self, value: Instruction, copies: dict[Instruction, Instruction], late: set[Instruction]
    ) -> Instruction:
        """Returns a value of the first body in the second one, before `late` instructions: known already, unchanged
        state, the index, or an entry of a stack.
        """
        if value not in copies:
            entry = self._saved(value)
            if value in self.same or value is self.index:
                copies[value] = self._early(self.same.get(value, self.at), late)
            elif entry is value:
                copies[value] = self._early(self.slices[value][0], late)
            else:
                assert entry is not None
                stored = self._present(entry, copies, late)
                copies[value] = self.second.add("reshape", (stored,), shape=value.shape, like=stored)
        return copies[value]

    def _early(self, value: Instruction, late: set[Instruction]) -> Instruction:
        """Returns a value of the second body, made again with its operands if it is late."""
        if value not in late:
            return value
        operands = [self._early(o, late) for o in value.operands]
        return clone_instruction(self.second, value, operands, lambda called: called)


def _of_a_kernel(steps: Sequence[Instruction], clock: Clock) -> float:
    """Returns the seconds of steps that are computed again. They need a launch, even if the nest that they are taken
    from has none besides that of a value that stays.
    """
    parts = [clock.alone(step) for step in steps]
    launches = sum(part.launches for part in parts)
    return sum(part.total for part in parts) - launches + max(launches, clock.machine.launch / SECOND)


def _passed(writer: Instruction, reader: Instruction, second: Computation) -> Iterator[tuple[int, Instruction]]:
    """Yields the elements of the first loop's state that the second gets and leaves unchanged, with the value inside of
    the second one: results of the first, and arrays that both get.
    """
    (given,), (start,) = writer.operands, reader.operands
    if start.op.role is not Role.TUPLE or given.op.role is not Role.TUPLE:
        return
    first = writer.attributes_as(WhileAttributes).body
    known: dict[Instruction, Instruction] = {}
    for place, value in enumerate(start.operands):
        inside = elements(second.parameters[0], place)
        if inside and second.root.operands[place] in inside:
            known.setdefault(value, second.root.operands[place])
    for number in range(len(writer.shape.elements)):
        values = elements(writer, number)
        unchanged = first.root.operands[number] in elements(first.parameters[0], number)
        values += [given.operands[number]] if unchanged else []
        inside = next((known[v] for v in values if v in known), None)
        if inside is not None:
            yield number, inside


def _is_read_once(writer: Instruction, reader: Instruction, number: int) -> bool:
    """Whether only one loop gets an element of another's result, as one element of its state, and nothing gets it from
    there.
    """
    (start,) = reader.operands
    users = [u for e in elements(writer, number) for u in e.users]
    if users != [start] or list(start.users) != [reader]:
        return False
    place = next(n for n, value in enumerate(start.operands) if value in elements(writer, number))
    return not any(e.users for e in elements(reader, place))

