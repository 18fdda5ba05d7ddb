"""The base of rewrites of collectives: the program they analyse, their edits, and their remarks.

A rewrite first matches (a match, or the reason against one), then emits. New instructions are placed
before or after an existing one (`Computation.at`), so that collectives start where the replaced ones did.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast

from ml_dtypes import finfo

from ....cost.formulas import Kind, received
from ....cost.groups import group_digits
from ....cost.machine import SECOND
from ....cost.sizes import timed
from ....cost.uses import overwritten
from ....ir.analysis.device_agreement import DeviceAgreement
from ....ir.analysis.per_device import PerDevice
from ....ir.brief import brief
from ....ir.diagnostics import InternalError, fail
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.graph.monoid import reduction_monoid
from ....ir.ops.collective_groups import CollectiveAttributes, groups_of
from ....ir.ops.conversion import Convert, Copy
from ....ir.ops.shaping import Reshape
from ....ir.sharding.digit import Digits
from ....ir.sharding.replica_groups import ExplicitGroups, Groups
from ....ir.tools.control_flow import computations_run
from ....ir.tools.process_grid import ProcessGrid
from ....ir.tools.spmd import is_per_device
from ....ir.tools.trip_count import uncounted_loops
from ....ir.types.element_type import ElementType
from ....ir.types.shape import array
from ...base import Pass, PassContext, refuse_starts
from .groups import GroupWriter

T = TypeVar("T")


@brief
@dataclass
class RewriteProgram:
    """A per-device program under rewrite, and the state that its edits share."""

    module: Module
    context: PassContext
    per_device: PerDevice = field(init=False)
    grouping: GroupWriter = field(init=False)
    agreement: DeviceAgreement | None = None  # stays right where equal values replace others
    _reducers: dict[tuple[Monoid, ElementType], Computation] = field(
        default_factory=dict[tuple[Monoid, ElementType], Computation]
    )
    _known: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])

    def __post_init__(self) -> None:
        self.per_device = PerDevice(ProcessGrid.of(self.module))
        self.grouping = GroupWriter(self.module)

    @property
    def devices(self) -> int:
        return self.module.devices

    def reducer(self, monoid: Monoid, element: ElementType) -> Computation:
        """Returns a computation that combines two scalars of this type, one per module and type."""
        key = monoid, element
        if key not in self._reducers:
            made = self.module.new_computation(f"{monoid.value}.{element.name}")
            made.build(monoid.value, *(made.parameter(n, array(element)) for n in range(2)))
            self._reducers[key] = made
        return self._reducers[key]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value of a key, made for the first that asks."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def fresh_channel(self, attributes: CollectiveAttributes) -> int | None:
        """Returns a channel for a copy of a collective with these attributes; None if it has none."""
        return None if attributes.channel_id is None else self.grouping.channel()

    def time(self, kind: Kind, whole: float, groups: Groups) -> float:
        """Returns the picoseconds of a collective of `whole` bytes, the larger of operand and result."""
        digits = self.once(("digits", groups), lambda: _digits(groups, self.devices))
        amount = received(kind, whole, max(map(len, groups)))
        return self.context.machine.collective(kind, digits).time(amount)

    def is_equal(self, value: Instruction, groups: Groups) -> bool:
        """Whether an array is bitwise equal on all members of each group."""
        if self.agreement is None or value not in self.agreement:
            self.agreement = DeviceAgreement(self.module)
        return self.agreement.holds(value, groups)

    def remark(self, instruction: Instruction, text: str, help: str | None = None) -> None:
        """Reports about an instruction."""
        self.context.diagnostics.remark(f"{instruction.opcode} {instruction.name}: {text}", instruction.location, help)


def _digits(groups: Groups, devices: int) -> Digits | None:
    """Returns the digits in which the members of a group differ, whatever their order; None for irregular groups."""
    return group_digits(ExplicitGroups(tuple(sorted(tuple(sorted(g)) for g in groups))), devices)


M = TypeVar("M")


class Rewrite(Pass):
    """Base of passes that rewrite the collectives of per-device programs, Hloom's or those of another compiler. A loop
    must not lose its trip count: times would be wrong. It is an InternalError where passes are verified.
    """

    def run(self, module: Module, context: PassContext) -> bool:
        if not is_per_device(module):
            fail(f"pass {self.name} needs the program of each device, {module.name} is {module.stage.value}",
                 help="propagate,spmd-partition make it")
        refuse_starts(module, self.name)
        program = RewriteProgram(module, context)
        changed, uncounted = False, len(uncounted_loops(module))
        for computation in reversed(computations_run(module)):  # inner loops first
            if computation.has_control_dependencies:
                text = f"{self.name}: {computation.name} has control dependencies and is left as it is"
                context.diagnostics.remark(text, computation.location)
                continue
            changed |= self.rewrite(program, computation)
        if context.verify == "each" and changed and len(lost := uncounted_loops(module)) > uncounted:
            raise InternalError(f"left the trips of {lost[-1].name} unknown", f"pass {self.name}")
        return changed

    @abstractmethod
    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        """Edits one computation that control flow runs. Returns whether it changed."""


class MatchingRewrite(Rewrite, Generic[M]):
    """Base of rewrites that match one instruction at a time. `stays` begins the remark on one left unchanged."""

    stays: ClassVar[str]

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        edits, changed = Edits(computation), False
        for instruction in list(computation):
            found = self.match(program, instruction)
            if isinstance(found, str):
                program.remark(instruction, f"{self.stays}: {found}")
            elif found is not None:
                self.emit(program, edits, instruction, found)
                changed = True
        if changed:
            edits.finish()
        return changed

    @abstractmethod
    def match(self, program: RewriteProgram, instruction: Instruction) -> M | str | None:
        """Returns the match, the reason against one, or None for instructions that the rewrite is not about."""

    @abstractmethod
    def emit(self, program: RewriteProgram, edits: Edits, instruction: Instruction, found: M) -> None:
        """Emits the replacement of a match."""


class Edits:
    """Replaces values of one computation, and removes those that end up without uses."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self._replaced: list[Instruction] = []

    def replace(self, old: Instruction, new: Instruction) -> None:
        """Replaces the uses of `old` by `new`, which takes over its annotations and its place as the root."""
        if old is self.computation.root:
            new.sharding, new.shardy = old.sharding, old.shardy
        self.computation.replace_all_uses(old, new)
        self._replaced.append(old)

    def unused(self, values: Iterable[Instruction]) -> None:
        """Marks values that `finish` removes if they are unused."""
        self._replaced += values

    def finish(self) -> None:
        """Sorts the computation, and removes replaced values without uses."""
        self.computation.sort()
        remove_unused(self.computation, self._replaced)


def remove_unused(computation: Computation, values: Iterable[Instruction]) -> None:
    """Removes unused values, and operands that only they used. Parameters and effects stay."""
    stack = list(values)
    while stack:
        value = stack.pop()
        gone = value.parent is not computation
        if gone or value.users or value is computation.root or value.has_effect() or _is_parameter(value):
            continue
        operands = list(dict.fromkeys(value.operands))
        computation.remove(value)
        stack += operands


def _is_parameter(value: Instruction) -> bool:
    return value in value.parent.parameters if value.parent is not None and not value.operands else False


def is_plain_collective(instruction: Instruction) -> bool:
    """Whether a collective in groups has one operand and one array as its result, and no annotation."""
    return (
        groups_of(instruction) is not None and len(instruction.operands) == 1
        and instruction.shape.is_array and instruction.annotation is None and not instruction.shape.is_dynamic
    )  # fmt: skip


def keeps_order(move: Instruction) -> bool:
    """Whether an instruction is a copy or a reshape."""
    return isinstance(move.op, Copy | Reshape)


def is_conversion(value: Instruction) -> bool:
    return isinstance(value.op, Convert)


def widens_floats(conversion: Instruction) -> bool:
    """Whether an instruction converts floats to a type that holds all of them."""
    narrow, wide = conversion.operands[0].shape.element, conversion.shape.element
    if not is_conversion(conversion) or not (narrow.is_float and wide.is_float):
        return False
    small, large = (cast(Any, finfo(e.numpy)) for e in (narrow, wide))
    return bool(small.nmant <= large.nmant and small.maxexp <= large.maxexp and small.minexp >= large.minexp)


def only_user(value: Instruction) -> Instruction | None:
    """Returns the single instruction that reads a value, once; None if there are more or none, or it is the root."""
    if len(value.users) != 1 or (value.parent is not None and value is value.parent.root):
        return None
    (user, count), = value.users.items()
    return user if count == 1 else None


def adds_in_place(value: Instruction) -> bool:
    """Whether an instruction is a scatter that adds its updates to its first operand."""
    reducer: Computation | None = getattr(value.attributes, "to_apply", None)
    return reducer is not None and 0 in overwritten(value) and reduction_monoid(reducer) is Monoid.ADD


def writes_in_place(value: Instruction) -> bool:
    """Whether an instruction writes a slice into its first operand, as a dynamic-update-slice does."""
    return 0 in overwritten(value) and not hasattr(value.attributes, "to_apply")


def amount(size: float) -> str:
    """Returns bytes as text, `12,288 bytes`."""
    return f"{round(size):,} byte{'s' * (round(size) != 1)}"


def time_text(picoseconds: float) -> str:
    """Returns a cost as text, `1.5 us`."""
    return timed(picoseconds / SECOND)
