"""Stamps: ops that were emitted as one instruction on tiles, to be emitted alike for equal uses.

Layers are alike: most ops of a program differ from an earlier one only in their operands. Their operands have equal
shapes and tilings, so the decision, the local attributes and the local shape are the same, and are not found again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import Attributes
from ....ir.graph.instruction import Instruction
from ....ir.sharding.tiling import Tiling
from ....ir.strings import BracedText
from ....ir.types.shape import Shape
from ...op_sharding.assignment import Choice
from .emitter import Emitter, LocalValue, is_made_anywhere


@dataclass(frozen=True, slots=True)
class Stamp:
    """One instruction on the tiles of the operands, in their order: its attributes and local shape.

    The result has a `tiling` and a `monoid`, and is resharded to the `wanted` tilings. It `is_free` if any device can
    compute any tile of it (see `rematerialize`).
    """

    choice: Choice
    wanted: list[Tiling]
    attributes: Attributes
    backend_config: str | BracedText | None
    shape: Shape
    tiling: Tiling
    monoid: Monoid | None
    is_free: bool

    @property
    def may_stay_partial(self) -> bool:
        return self.choice.op.use.may_stay_partial

    @property
    def stays_partial(self) -> bool:
        """Whether the result of the use was left partial, which depends on the ops after it."""
        return self.choice.op.use.stays_partial

    def emit(self, emitter: Emitter, instruction: Instruction, operands: Sequence[LocalValue]) -> LocalValue:
        """Emits the instruction for an equal use. `operands` are in the tilings of the choice."""
        tiles = [v.instruction for v in operands]
        made = emitter.add(instruction.op, tiles, self.attributes, self.shape, name=instruction.name)
        if self.backend_config is not None:
            made.backend_config = self.backend_config
        return LocalValue(made, instruction.shape, self.tiling, self.monoid)


class Stamps:
    """The stamps of one computation, by all that they depend on."""

    def __init__(self) -> None:
        self._stamps: dict[Hashable, Stamp] = {}
        self._kinds: dict[Hashable, int] = {}
        self._same_kinds: dict[Hashable, int] = {}  # by the identities of their parts, which `values` keep
        self._kind_of: dict[Instruction, int] = {}

    def find(self, key: Hashable | None) -> Stamp | None:
        """Returns the stamp of equal uses, if there is one."""
        return self._stamps.get(key)

    def note(
        self, key: Hashable, instruction: Instruction, choice: Choice, wanted: list[Tiling],
        placed: Sequence[LocalValue], emitted: Sequence[Instruction], values: Sequence[LocalValue], is_free: bool,
    ) -> None:  # fmt: skip
        """Records the instruction emitted for a use, if it is the op itself on the tiles of the operands `placed`."""
        form = choice.op.form
        if len(emitted) != 1 or len(values) != 1 or (form is not None and not form.by_use):
            return
        (made,), (value,) = emitted, values
        if value.instruction is made and _is_on_tiles(made, instruction, [v.instruction for v in placed]):
            self._stamps[key] = Stamp(
                choice, wanted, made.attributes, made.backend_config, made.shape, value.tiling, value.monoid, is_free
            )

    def key(self, instruction: Instruction, values: dict[Instruction, list[LocalValue]]) -> Hashable | None:
        """Returns a key that only equal uses of an op have; None for uses that have no stamps.

        The uses are of the same op with equal attributes, shapes and shardings, and the present values of the operands
        are divided alike.
        """
        op = instruction.op
        if not instruction.operands or op.is_collective or instruction.frontend_attributes:
            return None
        kinds = [self._kind(operand, values) for operand in instruction.operands]
        return op, instruction.attributes, instruction.backend_config, instruction.shape, instruction.sharding, *kinds

    def _kind(self, operand: Instruction, values: dict[Instruction, list[LocalValue]]) -> int:
        """Returns a number that only values with equal shapes and tilings share."""
        found = self._kind_of.get(operand)
        if found is None:
            present, shape = values[operand], operand.shape
            leaves = [(id(v.instruction.shape), id(v.tiling), v.monoid, *_freedom(v)) for v in present]
            same = id(shape), *leaves
            found = self._same_kinds.get(same)
            if found is None:
                parts = [(v.instruction.shape, v.tiling, v.monoid, *_freedom(v)) for v in present]
                found = self._same_kinds[same] = self._kinds.setdefault((shape, *parts), len(self._kinds))
            self._kind_of[operand] = found
        return found


def _freedom(value: LocalValue) -> tuple[bool, bool, bool]:
    """Returns how far a value can be computed again instead of being sent."""
    return is_made_anywhere(value), value.rematerialize is None, value.from_replicated


def _is_on_tiles(made: Instruction, instruction: Instruction, tiles: list[Instruction]) -> bool:
    """Whether an instruction is the op of another one, under its name, on these operands."""
    same = len(made.operands) == len(tiles) and all(a is b for a, b in zip(made.operands, tiles, strict=True))
    return same and made.op is instruction.op and made.name.startswith(instruction.name)
