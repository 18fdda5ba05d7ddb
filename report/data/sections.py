"""Divides a per-device program into sections: the layers of each phase, with equal neighbours folded into one, and the
bodies of loops and of other control flow.

Each instruction that the entry reaches through control flow is in one section, so that sums over sections are those of
the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...cost.runs import runs
from ...ir.analysis.buffers import body_of
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from .phases import FORWARD, LayerPlaces, Place, is_heavy, phase_of_path, places

PHASES = ("forward", "backward", "update")


@brief
@dataclass(frozen=True, slots=True)
class Section:
    """A part of the program: of phase number `phase`, `layers` first to last (None: it is no layer). `members` are all
    of its instructions, `drawn` those of one of its equal layers; `trips` is how often they run.
    """

    phase: int
    name: str
    layers: tuple[int, int] | None
    members: tuple[Instruction, ...]
    drawn: tuple[Instruction, ...]
    trips: int = 1

    @property
    def count(self) -> int:
        """The number of layers folded into the section."""
        return self.layers[1] - self.layers[0] + 1 if self.layers is not None else 1


def sections(module: Module) -> tuple[list[Section], int]:
    """Returns the sections by phase and layer, those of loops after their phase, and the number of layers."""
    found = places(module)
    members: dict[Place, list[Instruction]] = {}
    for i in module.entry:
        if not (i is module.entry.root and i.op.role is Role.TUPLE):
            members.setdefault(found.of[i], []).append(i)
    result = _folded(members, found.layers)
    result += _inner(module, found)
    return sorted(result, key=lambda s: s.phase), found.layers


def section_numbers(found: Sequence[Section]) -> dict[Instruction, int]:
    """Returns the number of the section of each instruction."""
    return {i: number for number, section in enumerate(found) for i in section.members}


def _folded(members: Mapping[Place, list[Instruction]], layers: int) -> list[Section]:
    """Returns the sections of the entry: neighbouring layers with equal heavy ops are one."""
    result: list[Section] = []
    runs_of_equal: list[tuple[Counter[object], list[Place]]] = []
    for place in sorted(members):
        signature = _signature(members[place])
        equal = runs_of_equal[-1] if runs_of_equal else None
        before = equal[1][-1] if equal else (-1, -1)
        is_next = before == (place[0], place[1] - 1) and before[1] >= 0 and place[1] < layers
        if equal and is_next and equal[0] == signature:
            equal[1].append(place)
        else:
            runs_of_equal.append((signature, [place]))
    for _, together in runs_of_equal:
        (phase, first), last = together[0], together[-1][1]
        drawn = members[together[len(together) // 2]]
        every = tuple(i for place in together for i in members[place])
        is_layer = 0 <= first < layers
        result.append(Section(phase, _name(first, last, layers), (first, last) if is_layer else None, every,
                              tuple(drawn)))  # fmt: skip
    return result


def _signature(members: Iterable[Instruction]) -> Counter[object]:
    return Counter((i.opcode, str(i.shape.without_layout())) for i in members if is_heavy(i))


def _name(first: int, last: int, layers: int) -> str:
    if not layers:
        return "program"
    if first < 0:
        return "before the layers"
    if first >= layers:
        return "after the layers"
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def _inner(module: Module, found: LayerPlaces) -> list[Section]:
    """Returns the sections of computations that control flow calls, with the phase of their ops or of their caller. The
    condition of a loop belongs to its body.
    """
    callers: dict[Computation, Instruction] = {}
    members: dict[Computation, dict[Instruction, None]] = {}
    trips: dict[Computation, int] = {}
    for run in runs(module):
        instruction = run.instruction
        if instruction.op.is_control:
            for called in instruction.called():
                callers.setdefault(called, instruction)
        home = instruction.parent
        if home is not None and home is not module.entry:
            key = body_of(callers[home]) if callers[home].op.role is Role.LOOP else home
            members.setdefault(key, {})[instruction] = None
            trips.setdefault(key, run.count)
    phases: dict[Computation | None, int] = {}
    names: Counter[str] = Counter()
    result: list[Section] = []
    for computation, inside in members.items():
        caller = callers[computation]
        said = Counter(p for i in inside if is_heavy(i) and (p := phase_of_path(i)) is not None)
        outer = found.of[caller][0] if caller in found.of else phases.get(caller.parent, FORWARD)
        phases[computation] = said.most_common(1)[0][0] if said else outer
        name = f"{'loop' if caller.op.role is Role.LOOP else caller.opcode} {caller.name}"
        names[name] += 1
        name = f"{name}, {computation.name}" if names[name] > 1 else name
        drawn = tuple(i for i in inside if i.parent is computation)
        result.append(Section(phases[computation], name, None, tuple(inside), drawn, trips[computation]))
    return result
