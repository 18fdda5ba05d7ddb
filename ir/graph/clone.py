"""Copies of instructions and computations.

`map_computation` maps each called computation to the one that a copy calls. Immutable values are shared; only the graph
is copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from .attributes import Attributes, called_fields
from .computation import Computation
from .instruction import Instruction

MapComputation = Callable[[Computation], Computation]


def map_called(attributes: Attributes, map_computation: MapComputation) -> Attributes:
    """Returns the attributes with every called computation replaced."""
    fields = called_fields(type(attributes))
    if not fields:
        return attributes
    changes: dict[str, object] = {}
    for name in fields:
        value = getattr(attributes, name)
        if isinstance(value, tuple):
            changes[name] = tuple(map_computation(v) for v in value)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
        elif value is not None:
            changes[name] = map_computation(value)
    return dataclasses.replace(attributes, **changes) if changes else attributes


def clone_instruction(
    target: Computation, source: Instruction, operands: Sequence[Instruction], map_computation: MapComputation
) -> Instruction:
    """Appends a copy of `source` with these operands to `target`. Control predecessors are not copied."""
    attributes = map_called(source.attributes, map_computation)
    copy = source.copied(target.unique_name(source.name), list(operands), attributes)
    target.append(copy)
    return copy


def clone_computation(
    source: Computation,
    map_computation: MapComputation,
    name: str | None = None,
    copies: dict[Instruction, Instruction] | None = None,
) -> Computation:
    """Returns a copy that calls the computations given by `map_computation`. It belongs to no module yet. `copies`
    receives the copy of each instruction.
    """
    target = Computation(name or source.name, source.location)
    target.execution_thread = source.execution_thread
    copies = {} if copies is None else copies
    mapped: dict[int, Attributes] = {}  # by the identities of attributes: what was one object stays one
    made: list[Instruction] = []
    for i in source:
        copies[i] = copy = i.repeated(i.name, [copies[o] for o in i.operands], i.attributes, i.location, i.metadata)
        made.append(copy)
    target.extend(made)
    for copy in map(copies.__getitem__, source.calling()):
        attributes = copy.attributes
        known = mapped.get(id(attributes))
        if known is None:
            known = mapped[id(attributes)] = map_called(attributes, map_computation)
        if known is not attributes:
            copy.attributes = known
    for instruction in source if source.has_control_dependencies else ():
        copies[instruction].control_predecessors = tuple(copies[p] for p in instruction.control_predecessors)
    target.root = copies[source.root]
    return target


def inlined(target: Computation, source: Computation, arguments: Sequence[Instruction]) -> Instruction:
    """Copies the instructions of `source`, applied to these arguments, to the end of `target`. Returns the root."""
    copies = dict(zip(source.parameters, arguments, strict=True))
    for instruction in source:
        if instruction not in copies:
            operands = [copies[o] for o in instruction.operands]
            copies[instruction] = clone_instruction(target, instruction, operands, lambda called: called)
    return copies[source.root]
