"""Tells of each instruction of a per-device program its layer and its phase: forward, backward, or the update of state.

Paths of ops name layers where the frontend wrote them; stacks or names tell the layers of parameters. An instruction
without a path belongs to the layer min(deepest layer above it, deepest layer below it): of those whose parameters it
depends on, and of those whose new state depends on it. It is forward where the layers below are deeper. A scalar passes
no layer upwards, so that the norm of all gradients does not tie the layers together. JAX's paths (`jvp`, `transpose`)
decide the phase where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...cost.uses import has_windows
from ...cost.work import is_contraction
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Applies, Memory, Movement
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.structure import element_index
from ...ir.tools.aliases import aliases, leaf_number
from .layer_frames import layers_of_stacks
from .layer_names import layers_of_parameters, layers_of_paths

FORWARD, BACKWARD, UPDATE = range(3)
_FREE = {Role.PARAMETER, Role.CONSTANT, Role.TUPLE, Role.ELEMENT, Role.DONE, Role.UPDATE}
_SHARE = 0.5  # of the results, that have to look like new state where the program does not say what they alias

Place = tuple[int, int]  # phase and layer; -1 is before the first layer


@brief
@dataclass(frozen=True, slots=True)
class LayerPlaces:
    """The phase and layer of each instruction of the entry, and the number of layers."""

    of: Mapping[Instruction, Place]
    layers: int


def is_heavy(instruction: Instruction) -> bool:
    """Whether an instruction is worth a node of its own: it exchanges, multiplies, reduces, sorts or looks up. A window
    at one place is none, such as the weights of a layer in a loop.
    """
    op = instruction.op
    if op.role in _FREE or not instruction.operands:
        return False
    if op.is_collective or op.is_control or is_contraction(instruction):
        return True
    if op.interface(Movement):
        looks_up = has_windows(instruction) and any(o.shape.num_elements > 1 for o in instruction.operands[1:])
        return looks_up or op.interface(Applies) is not None
    view = op.interface(Memory)
    return not op.is_elementwise and not (view is not None and view.is_view)


def phase_of_path(instruction: Instruction) -> int | None:
    """Returns the phase that JAX's path of an op names; None where it names none."""
    path = instruction.metadata.op_name if instruction.metadata is not None else ""
    return BACKWARD if "transpose(" in path else FORWARD if "jvp(" in path else None


def places(module: Module) -> LayerPlaces:
    """Finds the layer and phase of each instruction of the entry."""
    entry, root, state = module.entry, module.entry.root, new_state(module)
    own = _own_layers(entry, state)
    last = max(own.values(), default=-1)
    sources = {i: _sources(i) for i in entry}
    users: dict[Instruction, list[Instruction]] = {i: [] for i in entry}
    for i in entry:
        for source in dict.fromkeys(sources[i]) if i is not root or root.op.role is not Role.TUPLE else ():
            users[source].append(i)
    above = _above(entry, own, last, sources)
    works: dict[Instruction, bool] = {}  # whether heavy ops depend on it
    for i in reversed(list(entry)):
        works[i] = any(works[u] or (is_heavy(u) and not u.op.is_collective) for u in users[i])
    below = _below(entry, own, last, above, state, users, works)
    found = {i: _place(i, own, last, above, below, works) for i in entry if i.op.role is not Role.PARAMETER}
    for i in reversed(list(entry)):
        is_bucket = _is_bucket(i)
        followers = [found[u] for u in (i.users if is_bucket else users[i]) if u in found]
        if i not in found or is_bucket or (above[i] is None and i not in own):  # it goes where it is used first
            found[i] = min(followers, default=(UPDATE if i.op.role is Role.PARAMETER else FORWARD, -1))
        elif found[i][0] == BACKWARD and phase_of_path(i) is None and any(p[0] == FORWARD for p in followers):
            found[i] = (FORWARD, found[i][1])
    return LayerPlaces(found, last + 1)


def _own_layers(entry: Computation, state: Mapping[Instruction, Instruction]) -> dict[Instruction, int]:
    """Returns the layers that paths of ops tell, or else the stacks at which they were made, and names of parameters.
    Where these count layers otherwise than the stacks, they number parts of another kind.
    """
    named = layers_of_parameters(entry.parameters)
    if paths := layers_of_paths(i for i in entry if i.op.role is not Role.PARAMETER):
        return named | paths
    called = layers_of_stacks(entry, (i for i in entry if phase_of_path(i) == BACKWARD), state)
    agree = not called or not named or max(called.values()) == max(named.values())
    return called | named if agree else called


def _is_bucket(instruction: Instruction) -> bool:
    """Whether an instruction exchanges several arrays at once, which may belong to several layers."""
    return len(instruction.operands) > 1 and instruction.op.is_collective and instruction.shape.is_tuple


def _sources(instruction: Instruction) -> list[Instruction]:
    """Returns the values that an instruction depends on; an element of a bucket only on the array that it was."""
    if instruction.op.role is Role.ELEMENT:
        bucket = instruction.operands[0]
        while bucket.op.role is Role.DONE:
            bucket = bucket.operands[0]
        index = element_index(instruction)
        if _is_bucket(bucket) and index is not None and index < len(bucket.operands):
            return [bucket.operands[index]]
    return instruction.operands


def _place(
    i: Instruction, own: Mapping[Instruction, int], last: int, above: Mapping[Instruction, int | None],
    below: Mapping[Instruction, int], works: Mapping[Instruction, bool],
) -> Place:  # fmt: skip
    up, down = above[i], below.get(i, last + 1)
    depth = -1 if up is None else up
    layer = own[i] if i in own else min(depth, down)
    phase = phase_of_path(i)
    if phase is None:
        ends = i in below and not works[i] and not is_contraction(i) and depth >= last
        forward = depth < down or (depth == down and i not in below)
        phase = UPDATE if ends else FORWARD if forward else BACKWARD
    return phase, layer


def _above(
    entry: Computation, own: Mapping[Instruction, int], last: int, sources: Mapping[Instruction, list[Instruction]]
) -> dict[Instruction, int | None]:
    """Returns the deepest layer that each instruction depends on; parameters without one count by their first use."""
    found: dict[Instruction, int | None] = {}
    early: set[Instruction] = set()
    for i in entry:
        known = [k for o in sources[i] if (k := found[o]) is not None]
        depth = max(known, default=None)
        for o in sources[i]:
            if o.op.role is Role.PARAMETER and o not in own and o.shape.is_array and o.shape.rank and o not in early:
                if depth is not None and depth >= last >= 0:
                    depth = last + 1
                else:
                    early.add(o)
                    depth = -1 if depth is None else depth
        found[i] = own.get(i, depth)
    return found


def _below(
    entry: Computation, own: Mapping[Instruction, int], last: int, above: Mapping[Instruction, int | None],
    state: Mapping[Instruction, Instruction], users: Mapping[Instruction, list[Instruction]],
    works: Mapping[Instruction, bool],
) -> dict[Instruction, int]:  # fmt: skip
    """Returns the deepest layer whose new state depends on each instruction."""
    found: dict[Instruction, int] = {}
    for i in reversed(list(entry)):
        depths = [found[u] for u in users[i] if u in found and not _is_scalar(u)]
        if i in state:
            parameter = state[i]
            late = works[parameter] and min((above[u] or -1 for u in users[parameter]), default=-1) >= last
            depths.append(own.get(parameter, last + 1 if late else -1))
        if depths:
            found[i] = max(depths)
    return found


def _is_scalar(instruction: Instruction) -> bool:
    return instruction.shape.is_array and instruction.shape.num_elements == 1


def new_state(module: Module) -> dict[Instruction, Instruction]:
    """Maps results to the parameters whose new values they are: those that they alias, or else, where many results in a
    row have the shapes of parameters in a row, these.
    """
    root, parameters = module.entry.root, module.entry.parameters
    results = root.operands if root.op.role is Role.TUPLE else [root]
    said = {
        results[place]: parameters[number]
        for result, number, _ in aliases(module.input_output_alias)
        if (place := leaf_number(root.shape, result)) is not None and place < len(results) and number < len(parameters)
    }
    return said or _alike(results, parameters)


def _alike(results: list[Instruction], parameters: list[Instruction]) -> dict[Instruction, Instruction]:
    shapes = [str(p.shape.without_layout()) for p in parameters]
    wanted = [str(r.shape.without_layout()) for r in results]
    best = (0, 0)
    for start in range(len(wanted)):
        count = 0
        while count < min(len(shapes), len(wanted) - start) and wanted[start + count] == shapes[count]:
            count += 1
        best = max(best, (count, -start))
    count, start = best[0], -best[1]
    if count < max(4, _SHARE * len(wanted)):
        return {}
    return dict(zip(results[start : start + count], parameters, strict=False))
