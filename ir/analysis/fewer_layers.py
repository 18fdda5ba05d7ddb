"""Shortens programs: cuts out some of many equal layers (`layers`), so that few stand for all.

    before:  h1 = f(x, w1)   h2 = f(h1, w2)   h3 = f(h2, w3)   h4 = f(h3, w4)   y = g(h4)
    after:   h1 = f(x, w1)   h4 = f(h1, w4)   y = g(h4)

The layer after the gap takes the values of the layer before it, and the other way round in a backward pass. The
parameters and results of the layers in the gap go, and so does their part of the header.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..brief import brief
from ..graph.attributes import ParameterAttributes
from ..graph.clone import clone_computation, clone_instruction
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import EntryLayout, Module, shell_of
from ..graph.op import Role
from ..tools.aliases import aliases, donors
from ..types.shape import tuple_shape
from .layers import Layers, find_layers

T = TypeVar("T")


@brief
@dataclass(frozen=True)
class ShortProgram:
    """A program with fewer layers. `copies` maps the instructions that stay to their copies, without the root, and
    `results` are the numbers of the results that stay.
    """

    module: Module
    copies: Mapping[Instruction, Instruction]
    results: Sequence[int]


def equal_layers(module: Module, least: int = 6) -> Layers:
    """Returns a run of at least so many equal layers of the entry, for `without_layers`; empty if there is none."""
    entry = module.entry
    if entry.root.op.role is not Role.TUPLE:
        return []
    layers = find_layers(entry, Counter(entry.root.operands), least)
    return layers if layers and entry.root not in layers[0] else []


def without_layers(module: Module, layers: Layers, gap: range) -> ShortProgram | None:
    """Returns a copy of a program without the layers of a gap that has layers on both sides. None if it cannot be cut:
    another op reads values of the gap, the header or an annotation tells more of the results than is understood here,
    or a parameter of the gap and a result outside of it share memory.
    """
    entry, found = module.entry, shell_of(module)
    cut = {i for n in gap for i in layers[n]}
    before, after = layers[gap[0] - 1], layers[gap[-1] + 1]
    instead = {**_near(after, layers[gap[-1]], before), **_near(before, layers[gap[0]], after)}
    called: dict[Computation, Computation] = {}
    for computation in module.callees_first():
        if computation is not entry:
            called[computation] = found.add_computation(clone_computation(computation, called.__getitem__))
    target, copies = Computation(entry.name, entry.location), dict[Instruction, Instruction]()
    target.execution_thread = entry.execution_thread
    numbers = [n for n, p in enumerate(entry.parameters) if p not in cut]
    renumbered = {entry.parameters[n]: number for number, n in enumerate(numbers)}
    for i in entry:
        if i in cut or i is entry.root:
            continue
        operands = [copies.get(instead.get((i, o), o)) for o in i.operands]
        if i.control_predecessors or None in operands:
            return None
        copies[i] = clone_instruction(target, i, [o for o in operands if o is not None], called.__getitem__)
        if i in renumbered:
            copies[i].attributes = replace(i.attributes_as(ParameterAttributes), number=renumbered[i])
    results = [n for n, o in enumerate(entry.root.operands) if o not in cut]
    kept = [copies[entry.root.operands[n]] for n in results]
    target.root = target.add(entry.root.op, kept, entry.root.attributes, name=entry.root.name, like=entry.root)
    found.add_computation(target, entry=True)
    return ShortProgram(found, copies, results) if _shortened_header(module, found, numbers, results) else None


def _near(
    users: Sequence[Instruction], values: Sequence[Instruction], instead: Sequence[Instruction]
) -> dict[tuple[Instruction, Instruction], Instruction]:
    """Maps the users next to the gap, each with a value of the layer inside it, to the value that takes its place."""
    like = dict(zip(values, instead, strict=True))
    return {(user, o): like[o] for user in users for o in user.operands if o in like}


def _shortened_header(old: Module, new: Module, parameters: Sequence[int], results: Sequence[int]) -> bool:
    """Writes the header of the parameters and results that stay, given their numbers before; False where it tells of
    parts of arrays, or of memory that a result inside of the gap shares with a parameter outside.
    """
    root = old.entry.root
    is_simple = root.annotation is None and old.flat_layout is None and old.global_layout is None
    if not is_simple or any(not o.shape.is_array for o in root.operands):
        return False
    given, made = ({n: number for number, n in enumerate(kept)} for kept in (parameters, results))
    shared: list[str] = []
    for alias in aliases(old.input_output_alias):
        if not alias.result.strip().isdigit() or alias.part.strip():
            return False
        result = int(alias.result)
        if (result in made) is not (alias.operand in given):
            return False
        if result in made:
            shared.append(f"{{{made[result]}}}: ({given[alias.operand]}, {{}}, may-alias)")
    offered = donors(old.buffer_donor)
    if any(part.strip() for _, part in offered):
        return False
    free = [f"({given[number]}, {{}})" for number, _ in offered if number in given]
    new.input_output_alias = "{ " + ", ".join(shared) + " }" if shared else ""
    new.buffer_donor = "{ " + ", ".join(free) + " }" if free else ""
    new.origin_recovery_table = ""
    flags = new.allow_propagation_to_parameters, new.allow_propagation_to_output
    new.allow_propagation_to_parameters = _kept(flags[0], len(old.entry.parameters), parameters)
    new.allow_propagation_to_output = _kept(flags[1], len(root.operands), results)
    if old.entry_layout is not None:
        layout = old.entry_layout
        shapes = tuple(layout.result.elements[n] for n in results)
        new.entry_layout = EntryLayout(tuple(layout.parameters[n] for n in parameters), tuple_shape(shapes))
    return True


def _kept(flags: tuple[T, ...] | None, count: int, numbers: Sequence[int]) -> tuple[T, ...] | None:
    """Returns the flags of those that stay; one flag holds for all."""
    return flags if flags is None or len(flags) != count else tuple(flags[n] for n in numbers)
