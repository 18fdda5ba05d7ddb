"""Extraction of one instruction from its program into a small module of its own.

The instruction's operands become parameters (with their shapes, names and shardings). The computations that it calls
are copied. `depth` keeps that many levels of producers too, to extract a whole pattern.
"""

from __future__ import annotations

from ..diagnostics import fail
from ..graph.attributes import ParameterAttributes
from ..graph.clone import clone_computation, clone_instruction
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module, shell_of
from ..graph.op import Role
from ..reached import reached
from .names import suggestions
from .verifier import check


def find_instruction(module: Module, name: str, computation: str | None = None) -> Instruction:
    """Returns the instruction of this name in the entry, else in the only other computation that has one.

    Raises CompileError if there is none, or if several computations have one and `computation` is not given.
    """
    name = name.removeprefix("%")
    places = [find_computation(module, computation)] if computation is not None else [module.entry, *module]
    found = [i for i in (place.find(name) for place in dict.fromkeys(places)) if i is not None]
    if not found:
        names = suggestions(name, (i.name for place in places for i in place))
        fail(f"there is no instruction '{name}' in {computation or module.name}", help=f"instructions: {names}")
    if len(found) > 1 and found[0].parent is not module.entry:
        names = ", ".join(i.parent.name for i in found if i.parent is not None)
        fail(f"there are {len(found)} instructions '{name}', in the computations {names}", help="name the computation")
    return found[0]


def find_computation(module: Module, name: str) -> Computation:
    """Returns the computation of this name. Raises CompileError if there is none."""
    found = next((c for c in module if c.name == name.removeprefix("%")), None)
    if found is None:
        some = ", ".join(c.name for c in module.computations[-10:])
        fail(f"there is no computation '{name}' in {module.name}", help=f"it has {some}" if some else None)
    return found


def isolate(module: Module, instruction: Instruction, depth: int = 0) -> Module:
    """Returns a verified module whose root is a copy of the instruction, with `depth` levels of its producers.

    Raises CompileError if the instruction is not valid alone (the done of an asynchronous pair needs its start).
    """
    kept = _producers(instruction, depth)
    assert instruction.parent is not None
    result = _shell(module, instruction)
    entry = Computation(instruction.parent.name, instruction.parent.location)
    made: dict[Instruction, Instruction] = {}
    sources = [i for i in instruction.parent if i in kept]
    copies: dict[Computation, Computation] = {}
    for computation in _called(module, sources):
        copies[computation] = result.add_computation(clone_computation(computation, copies.__getitem__))
    inputs = dict.fromkeys(o for i in sources for o in i.operands if o not in kept)
    parameters = [i for i in sources if i.op.role is Role.PARAMETER]
    for number, source in enumerate([*inputs, *parameters]):
        made[source] = _parameter(entry, number, source)
    for source in sources:
        if source not in made:
            made[source] = clone_instruction(entry, source, [made[o] for o in source.operands], copies.__getitem__)
    for source in sources:
        before = tuple(made[p] for p in source.control_predecessors if p in made)
        made[source].control_predecessors = before
    entry.root = made[instruction]
    entry.name = result.unique_computation_name(entry.name)
    result.add_computation(entry, entry=True)
    check(result)
    return result


def _called(module: Module, instructions: list[Instruction]) -> list[Computation]:
    """Returns the computations that the instructions call, directly or indirectly, callees first."""
    needed = reached((c for i in instructions for c in i.called()), Computation.called)
    return [c for c in module.callees_first() if c in needed]


def _producers(instruction: Instruction, depth: int) -> set[Instruction]:
    """Returns the instruction and `depth` levels of its producers."""
    kept = {instruction}
    level = [instruction]
    for _ in range(depth):
        level = [o for o in dict.fromkeys(o for i in level for o in i.operands) if o not in kept]
        if not level:
            break
        kept.update(level)
    return kept


def _shell(module: Module, instruction: Instruction) -> Module:
    """Returns an empty module with the header of the given one, except the parts about parameters and results."""
    result = shell_of(module)
    result.name = f"{module.name}.{instruction.name}"
    result.entry_layout = result.global_layout = result.flat_layout = None
    result.allow_propagation_to_parameters = result.allow_propagation_to_output = None
    result.input_output_alias = result.buffer_donor = result.origin_recovery_table = ""
    return result


def _parameter(entry: Computation, number: int, source: Instruction) -> Instruction:
    made = entry.add("parameter", (), ParameterAttributes(number), source.shape, source.name, source)
    made.sharding, made.shardy = source.sharding, source.shardy
    made.frontend_attributes = source.frontend_attributes
    return made
