"""Reports contractions that several devices compute redundantly though they could divide them, with both costs.

Repeating work can be the fastest way, since it sends less. That depends on the machine, and the user should know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ....cost.sizes import timed
from ....cost.transfer import SECOND
from ....cost.work import REPEATED, is_contraction
from ....ir.brief import brief
from ....ir.diagnostics import Diagnostics
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.graph.stack_frames import named_with_source
from ....ir.sharding.digit import Digits, product
from ....ir.tools.trip_count import runs_of_computations
from ...op_sharding.assignment import Assignment, Choice, OpSharding
from ...op_sharding.choose import without_repetition
from ...op_sharding.costs import cost, idle_digits, points, received_bytes

_LEAST = 0.01  # part of the multiply-adds of the program that is worth a remark
_NEAR, _NOTHING = 0.01, 1e-9  # part of its time, and seconds, by which no dot is faster or slower in earnest


@dataclass(frozen=True, slots=True)
class _Contraction:
    """A contraction, how it is divided, and the digits that divide nothing of it."""

    instruction: Instruction
    op: OpSharding
    assignment: Assignment
    unused: Digits

    @property
    def multiply_adds(self) -> int:
        """Those of one device."""
        return points(self.op, self.assignment)

    def divided(self) -> Assignment | None:
        """Returns the fastest assignment that also uses unused digits, if there is one."""
        found = [a for a in without_repetition(self.op, self.assignment) if points(self.op, a) < self.multiply_adds]
        return min(found, key=lambda a: cost(self.op, a), default=None)


@brief
@dataclass(frozen=True, slots=True)
class RepeatedWork:
    """Collects the contractions of a program while it is partitioned."""

    _found: list[_Contraction] = field(default_factory=list[_Contraction])
    _unused: dict[Choice, Digits | None] = field(default_factory=dict[Choice, "Digits | None"])

    def note(self, instruction: Instruction, choice: Choice, emitted: Iterable[Instruction]) -> None:
        """Records how an op is divided, if it is a contraction; marks its emitted instructions if work is repeated."""
        op, assignment = choice.op, choice.assignment
        if choice not in self._unused:
            self._unused[choice] = idle_digits(op, assignment) if op.is_contraction else None
        unused = self._unused[choice]
        if unused is None:
            return
        self._found.append(_Contraction(instruction, op, assignment, unused))
        for made in filter(is_contraction, emitted if unused else ()):
            made.frontend_attributes = {**made.frontend_attributes, REPEATED: str(product(unused))}

    def report(self, module: Module, diagnostics: Diagnostics) -> None:
        """Reports contractions of this SHARDED program that repeat more than a per cent of its multiply-adds."""
        if not diagnostics.remarks:
            return
        runs = runs_of_computations(module)
        work = [c.multiply_adds * runs.get(c.instruction.parent, 1) if c.instruction.parent else 0 for c in self._found]
        for c, mine in zip(self._found, work, strict=True):
            if c.unused and mine * (1 - 1 / product(c.unused)) > _LEAST * sum(work):
                _report(c, mine / sum(work), diagnostics)


def _report(c: _Contraction, share: float, diagnostics: Diagnostics) -> None:
    other = c.divided()
    if other is None:
        return
    now, then = cost(c.op, c.assignment) / SECOND, cost(c.op, other) / SECOND
    differs = abs(then - now) > max(_NEAR * now, _NOTHING)
    told = f"is {timed(abs(then - now))} {'slower' if then > now else 'faster'}" if differs else "takes as long"
    diagnostics.remark(
        f"{named_with_source(c.instruction)} is computed alike by groups of {product(c.unused)} devices: "
        f"{c.multiply_adds:,} multiply-adds on each, {share:.0%} of the program's, for {_bytes(c, c.assignment)}; "
        f"divided {points(c.op, other):,} for {_bytes(c, other)}", c.instruction.location, category="work",
        cost=c.multiply_adds * (1 - 1 / product(c.unused)),
        help=f"dividing it {told} by the times of this machine: "
             "--machine describes another, and an annotation of its result divides it anyway")  # fmt: skip


def _bytes(c: _Contraction, assignment: Assignment) -> str:
    return f"{round(received_bytes(c.op, assignment)):,} bytes received"
