"""Checks the changes of passes to a program in the middle of XLA's compilation."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from ..ir.diagnostics import fail
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.graph.op import Role
from ..ir.ops.collective_groups import groups_of
from ..ir.ops.collectives import pairs_of
from ..ir.ops.structure import GetTupleElementAttributes
from ..ir.sharding.replica_groups import ExplicitGroups, IotaGroups
from ..ir.sharding.sharding import AnySharding
from ..ir.tools.spmd import parts
from ..ir.types.shape import Layout, Shape

Layouts = tuple[tuple[tuple[int, ...], ...], ...]


def devices_named(module: Module) -> int:
    """Returns the number of devices that shardings and collectives name; XLA does not serialize the number itself."""
    found = [1]
    for computation in module:
        for instruction in computation:
            found += _of_sharding(instruction.sharding)
            found += _of_collective(instruction)
    return max(found)


def _of_sharding(sharding: AnySharding | None) -> list[int]:
    return [part.mesh.size for part in parts(sharding) if part.mesh is not None]


def _of_collective(instruction: Instruction) -> list[int]:
    pairs, groups = pairs_of(instruction), groups_of(instruction)
    if pairs is not None:
        return [1 + max(pair) for pair in pairs]
    if groups is None:
        return []
    if isinstance(groups, ExplicitGroups):
        return [1 + max(group) for group in groups.lists if group]
    return [groups.num_groups * groups.group_size] if isinstance(groups, IotaGroups) else [groups.mesh.size]


class XlaDecisions:
    """A program before passes, with decisions of XLA that passes do not know: which values share memory, and the
    layouts of arrays.

    XLA has already inserted the copies that keep values apart, by the dependences that it found. Changes are safe that
    keep these dependences: new instructions replace collectives, read the same operands, and precede everything that
    depended on the old ones. Anything else is refused: of two equal values that a loop updates, for example, one would
    overwrite the other.
    """

    def __init__(self, module: Module) -> None:
        self._computations = {c.name: (c, c.parameters) for c in module}
        self._operands = {i: tuple(i.operands) for computation in module for i in computation}
        self._controls = {i: i.control_predecessors for computation in module for i in computation}
        self._waited_for = {other for controls in self._controls.values() for other in controls}
        self._layouts = {i: _layouts(i) for computation in module for i in computation}
        self._results = {i: i.shape for computation in module for i in computation}

    def require_safe(self, module: Module) -> None:
        """Gives every new array a layout. Raises CompileError for changes that are not safe."""
        now = {i for computation in module for i in computation}
        removed = self._operands.keys() - now
        read = {operand for i in removed for operand in self._operands[i]}
        kept = {operand for i in self._operands.keys() & now for operand in self._operands[i]}
        for i in removed:
            replaceable = i.op.is_collective or i.op.role in (Role.TUPLE, Role.ELEMENT)
            if (i in kept and not replaceable) or self._controls[i] or i in self._waited_for:
                _refuse(i, "may keep values apart in memory, but was removed")
        for computation in module:
            known = self._computations.get(computation.name)
            if known is not None and any(a is not b for a, b in zip(computation.parameters, known[1], strict=False)):
                fail(f"computation {computation.name} was written anew, so nothing is known of its memory")
            for instruction in computation:
                self._check(instruction, read)

    def _check(self, instruction: Instruction, read_by_removed: set[Instruction]) -> None:
        before = self._operands.get(instruction)
        if instruction.shape is not self._results.get(instruction):
            instruction.shape = _with_layouts(instruction.shape)
        if before is None:
            others = [o for o in instruction.operands if o in self._operands and o not in read_by_removed]
            if others and instruction.op.role not in (Role.TUPLE, Role.ELEMENT):
                _refuse(instruction, f"reads {others[0].name}, which no instruction read that it replaces")
        else:
            changed = [new for old, new in zip(before, instruction.operands, strict=False) if new is not old]
            if len(before) != len(instruction.operands) or any(new in self._operands for new in changed):
                _refuse(instruction, "reads another value of the program than before")
        if not (_is_right(instruction) if before is None else self._layouts[instruction] == _layouts(instruction)):
            _refuse(instruction, "would read operands in another memory layout")


def _refuse(instruction: Instruction, reason: str) -> NoReturn:
    fail(f"{instruction.opcode} {instruction.name} {reason}", instruction.location)


def _is_right(instruction: Instruction) -> bool:
    """Whether a new instruction has layouts that fit those of its operands: the same, or row-major ones."""
    operands = [leaf for operand in _layouts(instruction) for leaf in operand]
    result = [leaf.minor_to_major for leaf in instruction.shape.leaves()]
    if instruction.op.is_collective or instruction.op.role is Role.TUPLE:
        return operands == result
    if instruction.op.role is Role.ELEMENT:
        whole = instruction.operands[0].shape
        first, end = whole.leaf_range(instruction.attributes_as(GetTupleElementAttributes).index)
        return operands[first:end] == result
    return all(map(_is_row_major, (instruction.shape, *(o.shape for o in instruction.operands))))


def _layouts(instruction: Instruction) -> Layouts:
    return tuple(tuple(leaf.minor_to_major for leaf in operand.shape.leaves()) for operand in instruction.operands)


def _is_row_major(shape: Shape) -> bool:
    return all(leaf.minor_to_major == tuple(reversed(range(leaf.rank))) for leaf in shape.leaves() if leaf.is_array)


def _with_layouts(shape: Shape) -> Shape:
    if shape.is_tuple:
        return replace(shape, elements=tuple(map(_with_layouts, shape.elements)))
    if not shape.is_array or shape.layout is not None:
        return shape
    return replace(shape, layout=Layout(tuple(reversed(range(shape.rank)))))
