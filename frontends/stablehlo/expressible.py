"""Modules whose ops StableHLO has: what it lacks becomes other ops of the same value.

- A copy becomes a reshape to the same shape.
- A bitcast, which reads bytes in the order of layouts, becomes transposes into and out of that order, with a reshape
  and a bitcast-convert between them. One of parts of bytes, or of a tiled layout, stays.
- An all-to-all of one operand per device becomes one of a single array that stacks them.
- The upper half of a product (mulhi) becomes sums of products of half words.
- Groups over axes of a mesh become lists of devices: jaxlib writes that form and does not read it.

Programs that XLA has compiled have all of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.graph.attributes import SliceDim
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ...ir.graph.op import AnyOp
from ...ir.ops.bitcast import Bitcast, major_to_minor
from ...ir.ops.collective_groups import groups_of
from ...ir.ops.collectives import AllToAll, AllToAllAttributes
from ...ir.ops.conversion import Copy
from ...ir.ops.elementwise import MULTIPLY_HIGH
from ...ir.ops.shaping import ReshapeAttributes
from ...ir.sharding.replica_groups import ExplicitGroups, MeshGroups, enumerate_groups
from ...ir.types.element_type import Kind
from ...ir.types.shape import Shape, array


def expressible(module: Module) -> Module:
    """Returns a module whose ops StableHLO has; the module itself if it is one."""
    if not any(_has_mesh_groups(i) or _is_lacking(i) for computation in module for i in computation):
        return module
    changed = clone_module(module)
    for computation in changed:
        for instruction in list(computation):
            if _has_mesh_groups(instruction):
                _list_groups(instruction)
            if _is_lacking(instruction):
                _replace(computation, instruction)
    return changed


def _is_lacking(instruction: Instruction) -> bool:
    rewrite = _REWRITES.get(type(instruction.op))
    return rewrite is not None and rewrite.fits(instruction)


def _replace(computation: Computation, old: Instruction) -> None:
    with computation.at(before=old):
        new = _REWRITES[type(old.op)].expand(computation, old)
    new.sharding, new.shardy, new.frontend_attributes = old.sharding, old.shardy, old.frontend_attributes
    computation.replace_all_uses(old, new)
    computation.remove(old)
    computation.rename(new, old.name)


def _reshape(computation: Computation, copy: Instruction) -> Instruction:
    return _reshaped(computation, copy.operands[0], copy.shape, copy)


def _upper_half(computation: Computation, old: Instruction) -> Instruction:
    """Returns the upper half of a product, by long multiplication of half words (Hacker's Delight, Warren, 8-2)."""
    element = old.shape.element
    half = element.bits // 2
    shift = "shift-right-arithmetic" if element.kind is Kind.SIGNED else "shift-right-logical"

    def build(opcode: str, *operands: Instruction) -> Instruction:
        return computation.build(opcode, *operands, like=old)

    def filled(value: int) -> Instruction:
        scalar = computation.constant(value, element.name)
        return computation.build("broadcast", scalar, shape=old.shape.without_layout(), dimensions=(), like=old)

    width, mask = filled(half), filled((1 << half) - 1)
    (x_low, x_high), (y_low, y_high) = ((build("and", v, mask), build(shift, v, width)) for v in old.operands)
    carry = build("shift-right-logical", build("multiply", x_low, y_low), width)
    middle = build("add", build("multiply", x_high, y_low), carry)
    other = build("add", build("multiply", x_low, y_high), build("and", middle, mask))
    upper = build("add", build("multiply", x_high, y_high), build(shift, middle, width))
    return build("add", upper, build(shift, other, width))


# -- collectives


def _has_mesh_groups(instruction: Instruction) -> bool:
    return isinstance(groups_of(instruction), MeshGroups)


def _list_groups(instruction: Instruction) -> None:
    attributes: Any = instruction.attributes
    groups: MeshGroups = attributes.replica_groups
    lists = ExplicitGroups(enumerate_groups(groups, groups.mesh.size))
    instruction.attributes = dataclasses.replace(attributes, replica_groups=lists)


def _stacked(computation: Computation, old: Instruction) -> Instruction:
    """Returns the tuple that an all-to-all receives, of one array with a row for each device of a group."""
    attributes, shape = old.attributes_as(AllToAllAttributes), old.shape.elements[0]
    row = array(shape.element, (1, *shape.dims))
    rows = [_reshaped(computation, operand, row, old) for operand in old.operands]
    sent = computation.build("concatenate", *rows, dimensions=(0,), like=old)
    received = computation.add(old.op, (sent,), dataclasses.replace(attributes, dimensions=(0,)), like=old)
    parts: list[Instruction] = []
    for place in range(len(old.operands)):
        cut = (SliceDim(place, place + 1), *(SliceDim(0, n) for n in shape.dims))
        part = computation.build("slice", received, slice=cut, like=old)
        parts.append(_reshaped(computation, part, array(shape.element, shape.dims), old))
    return computation.add("tuple", parts, like=old)


# -- bitcasts


def _is_of_whole_bytes(bitcast: Instruction) -> bool:
    """Whether ops on elements can take the place of a bitcast."""
    shapes = (bitcast.operands[0].shape, bitcast.shape)
    wide, narrow = (how(s.element.bits for s in shapes) for how in (max, min))
    has_tiles = any(s.layout is not None and s.layout.tiles for s in shapes)
    return not has_tiles and wide % narrow == 0 and (narrow >= 8 or wide == narrow)


def _reinterpreted(computation: Computation, old: Instruction) -> Instruction:
    """Returns a bitcast's result: its operand in memory order, cast, and back from the memory order of the result."""
    (operand,), result = old.operands, old.shape
    source, target, order = operand.shape.element, result.element, major_to_minor(result)
    stored = array(target, tuple(result.dims[d] for d in order))
    value = _transposed(computation, operand, major_to_minor(operand.shape), old)
    if source is not target:
        value = _cast(computation, value, stored, old)
    value = _reshaped(computation, value, stored, old)
    return _transposed(computation, value, np.argsort(np.asarray(order, int)).tolist(), old)


def _cast(computation: Computation, value: Instruction, target: Shape, old: Instruction) -> Instruction:
    """Returns a row-major array as elements of another type, in the order of their bytes."""
    size, have, want = target.num_elements, value.shape.element.bits, target.element.bits
    parts = max(have, want) // min(have, want)
    if have < want:
        value = _reshaped(computation, value, array(value.shape.element, (size, parts)), old)
        return computation.add("bitcast-convert", (value,), shape=array(target.element, (size,)), like=old)
    dims = value.shape.dims if parts == 1 else (*value.shape.dims, parts)
    return computation.add("bitcast-convert", (value,), shape=array(target.element, dims), like=old)


def _transposed(computation: Computation, value: Instruction, order: Sequence[int], old: Instruction) -> Instruction:
    if list(order) == list(range(len(order))):
        return value
    return computation.build("transpose", value, dimensions=tuple(order), like=old)


def _reshaped(computation: Computation, value: Instruction, shape: Shape, old: Instruction) -> Instruction:
    return computation.add("reshape", (value,), ReshapeAttributes(), shape, like=old)


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """An op that StableHLO lacks: the instructions that it is about, and the ops in their place."""

    fits: Callable[[Instruction], bool]
    expand: Callable[[Computation, Instruction], Instruction]


_REWRITES: Mapping[type[AnyOp], _Rewrite] = {
    Copy: _Rewrite(lambda i: i.shape.is_array, _reshape),
    Bitcast: _Rewrite(_is_of_whole_bytes, _reinterpreted),
    type(MULTIPLY_HIGH): _Rewrite(lambda i: True, _upper_half),
    AllToAll: _Rewrite(lambda i: i.shape.is_tuple, _stacked),
}
