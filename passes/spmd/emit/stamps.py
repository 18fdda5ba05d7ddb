"""Stamps: ops that were emitted as one instruction on tiles, to be emitted alike for equal uses.

Layers are alike: most ops of a program differ from an earlier one only in their operands. Their operands have equal
shapes and tilings, so the decision, the local attributes and the local shape are the same, and are not found again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ....ir.graph.instruction import Instruction
from ....ir.ops.structure import constant_array
from ....ir.sharding.tiling import Tiling
from ...op_sharding.assignment import Choice
from .emitter import LocalValue, is_made_anywhere

Key = tuple[Hashable, ...]
_Stamps = list["Stamp | None"]
"""The stamps of the uses of one key: of those whose result does not stay partial, and of those whose does."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The first of equal uses that emit one instruction on the tiles of the operands, in their order.

    The instruction is that of `value`, which is resharded to the `wanted` tilings unless it `stays_partial`. With
    `stays` no use reshards its operands or its result. `is_reported` if each use may be reported. `repeats` if that
    instruction on other operands is all that a use needs: nothing is resharded or reported. `kind` is a number that
    values with other shapes, tilings or freedom do not have.
    """

    choice: Choice
    wanted: list[Tiling]
    value: LocalValue
    may_stay_partial: bool
    stays_partial: bool
    stays: bool
    is_reported: bool
    repeats: bool
    kind: int


class Values(dict[Instruction, list[LocalValue]]):
    """The leaves of the values of one computation. Those of repeats are made when something asks for them: most repeats
    are used by other repeats alone, which need no more than their instructions.
    """

    def __init__(self, like: Callable[[Stamp, Instruction, Instruction], LocalValue]) -> None:
        """`like` returns the value of an instruction, given its stamp and its tile."""
        super().__init__()
        self._like = like
        self._tiles: dict[Instruction, Instruction] = {}  # of values of one leaf
        self._stamps: dict[Instruction, Stamp] = {}  # of repeats

    def __setitem__(self, instruction: Instruction, leaves: list[LocalValue]) -> None:
        super().__setitem__(instruction, leaves)
        if len(leaves) == 1:
            self._tiles[instruction] = leaves[0].instruction

    def __missing__(self, instruction: Instruction) -> list[LocalValue]:
        leaves = [self._like(self._stamps[instruction], self._tiles[instruction], instruction)]
        super().__setitem__(instruction, leaves)
        return leaves

    def tilings(self, instruction: Instruction) -> list[Tiling] | None:
        """Returns how the leaves of a value lie by now, None if it has not been emitted."""
        is_made = instruction in self or instruction in self._stamps
        return [leaf.tiling for leaf in self[instruction]] if is_made else None

    def repeated(self, instruction: Instruction, stamp: Stamp) -> Instruction:
        """Returns the instruction, in no computation yet, of an op whose stamp `repeats`, and notes its value."""
        tiles, like = self._tiles, stamp.value.instruction
        try:
            operands = list(map(tiles.__getitem__, instruction.operands))
        except KeyError:
            operands = [leaf.instruction for operand in instruction.operands for leaf in self[operand]]
        made = like.repeated(instruction.name, operands, like.attributes, instruction.location, instruction.metadata)
        tiles[instruction], self._stamps[instruction] = made, stamp
        return made


class Stamps:
    """The stamps of one computation, by all that they depend on."""

    def __init__(self, values: Values) -> None:
        """`values` has the leaves of all operands of the instructions asked about."""
        self._values = values
        self._stamps: dict[Hashable, _Stamps] = {}
        self._same: dict[Key, _Stamps] = {}  # by the identities of the parts of a key, which the program keeps
        self._kinds: dict[Hashable, int] = {}
        self._same_kinds: dict[Hashable, int] = {}  # by the identities of their parts, which `values` keep
        self._kind_of: dict[Instruction, int] = {}

    def find(self, instruction: Instruction, stays_partial: Callable[[Instruction], bool]) -> Stamp | None:
        """Returns the stamp of equal uses of an op, if there is one. `stays_partial` says whether a value that may stay
        partial does.

        Such uses have equal attributes, shapes and shardings, and the present values of the operands are divided alike.
        """
        if instruction.frontend_attributes:
            return None
        try:
            same = instruction.identities, *map(self._kind_of.__getitem__, instruction.operands)
        except KeyError:
            same = self._identities(instruction)
        found = self._same.get(same)
        if found is None:
            found = self._stamps.get(self._key(instruction))
            if found is None:
                return None
            self._same[same] = found
        first = found[0] or found[1]
        if first is None or not first.may_stay_partial:
            return first
        return found[stays_partial(instruction)]

    def repeated(self, instruction: Instruction, stamp: Stamp) -> None:
        """Notes that the value of an instruction is like that of a stamp which `stays`."""
        self._kind_of[instruction] = stamp.kind

    def note(
        self, instruction: Instruction, choice: Choice, wanted: list[Tiling], operands: Sequence[LocalValue],
        placed: Sequence[LocalValue], emitted: Sequence[Instruction], values: Sequence[LocalValue],
        results: Sequence[LocalValue], is_reported: bool,
    ) -> None:  # fmt: skip
        """Records the use of an op, if it is emitted as itself on the tiles of the operands `placed` alone. `results`
        are its `values` after resharding. `is_reported` if each use may be reported.
        """
        form, use = choice.op.form, choice.op.use
        if instruction.frontend_attributes or instruction.op.is_collective:
            return
        if len(emitted) != 1 or len(values) != 1 or (form is not None and not form.by_use):
            return
        (made,), (value,) = emitted, values
        if value.instruction is made and _is_on_tiles(made, instruction, [v.instruction for v in placed]):
            stays = results[0] is value and all(a is b for a, b in zip(operands, placed, strict=True))
            kind = self._kind(instruction, results)
            repeats = stays and not is_reported
            stamp = Stamp(
                choice, wanted, value, use.may_stay_partial, use.stays_partial, stays, is_reported, repeats, kind)
            found = self._stamps.setdefault(self._key(instruction), [None, None])
            found[use.stays_partial] = stamp
            self._same[self._identities(instruction)] = found

    def _key(self, instruction: Instruction) -> Key:
        kinds = [self._kind_of[operand] for operand in instruction.operands]
        attributes, config = instruction.attributes, instruction.backend_config
        return instruction.op, attributes, config, instruction.shape, instruction.sharding, *kinds

    def _identities(self, instruction: Instruction) -> Key:
        """Returns a key that unequal uses do not share, and most equal ones do: readers make one object of equal
        attributes, and of equal shapes.
        """
        kinds = self._kind_of
        for operand in instruction.operands:
            if operand not in kinds:
                kinds[operand] = self._kind(operand, self._values[operand])
        return instruction.identities, *map(kinds.__getitem__, instruction.operands)

    def _kind(self, instruction: Instruction, present: Sequence[LocalValue]) -> int:
        """Returns a number that only values with equal shapes, tilings and freedom share, and equal scalar constants.
        """
        shape = instruction.shape
        leaves = [(id(v.instruction.shape), id(v.tiling), v.monoid, *_freedom(v), _number(v)) for v in present]
        same = id(shape), *leaves
        found = self._same_kinds.get(same)
        if found is None:
            parts = [(v.instruction.shape, v.tiling, v.monoid, *_freedom(v), _number(v)) for v in present]
            found = self._same_kinds[same] = self._kinds.setdefault((shape, *parts), len(self._kinds))
        return found


def _freedom(value: LocalValue) -> tuple[bool, bool, int, bool]:
    """Returns how far a value can be computed again instead of being sent."""
    return is_made_anywhere(value), value.rematerialize is None, value.depth, value.from_replicated


def _number(value: LocalValue) -> bytes | None:
    """Returns the bytes of a scalar constant, None for other values."""
    found = None if value.shape.rank else constant_array(value.instruction)
    return None if found is None else found.tobytes()


def _is_on_tiles(made: Instruction, instruction: Instruction, tiles: list[Instruction]) -> bool:
    """Whether an instruction is the op of another one, under its name, on these operands."""
    same = len(made.operands) == len(tiles) and all(a is b for a, b in zip(made.operands, tiles, strict=True))
    return same and made.op is instruction.op and made.name.startswith(instruction.name)
