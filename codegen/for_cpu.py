"""Writes the collectives that XLA's CPU runtime lacks, or gets wrong, as others that it gets right.

The runtime (XLA of jaxlib 0.10) adds and multiplies, and takes the greatest and the least. It refuses or, and, and xor
of anything but or and and of `pred`; and its greatest and least of floats lose NaN, for they are those of C++'s
`std::max`. Here floats become integers of the same order and size, NaN at the end: the same bytes are sent. Other
reductions are done by the devices themselves: each reduces a part of the array, which costs as many bytes as the
all-reduce would, or all of a small one.

Of gathers of several arrays in 16 bits it mixes up the parts, so each array has a collective of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir.factors.sharding_rule import Monoid
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, clone_module
from ..ir.graph.monoid import identity, reduction_monoid
from ..ir.graph.python_values import literal_of
from ..ir.ops.collectives import AllReduceAttributes, ReduceScatterAttributes
from ..ir.sharding.replica_groups import ExplicitGroups
from ..ir.tools.process_grid import ProcessGrid
from ..ir.tools.separate import free_channels, separate
from ..ir.types.element_type import PRED, ElementType
from ..ir.types.shape import Shape
from .fft_layouts import with_fft_layouts

Reduction = AllReduceAttributes | ReduceScatterAttributes

_ORDERED = (Monoid.MAXIMUM, Monoid.MINIMUM)
_AS_INTEGERS = {"f16": "s16", "bf16": "s16", "f32": "s32", "f64": "s64"}


def for_cpu(module: Module) -> Module:
    """Returns a program per device whose collectives XLA's CPU runtime gets right, and whose Fourier transforms it
    takes; the module itself if it does already. Reductions by a function that is no monoid stay as they are.
    """
    module = with_fft_layouts(separate(module))
    if not any(_wrong(i) for computation in module for i in computation):
        return module
    copy = clone_module(module)
    grid, channels = ProcessGrid.of(copy), free_channels(copy)
    for computation in list(copy):
        for instruction in list(computation):
            if _wrong(instruction):
                _Rewrite(copy, computation, instruction, grid, channels).run()
    copy.computations = list(copy.callees_first())
    return copy


def _wrong(instruction: Instruction) -> bool:
    """Whether the runtime does not do a reduction."""
    attributes = instruction.attributes
    if not isinstance(attributes, Reduction) or not instruction.op.is_collective:
        return False
    monoid = reduction_monoid(attributes.to_apply)
    return monoid is not None and not _is_right(monoid, instruction.operands[0].shape.element)


def _is_right(monoid: Monoid, element: ElementType) -> bool:
    if monoid in (Monoid.ADD, Monoid.MULTIPLY):
        return True
    if monoid in _ORDERED:
        return not element.is_float
    return element is PRED and monoid is not Monoid.XOR


class _Rewrite:
    """Writes one reduction of an array anew, in the place of the old one."""

    def __init__(
        self, module: Module, computation: Computation, old: Instruction, grid: ProcessGrid, channels: Iterator[int]
    ) -> None:
        self.module, self.computation, self.old, self.channels = module, computation, old, channels
        self.attributes: Any = old.attributes
        groups, _ = grid.members(old)
        self.groups, self.size = ExplicitGroups(tuple(tuple(g) for g in groups)), len(groups[0])
        self.scattered: tuple[int, ...] = getattr(self.attributes, "dimensions", ())  # of a reduce-scatter
        self.equal = len({len(g) for g in groups}) == 1

    def run(self) -> None:
        """Replaces the reduction."""
        monoid = reduction_monoid(self.attributes.to_apply)
        if monoid is None or not self.equal:
            return
        new = self._one(monoid, self.old.operands[0], self.old.shape)
        new.sharding = self.old.sharding
        self.computation.replace_all_uses(self.old, new)
        self.computation.remove(self.old)

    def _one(self, monoid: Monoid, operand: Instruction, result: Shape) -> Instruction:
        element = operand.shape.element
        if monoid in _ORDERED and element.name in _AS_INTEGERS:
            return self._through_integers(monoid, operand)
        if not operand.shape.num_elements:
            return self._filled(0, result)
        if self.scattered:
            return self._scattered(monoid, operand, *self.scattered)
        if operand.shape.num_elements % self.size:
            return self._gathered(monoid, operand)
        flat = self._add("reshape", operand, shape=operand.shape.with_dims((operand.shape.num_elements,)))
        part = self._scattered(monoid, flat, 0)
        return self._add("reshape", self._gather(part, 0), shape=result.without_layout())

    def _reduction(self, operand: Instruction, reducer: Computation) -> Instruction:
        """Reduces an operand as the old instruction does, by another function."""
        extra = {"dimensions": self.scattered} if self.scattered else {}
        return self._add(self.old.opcode, operand, replica_groups=self.groups, channel_id=next(self.channels),
                         use_global_device_ids=True, to_apply=reducer, **extra)  # fmt: skip

    def _through_integers(self, monoid: Monoid, operand: Instruction) -> Instruction:
        """Reduces floats as integers of the same order. Of those below zero, all bits but the sign are inverted."""
        shape, integer = operand.shape.without_layout(), _AS_INTEGERS[operand.shape.element.name]
        bits = self._add("bitcast-convert", operand, shape=f"{integer}[{','.join(map(str, shape.dims))}]")
        largest = 2 ** (shape.element.bits - 1) - 1
        extreme = self._filled(largest if monoid is Monoid.MAXIMUM else -largest - 1, bits.shape)
        is_nan = self._add("compare", operand, operand, direction="NE")
        key = self._add("select", is_nan, extreme, self._swapped(bits, largest))
        scalar = f"{monoid.value}_{integer}"
        reduced = self._reduction(key, self._reducer(monoid, bits.shape.with_dims(()), scalar))
        return self._add("bitcast-convert", self._swapped(reduced, largest),
                         shape=reduced.shape.without_layout().with_element(shape.element))  # fmt: skip

    def _swapped(self, bits: Instruction, largest: int) -> Instruction:
        """Turns the bits of floats into integers of the same order, or back."""
        width = self._filled(bits.shape.element.bits - 1, bits.shape)
        sign = self._add("shift-right-arithmetic", bits, width)
        return self._add("xor", bits, self._add("and", sign, self._filled(largest, bits.shape)))

    def _scattered(self, monoid: Monoid, operand: Instruction, dim: int) -> Instruction:
        """Exchanges the parts along a dimension, and reduces those of one's own."""
        dims = operand.shape.dims
        split = (*dims[:dim], self.size, dims[dim] // self.size, *dims[dim + 1 :])
        parts = self._add("reshape", operand, shape=operand.shape.without_layout().with_dims(split))
        mine = self._add("all-to-all", parts, dimensions=(dim,), replica_groups=self.groups,
                         channel_id=next(self.channels))  # fmt: skip
        return self._reduced(monoid, mine, dim)

    def _gathered(self, monoid: Monoid, operand: Instruction) -> Instruction:
        """Gathers the arrays of all devices of a group, and reduces them."""
        one = self._add("reshape", operand, shape=operand.shape.without_layout().with_dims((1, *operand.shape.dims)))
        return self._reduced(monoid, self._gather(one, 0), 0)

    def _gather(self, operand: Instruction, dim: int) -> Instruction:
        dims = list(operand.shape.dims)
        dims[dim] *= self.size
        return self._add("all-gather", operand, shape=operand.shape.without_layout().with_dims(tuple(dims)),
                         dimensions=(dim,), replica_groups=self.groups, channel_id=next(self.channels),
                         use_global_device_ids=True)  # fmt: skip

    def _reduced(self, monoid: Monoid, operand: Instruction, dim: int) -> Instruction:
        start = self._constant(identity(monoid, operand.shape.element), operand.shape.element)
        return self._add("reduce", operand, start, dimensions=(dim,), to_apply=self.attributes.to_apply)

    def _reducer(self, monoid: Monoid, scalar: Shape, name: str) -> Computation:
        made = self.module.new_computation(name)
        made.root = made.build(monoid.value, *(made.build("parameter", shape=scalar, number=n) for n in range(2)))
        return made

    def _filled(self, value: int, shape: Shape) -> Instruction:
        constant = self._constant(value, shape.element)
        return self._add("broadcast", constant, shape=shape.without_layout(), dimensions=())

    def _constant(self, value: Any, element: ElementType) -> Instruction:
        return self._add("constant", literal=literal_of(value, element.name))

    def _add(self, opcode: str, *operands: Instruction, **options: Any) -> Instruction:
        return self.computation.build(opcode, *operands, like=self.old, before=self.old, **options)
