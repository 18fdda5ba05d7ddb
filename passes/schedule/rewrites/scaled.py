"""Exchanges of floats in eight bits, in blocks that have a scale each.

    x = f32[..]                                     -- a block: B adjacent elements
    s = max(abs(x)) / 127        one per block      q = s8[..] round(x / s)
    x' = q * s                                      -- |x' - x| <= s / 2

The largest magnitude of a block becomes the largest number of the type, as in ZeRO++ (Wang et al., 2023, section 3)
and, with floats of eight bits, in DeepSeek-V3 (2024, section 3.3). A block with an infinity or NaN becomes NaN as a
whole, so none gets lost. Devices never add such numbers: they exchange parts of their arrays, and add these in f32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from ml_dtypes import finfo, iinfo

from ....cost.collectives import kind_of
from ....cost.formulas import Kind
from ....ir.divisors import divisors
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.ops.collectives import AllGatherAttributes, AllToAllAttributes
from ....ir.sharding.replica_groups import Groups
from ....ir.types.element_type import ELEMENT_TYPES, ElementType
from .base import RewriteProgram, amount, time_text
from .exchange_types import unit_of_rounding

F32, F64 = ELEMENT_TYPES["f32"], ELEMENT_TYPES["f64"]
_EXCHANGES: dict[Kind, tuple[Kind, ...]] = {  # in eight bits, in place of one of each kind
    "all-gather": ("all-gather",), "reduce-scatter": ("all-to-all",), "all-reduce": ("all-to-all", "all-gather"),
}  # fmt: skip
_LEAST, _MOST = 32, 256  # elements of a block: a scale of four bytes adds an eighth to shorter ones


def largest(element: ElementType) -> float:
    """Returns the number of a type that stands for the largest magnitude of a block. -largest is in the type, too."""
    return float(_limits(element).max)


def rounding(element: ElementType, own: ElementType) -> float:
    """Returns the bound of the error of numbers of type `own`, as a share of the largest magnitude of a block."""
    most = largest(element)
    eps = 0.0 if element.is_integer else float(_limits(element).eps)
    spacing = eps * 2 ** math.floor(math.log2(most)) or 1.0
    return spacing / 2 / most + unit_of_rounding(own)


def _limits(element: ElementType) -> Any:
    return cast(Any, (iinfo if element.is_integer else finfo)(cast(Any, element.numpy)))


def _wide(element: ElementType) -> ElementType:
    return F64 if element is F64 else F32


def block_size(elements: int) -> int:
    """Returns how many of so many adjacent elements share a scale: the largest divisor up to 256, else the least one
    above; 0 if they are too few.
    """
    found = divisors(elements) if elements else ()
    fitting = [n for n in found if _LEAST <= n <= _MOST]
    return max(fitting) if fitting else next((n for n in found if n > _MOST), 0)


@dataclass(frozen=True, slots=True)
class Costs:
    """The bytes of a collective's larger side, and its picoseconds on the links, before and after."""

    bytes: tuple[int, int]
    times: tuple[float, float]

    @staticmethod
    def of(
        program: RewriteProgram, collective: Instruction, groups: Groups, element: ElementType, block: int
    ) -> Costs:  # fmt: skip
        own, kind = collective.shape.element, kind_of(collective)
        elements = max(collective.shape.num_elements, collective.operands[0].shape.num_elements)
        parts = elements * element.byte_size, elements // block * _wide(own).byte_size
        before = elements * own.byte_size
        after = sum(program.time(made, part, groups) for made in _EXCHANGES[kind] for part in parts)
        return Costs((before, sum(parts)), (program.time(kind, before, groups), after))

    @property
    def objection(self) -> str:
        """Says that eight bits take longer; empty if they do not."""
        before, after = self.times
        return f"{time_text(before)} on the links, {time_text(after)} with scales" if after > before else ""

    def __str__(self) -> str:
        sizes, times = " become ".join(map(amount, self.bytes)), " become ".join(map(time_text, self.times))
        return f"{sizes}, {times}"


@dataclass(frozen=True, slots=True)
class Scaled:
    """Numbers and scales of an array: `numbers` [outer, blocks, B] in the short type, `scales` [outer, blocks] in that
    of the computation.
    """

    numbers: Instruction
    scales: Instruction


@dataclass(frozen=True)
class ScaledExchange:
    """Emits exchanges of one collective's data in the type `element`, in blocks of `block` elements."""

    program: RewriteProgram
    computation: Computation
    collective: Instruction
    element: ElementType
    block: int

    @property
    def wide(self) -> ElementType:
        """The type of scales and sums."""
        return _wide(self.collective.shape.element)

    def shorten(self, value: Instruction, outer: int) -> Scaled:
        """Returns an array as blocks: `outer` rows, each of adjacent elements."""
        wide, build = self.wide, self.computation.build
        blocks = value.shape.num_elements // (outer * self.block)
        x = self._reshape(self._convert(value, wide), (outer, blocks, self.block))
        zero, most = self._number(0.0), self._number(largest(self.element))
        greatest = build("reduce", build("abs", x), zero, dimensions=(2,), to_apply=self._reducer(Monoid.MAXIMUM))
        # A block of zeros has a scale, too: 0 / 0 would make NaN of them.
        least = self._number(float(_limits(wide).smallest_normal))
        rows = greatest.shape.dims
        shares = build("divide", greatest, self._spread(most, rows, ()))
        scales = build("maximum", shares, self._spread(least, rows, ()))
        numbers = build("divide", x, self._spread(scales, x.shape.dims, (0, 1)))
        if self.element.is_integer:
            numbers = build("round-nearest-even", numbers)
        return Scaled(self._convert(numbers, self.element), scales)

    def lengthen(self, found: Scaled) -> Instruction:
        """Returns the numbers times their scales, [outer, blocks, B]."""
        numbers = self._convert(found.numbers, self.wide)
        return self.computation.build("multiply", numbers, self._spread(found.scales, numbers.shape.dims, (0, 1)))

    def gather(self, found: Scaled, groups: Groups) -> Scaled:
        """Joins the blocks of all devices of a group, in its order."""
        return Scaled(*(self._gathered(x, groups) for x in (found.numbers, found.scales)))

    def scatter(self, found: Scaled, groups: Groups) -> Instruction:
        """Adds the blocks of all devices. Returns each device's part of the sum, [outer, blocks / devices, B]."""
        received = self.lengthen(Scaled(*(self._to_all(x, groups) for x in (found.numbers, found.scales))))
        (outer, blocks, block), devices = received.shape.dims, len(groups[0])
        parts = self._reshape(received, (outer, devices, blocks // devices, block))
        add, zero = self._reducer(Monoid.ADD), self._number(0.0)
        return self.computation.build("reduce", parts, zero, dimensions=(1,), to_apply=add)

    def result(self, value: Instruction) -> Instruction:
        """Returns a value in the shape and type of the collective."""
        shape = self.collective.shape
        return self._convert(self._reshape(value, shape.dims), shape.element)

    @property
    def rounding(self) -> float:
        """The bound of the error, as a share of the largest magnitude of a block."""
        return rounding(self.element, self.collective.shape.element)

    def _gathered(self, value: Instruction, groups: Groups) -> Instruction:
        dims = (value.shape.dims[0], value.shape.dims[1] * len(groups[0]), *value.shape.dims[2:])
        attributes = AllGatherAttributes(dimensions=(1,), **self.program.grouping.attributes(groups))
        return self._exchanged("all-gather", value, attributes, dims)

    def _to_all(self, value: Instruction, groups: Groups) -> Instruction:
        given = self.program.grouping.attributes(groups)
        del given["use_global_device_ids"]  # which an all-to-all has not: its groups count partitions, here all devices
        return self._exchanged("all-to-all", value, AllToAllAttributes(dimensions=(1,), **given), value.shape.dims)

    def _exchanged(self, opcode: str, value: Instruction, attributes: Any, dims: tuple[int, ...]) -> Instruction:
        new = self.computation.add(opcode, (value,), attributes, value.shape.with_dims(dims), like=self.collective)
        new.frontend_attributes = self.collective.frontend_attributes
        return new

    def _reducer(self, monoid: Monoid) -> Computation:
        return self.program.reducer(monoid, self.wide)

    def _number(self, value: float) -> Instruction:
        return self.computation.constant(value, self.wide.name)

    def _spread(self, value: Instruction, dims: tuple[int, ...], kept: tuple[int, ...]) -> Instruction:
        return self.computation.build("broadcast", value, shape=value.shape.with_dims(dims), dimensions=kept)

    def _convert(self, value: Instruction, element: ElementType) -> Instruction:
        if value.shape.element is element:
            return value
        return self.computation.build("convert", value, shape=value.shape.with_element(element))

    def _reshape(self, value: Instruction, dims: tuple[int, ...]) -> Instruction:
        if value.shape.dims == dims:
            return value
        return self.computation.build("reshape", value, shape=value.shape.with_dims(dims), like=self.collective)
