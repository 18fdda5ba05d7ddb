"""Finds collectives that some devices of a group reach and others do not, so that all would wait for ever.

All devices run one program. If every device of a group takes the same branches and trips of the loops around the
group's collectives, all its members start these in the order of the text. Then the first collective that is not
finished can finish: what its members await stands before it. So the program ends, whether collectives block, or one
engine runs them in order. It remains to show that predicates and trip counts are the same on the devices of each group
around the collectives inside. `analysis.device_agreement` follows on which devices values are the same. Where this is
not enough, `known` computes the values that depend on the device number alone: they prove that devices agree, or that
they do not.

Errors are deadlocks. Warnings, of the category `deadlock`, name what cannot be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..analysis.device_agreement import Calls, DeviceAgreement, DeviceChoice
from ..checked_call import checked
from ..diagnostics import Diagnostic, Severity
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module
from ..graph.op import Role
from ..ops.collectives import CollectiveBroadcast
from ..sharding.replica_groups import LISTED, Groups
from ..tools.in_flight import in_flight_problems, note
from ..tools.process_grid import ProcessGrid
from ..tools.spmd import is_per_device
from .known import Known, UnknownValue
from .transfers import is_transfer, transfer_pairs, transfer_problems

_CATEGORY = "deadlock"


@checked
def find_deadlocks(module: Module) -> list[Diagnostic]:
    """Finds errors in the collectives of a per-device program (LOCAL, SCHEDULED, or another compiler's), and as
    warnings parts that cannot be shown to be right. Other programs have no findings.
    """
    return (in_flight_problems(module) if is_per_device(module) else []) or find_waits(module)


def find_waits(module: Module) -> list[Diagnostic]:
    """Returns the findings of `find_deadlocks` but for starts without a done, and channels that two collectives of
    Hloom's own programs share: Hloom runs such programs.
    """
    grid = ProcessGrid.of(module) if is_per_device(module) else None
    if grid is None or grid.size == 1:
        return []
    if grid.size > LISTED:
        return list(_unlisted(module, grid.size))
    found = [d for computation in module for i in computation if i.op.is_collective for d in _members(i, grid)]
    return found or [*transfer_problems(module), *_Judge(module).found]


def _unlisted(module: Module, devices: int) -> Iterator[Diagnostic]:
    """Yields a warning that nothing can be shown of so many devices, at the first collective."""
    first = next((i for computation in module for i in computation if i.op.is_collective or is_transfer(i)), None)
    if first is not None:
        message = f"cannot show that all devices come to {first.opcode} {first.name}: there are {devices:,} devices"
        help = f"the groups of up to {LISTED:,} devices can be listed"
        yield Diagnostic(Severity.WARNING, message, first.location, help, category=_CATEGORY)


def _members(instruction: Instruction, grid: ProcessGrid) -> Iterator[Diagnostic]:
    """Yields why the groups or pairs of a collective do not fit the devices."""
    try:
        grid.members(instruction)
    except ValueError as error:
        message = f"{instruction.opcode} {instruction.name}: {error}"
        yield Diagnostic(Severity.ERROR, message, instruction.location, grid.help_for(instruction))


class _Judge:
    """Judges the choices of one program."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.grid = ProcessGrid.of(module)
        self.found: list[Diagnostic] = []
        self._seen: set[tuple[Instruction, Severity]] = set()
        self._devices: dict[int, Known] = {}
        self._meetings: dict[Computation, list[Instruction]] = {}
        for computation in module.callees_first():
            inside = [m for i in computation if i.op.is_control for c in i.called() for m in self._meetings[c]]
            own = [i for i in computation if i.op.is_collective or is_transfer(i)]
            self._meetings[computation] = list(dict.fromkeys([*own, *inside]))
        self._members = {m: self._groups(m) for meetings in self._meetings.values() for m in meetings}
        self._check_members()
        communicates = {c for c, meetings in self._meetings.items() if meetings}
        if any(i.op.role in (Role.BRANCH, Role.LOOP) and not communicates.isdisjoint(i.called())
               for c in module for i in c):
            DeviceAgreement(module, self._judge)

    def _groups(self, meeting: Instruction) -> Groups:
        """Returns the sets of devices that wait for each other there."""
        if is_transfer(meeting):
            pairs = transfer_pairs(meeting)
            return ((tuple(range(self.grid.size)),) if pairs is None else pairs)
        groups, pairs = self.grid.members(meeting)
        return (*groups, *(pair for pair in pairs if pair[0] != pair[1]))

    def _check_members(self) -> None:
        """Reports collectives whose groups lack devices that reach them for certain."""
        for meeting in self._always():
            members = {device for group in self._members.get(meeting, ()) for device in group}
            lacks = not self._is_partial(meeting) and len(members) < self.grid.size
            if lacks:
                first = next(device for device in range(self.grid.size) if device not in members)
                message = f"{meeting.opcode} {meeting.name}: device {first} is in none of its groups, but reaches it"
                self.found.append(Diagnostic(Severity.ERROR, message, meeting.location))

    def _is_partial(self, meeting: Instruction) -> bool:
        """Whether devices may reach it without taking part."""
        if is_transfer(meeting) or isinstance(meeting.op, CollectiveBroadcast):
            return True
        return bool(self.grid.members(meeting)[1]) or not self._members[meeting]

    def _always(self) -> Iterator[Instruction]:
        """Yields the meetings that no conditional stands around."""
        reached = {self.module.entry: None}
        stack = [self.module.entry]
        while stack:
            for instruction in stack.pop():
                if instruction in self._members:
                    yield instruction
                if instruction.op.is_control and instruction.op.role is not Role.BRANCH:
                    new = [c for c in instruction.called() if c not in reached]
                    reached.update(dict.fromkeys(new))
                    stack += new

    def _judge(self, choice: DeviceChoice) -> None:
        """Reports a choice, unless all members of the groups of each collective inside choose alike."""
        for meeting in dict.fromkeys(m for c in choice.instruction.called() for m in self._meetings[c]):
            split = [group for group in self._members[meeting] if not choice.predicate.is_same_on(group)]
            if not split:
                continue
            try:
                with np.errstate(all="ignore"):
                    chosen = self._chosen(choice, meeting, split)
            except UnknownValue:
                self._report(self._unknown(choice, meeting, split[0]), choice, Severity.WARNING)
                continue
            for group in split:
                taken = {chosen[device] for device in group if device in chosen}
                if len(taken) > 1:
                    self._report(self._deadlock(choice, meeting, group, chosen), choice, Severity.ERROR)
                    break

    def _chosen(self, choice: DeviceChoice, meeting: Instruction, groups: Sequence[Sequence[int]]) -> dict[int, int]:
        """Counts, for each device of the groups that reaches the branch or loop, the times that it executes a
        collective inside: the trips of a loop, 1 or 0 for a branch. Raises UnknownValue.
        """
        instruction, chosen = choice.instruction, dict[int, int]()
        around = [n for n, c in enumerate(instruction.called()) if meeting in self._meetings[c]]
        by_class: dict[int, int] = {}
        for device in dict.fromkeys(device for group in groups for device in group):
            if not self._comes(choice.calls, device):
                continue
            known = self._known(device)
            which = int(choice.predicate.classes[device])
            if which not in by_class:
                by_class[which] = known.selector(instruction, known.frame(choice.calls))
            number = by_class[which]
            chosen[device] = number if instruction.op.role is Role.LOOP else int(number in around)
        return chosen

    def _comes(self, calls: Calls, device: int) -> bool:
        """Whether a device takes the branches of the conditionals among these calls, as far as known."""
        known = self._known(device)
        for place, (caller, argument) in enumerate(calls):
            if caller.op.role is Role.BRANCH:
                try:
                    if known.selector(caller, known.frame(calls[:place])) != argument - 1:
                        return False
                except UnknownValue:
                    continue
        return True

    def _known(self, device: int) -> Known:
        if device not in self._devices:
            self._devices[device] = Known(*self.grid.place_of(device))
        return self._devices[device]

    def _deadlock(
        self, choice: DeviceChoice, meeting: Instruction, group: Sequence[int], chosen: Mapping[int, int]
    ) -> Diagnostic:
        instruction = choice.instruction
        first = max((d for d in group if d in chosen), key=lambda d: chosen[d])
        other = next(d for d in group if d in chosen and chosen[d] != chosen[first])
        if instruction.op.role is Role.LOOP:
            why = (f"{instruction.name} runs {_times(chosen[first])} on device {first}, "
                   f"{_times(chosen[other])} on device {other}")
        else:
            why = f"{instruction.operands[0].name} differs, device {other} takes another branch of {instruction.name}"
        message = (f"{meeting.opcode} {meeting.name}: device {first} waits for ever for device {other}, both of group "
                   f"{_listed(group)}: {why}")
        return Diagnostic(Severity.ERROR, message, meeting.location, None, _notes(choice))

    def _unknown(self, choice: DeviceChoice, meeting: Instruction, group: Sequence[int]) -> Diagnostic:
        instruction, predicate = choice.instruction, choice.predicate
        first = group[0]
        other = next(d for d in group if predicate.classes[d] != predicate.classes[first])
        what = (f"the number of trips of {instruction.name}" if instruction.op.role is Role.LOOP
                else f"predicate {instruction.operands[0].name} of {instruction.name}")
        message = (f"cannot show that {what} is the same on devices {first} and {other} of group {_listed(group)}, "
                   f"which meet in {meeting.opcode} {meeting.name}")
        help = "a reduction of the predicate over the group makes it the same"
        return Diagnostic(Severity.WARNING, message, instruction.location, help,
                          (note("they meet here", meeting.location), *_notes(choice)[1:]), _CATEGORY)

    def _report(self, diagnostic: Diagnostic, choice: DeviceChoice, severity: Severity) -> None:
        key = choice.instruction, severity
        if key not in self._seen:
            self._seen.add(key)
            self.found.append(diagnostic)


def _notes(choice: DeviceChoice) -> tuple[Diagnostic, ...]:
    instruction = choice.instruction
    notes = [note(f"{instruction.opcode} {instruction.name} decides", instruction.location)]
    if instruction.op.role is Role.BRANCH:
        notes.append(note("by this predicate", instruction.operands[0].location))
    return tuple(notes)


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _listed(group: Sequence[int]) -> str:
    """Returns a group as HLO writes it, a long one shortened."""
    shown = [str(device) for device in (group if len(group) <= 16 else (*group[:8],))]
    return "{" + ",".join(shown if len(group) <= 16 else [*shown, "..", str(group[-1])]) + "}"
