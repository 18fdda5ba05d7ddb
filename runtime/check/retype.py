"""Retypes programs: every float in f64, and optionally every float rounded to a grid at random.

`retyped` maps element types in shapes, constants and called computations. With f32 and bf16 mapped to f64 a program
computes without the rounding of its own types. Ops that read the format of their operands (`FloatTypes.reads_format`:
bit casts, random numbers, most custom-calls) keep their own types between conversions.

With `grid` each float that a retyped program computes is rounded, up or down at random, to the significand of its own
type plus that many bits: Monte Carlo arithmetic (Parker, 1997). Two runs with different seeds differ by the effect of
rounding on the results; with more bits, by a known fraction of that, to first order. Values on the grid stay unchanged,
so moves, comparisons and maxima do not round.

Integers may be mapped to f64, too, if they are rounded shares of a scale: then the rounding goes.

Assumption: no float has more than 53 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from ...ir.graph.attributes import Attributes, attribute_fields
from ...ir.graph.clone import map_called
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import floats_of
from ...ir.graph.module import EntryLayout, Module, shell_of
from ...ir.graph.op import Compile, Kernel, Op, OpCall, op_named
from ...ir.tools.control_flow import computations_run
from ...ir.tools.interface import unflattened
from ...ir.types.element_type import ELEMENT_TYPES, ElementType
from ...ir.types.literal import Array, Literal, unknown
from ...ir.types.shape import Shape, tuple_shape
from .carriers import Types, bit_carriers, is_cast_back

F64, C128 = ELEMENT_TYPES["f64"], ELEMENT_TYPES["c128"]
WIDE: Types = {t: F64 for t in ELEMENT_TYPES.values() if t.is_float} | {ELEMENT_TYPES["c64"]: C128}
FINEST = 50  # bits of the finest grid, coarser than f64, so that rounding to it outweighs rounding to f64
_F64_BITS = 53
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads low bits to high ones (Fibonacci hashing)


def limits_of(dtype: np.dtype[Any]) -> Any:
    """Returns numpy's `finfo` for any float or complex type: eps, nmant, smallest_subnormal, .."""
    return cast(Any, ml_dtypes).finfo(dtype)


def significand_bits(element: ElementType) -> int:
    """Returns the bits of the significand of a float or complex type, including the leading one."""
    assert element.numpy is not None
    return int(limits_of(element.numpy).nmant) + 1


@dataclass(frozen=True, slots=True)
class RoundAttributes(Attributes):
    """The attributes of a rounding. `drop` low bits of an f64 are rounded away; `seed` chooses the direction of each
    rounding.
    """

    drop: int
    seed: int


class RoundToGrid(Op[RoundAttributes]):
    """Rounds f64 or c128 values up or down to fewer bits, by a hash of value, place and seed."""

    opcode = "hloom-round-to-grid"
    attributes = RoundAttributes
    is_elementwise = True

    def kernel(self, call: OpCall[RoundAttributes], compile: Compile) -> Kernel:
        drop, keep = np.uint64(call.attributes.drop), np.uint64(64 - call.attributes.drop)
        mask = ~np.uint64((1 << call.attributes.drop) - 1)
        seed = np.uint64(call.attributes.seed)

        def run(x: Array) -> Array:
            bits = np.ascontiguousarray(x).reshape(-1).view(np.uint64)
            place = np.arange(bits.size, dtype=np.uint64)
            hashed = ((bits >> np.uint64(1)) ^ (place * _MIX) ^ seed) * _MIX
            hashed = (hashed ^ (hashed >> np.uint64(29))) * _MIX
            # The carry of the addition rounds up; infinities and NaN have nothing in the low bits that could carry.
            return ((bits + (hashed >> keep)) & mask).view(x.dtype).reshape(x.shape)

        return run if drop else _same


def _same(x: Array) -> Array:
    return x


_ROUND = RoundToGrid()


def retyped(module: Module, types: Types = WIDE, grid: int | None = None, seed: int = 0) -> Module:
    """Copies a module with element types mapped. `grid` gives the bits beyond those of their own types to which floats
    that became f64 are rounded (None: no rounding).

    The copy is for running only: it is not verified, and the rounding op has no text. It takes arrays that a flat
    layout joins one by one.
    """
    return _Retyper(unflattened(module), types, grid, seed).run()


class _Retyper:
    """Copies computations in the new types; instructions that must keep their own types are copied with conversions."""

    def __init__(self, module: Module, types: Types, grid: int | None, seed: int) -> None:
        self.module = module
        self.types = types
        self.grid = grid
        self.seed = seed
        self.done: dict[Computation, Computation] = {}
        self.control_flow = computations_run(module) if grid is not None else set[Computation]()

    def run(self) -> Module:
        copy = shell_of(self.module)
        for name in ("entry_layout", "global_layout"):
            layout: EntryLayout | None = getattr(self.module, name)
            if layout is not None:
                setattr(copy, name, EntryLayout(tuple(map(self.shape, layout.parameters)), self.shape(layout.result)))
        for computation in self.module.callees_first():
            self.done[computation] = self.computation(computation)
            copy.add_computation(self.done[computation], entry=computation is self.module.entry)
        return copy

    def shape(self, shape: Shape) -> Shape:
        if shape.is_tuple:
            return dataclasses.replace(shape, elements=tuple(map(self.shape, shape.elements)))
        target = self.types.get(shape.element)
        return shape if target is None else shape.with_element(target)

    def changes(self, shapes: Sequence[Shape]) -> bool:
        return any(leaf.element in self.types for shape in shapes for leaf in shape.leaves())

    def computation(self, source: Computation) -> Computation:
        target = Computation(source.name, source.location)
        made: dict[Instruction, Instruction] = {}
        carriers = bit_carriers(source, self.types)
        carried: dict[Instruction, Instruction] = {}
        for instruction in source:
            if instruction in carriers:
                operands = [carried.get(o) or made[o] for o in instruction.operands]
                carried[instruction] = self.carrier(target, instruction, operands, carriers[instruction])
            operands = [carried[o] if is_cast_back(instruction, carriers) else made[o] for o in instruction.operands]
            if instruction is not source.root and self.rounds_to_integer(instruction):
                made[instruction] = operands[0]
            elif self.in_own_format(instruction) and not is_cast_back(instruction, carriers):
                made[instruction] = self.in_own_types(target, instruction, operands)
            else:
                shape, attributes = self.shape(instruction.shape), self.attributes(instruction.attributes)
                copy = _append(target, instruction, operands, attributes, shape)
                made[instruction] = self.rounded(target, instruction, copy)
        for instruction in source:
            if instruction.control_predecessors:
                made[instruction].control_predecessors = tuple(made[p] for p in instruction.control_predecessors)
        target.root = made[source.root]
        return target

    def rounds_to_integer(self, instruction: Instruction) -> bool:
        """Returns whether an instruction rounds floats for nothing but conversions to integers that become floats."""
        return instruction.op is op_named("round-nearest-even") and bool(instruction.users) and all(
            user.op is op_named("convert") and user.shape.element.is_integer and user.shape.element in self.types
            for user in instruction.users
        )

    def in_own_format(self, instruction: Instruction) -> bool:
        """Returns whether the instruction must run in its own types, and these are among those that change."""
        call = instruction.call
        return floats_of(instruction.op).reads_format(call) and self.changes([*call.operands, call.shape])

    def carrier(
        self, target: Computation, source: Instruction, operands: list[Instruction], element: ElementType
    ) -> Instruction:
        """Copies an integer that carries bits, as wide as the new type of the float."""
        inner = _Retyper(self.module, {source.shape.element: element}, None, 0)
        for callee in source.called():
            inner.done[callee] = inner.computation(callee)
        attributes = inner.attributes(source.attributes)
        return _append(target, source, operands, attributes, source.shape.with_element(element))

    def attributes(self, attributes: Attributes) -> Attributes:
        attributes = map_called(attributes, self.done.__getitem__)
        changes = {
            name: self.literal(value)
            for name in attribute_fields(type(attributes))
            if isinstance(value := getattr(attributes, name), Literal)
        }
        return dataclasses.replace(attributes, **changes) if changes else attributes

    def literal(self, literal: Literal) -> Literal:
        if literal.unknown is not None:
            return unknown(self.shape(literal.shape))
        if literal.array is None:
            return Literal(elements=tuple(map(self.literal, literal.elements)))
        target = self.types.get(literal.shape.element)
        with np.errstate(over="ignore"):
            return literal if target is None else Literal(literal.array.astype(target.numpy))

    def in_own_types(self, target: Computation, source: Instruction, operands: list[Instruction]) -> Instruction:
        """Copies the instruction in its own types, with conversions of its operands and of its result."""
        narrow = [_converted(target, o, s) for o, s in zip(operands, source.call.operands, strict=True)]
        result = _append(target, source, narrow, source.attributes, source.shape)
        return _converted(target, result, self.shape(source.shape))

    def rounded(self, target: Computation, source: Instruction, copy: Instruction) -> Instruction:
        """Rounds the copy to the grid if it is a float that the program's control flow computes."""
        own = source.shape.element
        if self.grid is None or source.parent not in self.control_flow or own not in self.types or not copy.operands:
            return copy
        kept = min(significand_bits(own) + self.grid, FINEST)
        self.seed += 1
        attributes = RoundAttributes(_F64_BITS - kept, (self.seed * int(_MIX)) % (1 << 64))
        return target.add(_ROUND, [copy], attributes, copy.shape, f"{copy.name}.rounded", source)


def _append(
    target: Computation, source: Instruction, operands: list[Instruction], attributes: Attributes, shape: Shape
) -> Instruction:
    copy = Instruction(target.unique_name(source.name), source.op, operands, attributes, shape, source.location)
    copy.sharding, copy.shardy = source.sharding, source.shardy
    copy.metadata, copy.frontend_attributes = source.metadata, source.frontend_attributes
    copy.backend_config = source.backend_config
    target.append(copy)
    return copy


def _converted(target: Computation, value: Instruction, shape: Shape) -> Instruction:
    """Converts the value to the element types of `shape`, which has the same structure."""
    if shape.is_tuple:
        parts = [
            _converted(target, target.build("get-tuple-element", value, index=i), element)
            for i, element in enumerate(shape.elements)
        ]
        return target.add("tuple", parts, shape=tuple_shape(tuple(p.shape for p in parts)))
    if value.shape.element is shape.element:
        return value
    return target.add(op_named("convert"), [value], shape=shape)
