"""The program under construction: per-device instructions, and the values they represent.

A `LocalValue` is one device's part of a global array: an instruction of the new computation, the global shape and the
tiling. The `Emitter` appends instructions to one computation of the LOCAL module: arithmetic on the partition id,
masks, slices and collectives. Equal scalar instructions are emitted once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.diagnostics import fail
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import NONE, Attributes, PadDim, PaddingConfig, SliceDim
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import FrontendAttributes, Instruction
from ....ir.graph.monoid import exact_identity
from ....ir.graph.op import AnyOp
from ....ir.ops.comparison import CompareAttributes, ComparisonDirection
from ....ir.ops.shaping import BroadcastAttributes, IotaAttributes, TransposeAttributes
from ....ir.ops.slicing import DynamicSliceAttributes, PadAttributes, SliceAttributes
from ....ir.ops.structure import ConstantAttributes, moved_constant
from ....ir.sharding.digit import Digits, product
from ....ir.sharding.tiling import Tiling
from ....ir.types.element_type import PRED, S8, S32, S64, ElementType
from ....ir.types.literal import Array, Literal
from ....ir.types.shape import Shape, array
from ...op_sharding.anywhere import repeated_scalar


@dataclass(slots=True, eq=False)  # not frozen, which would make creating one, as for each instruction, twice as slow
class LocalValue:
    """One device's tile of an array of shape `shape` under `tiling`, which `instruction` computes. It is never changed.

    Elements of the tile beyond the array's end are arbitrary. `monoid` says how unreduced values combine.
    `rematerialize` computes the value under another tiling instead of communicating it, by a chain of `depth` ops; it
    returns None for tilings where it cannot. A value `from_replicated` is computed from replicated values and is no
    larger than they are.
    """

    instruction: Instruction
    shape: Shape
    tiling: Tiling
    monoid: Monoid | None = None
    rematerialize: Callable[[Tiling], LocalValue | None] | None = None
    depth: int = 0
    from_replicated: bool = False

    def computed_by(
        self, rematerialize: Callable[[Tiling], LocalValue | None], depth: int, from_replicated: bool
    ) -> LocalValue:
        """Returns the same value with a function that computes it again."""
        return LocalValue(
            self.instruction, self.shape, self.tiling, self.monoid, rematerialize, depth, from_replicated
        )


class Emitter:
    """Appends instructions to `computation`, with the location and metadata of the instruction `like`."""

    def __init__(self, computation: Computation, order: tuple[int, ...] | None) -> None:
        self.computation = computation
        self.order = order
        self.like: Instruction | None = None
        self._scalars: dict[Hashable, Instruction] = {}

    def add(
        self,
        opcode: AnyOp | str,
        operands: Sequence[Instruction],
        attributes: Attributes = NONE,
        shape: Shape | None = None,
        cause: FrontendAttributes | None = None,
        name: str | None = None,
    ) -> Instruction:
        """Appends an instruction; infers its shape if none is given."""
        result = self.computation.add(opcode, operands, attributes, shape, name, self.like)
        if cause:
            result.frontend_attributes = cause
        return result

    def repeat(
        self, made: Instruction, operands: list[Instruction], name: str, attributes: Attributes | None = None
    ) -> Instruction:
        """Appends an instruction like another one, on other operands of the same shapes, or with other attributes."""
        target, origin = self.computation, self.like or made
        copy = made.repeated(
            target.unique_name(name), operands, attributes or made.attributes, origin.location, origin.metadata)
        target.append(copy)
        return copy

    def shared(
        self, opcode: str, operands: Sequence[Instruction], attributes: Attributes = NONE, shape: Shape | None = None
    ) -> Instruction:
        """Works like `add`, but reuses an equal instruction emitted this way before."""
        key = (opcode, tuple(map(id, operands)), attributes, shape)
        if key not in self._scalars:
            like, self.like = self.like, None
            self._scalars[key] = self.add(opcode, operands, attributes, shape)
            self.like = like
        return self._scalars[key]

    @contextmanager
    def with_order(self, order: tuple[int, ...] | None) -> Generator[None]:
        """Counts digits in another device order within a `with` statement."""
        before, self.order = self.order, order
        try:
            yield
        finally:
            self.order = before

    @contextmanager
    def attributed_to(self, like: Instruction) -> Generator[None]:
        """Attributes instructions to `like` within a `with` statement."""
        before, self.like = self.like, like
        try:
            yield
        finally:
            self.like = before

    # -- scalars and constants

    def constant(self, value: Any, element: ElementType) -> Instruction:
        """Returns a scalar constant. Raises CompileError for an integer that the type cannot hold."""
        if isinstance(value, int) and element.is_integer:
            self.check(value, element)
        if element.numpy is None:  # single-bit types, which have no literals
            return self.shared("convert", (self.constant(value, S8),), NONE, array(element))
        return self.literal(Literal(np.asarray(value).astype(element.numpy)))

    def literal(self, literal: Literal) -> Instruction:
        return self.shared("constant", (), ConstantAttributes(literal), literal.shape)

    def splat(self, scalar: Instruction, dims: tuple[int, ...]) -> Instruction:
        """Fills an array with a scalar."""
        if not dims:
            return scalar
        return self.shared("broadcast", (scalar,), BroadcastAttributes(()), scalar.shape.with_dims(dims))

    def zeros(self, element: ElementType, dims: tuple[int, ...]) -> Instruction:
        """Returns an array of zeros."""
        return self.splat(self.constant(0, element), dims)

    def partition_id(self) -> Instruction:
        """Returns this device's number as s32, or its place in an irregular device order."""
        device = self.shared("convert", (self.shared("partition-id", ()),), NONE, array(S32))
        if self.order is None:
            return device
        return self.entry(np.argsort(np.asarray(self.order)).tolist(), device)

    def entry(self, table: Sequence[int], place: Instruction) -> Instruction:
        """Returns `table[place]` as an s32 scalar. Raises CompileError for an entry that s32 cannot hold."""
        for value in (min(table), max(table)):
            self.check(value, S32)
        row = (self.literal(Literal(np.array(table, np.int32))), place)
        found = self.shared("dynamic-slice", row, DynamicSliceAttributes((1,)))
        return self.shared("reshape", (found,), NONE, array(S32))

    def coordinate(self, digits: Digits) -> Instruction:
        """Returns the number that the digits of this device form, as an s32 scalar."""
        result: Instruction | None = None
        for digit in digits:
            part = self.partition_id()
            if digit.stride > 1:
                part = self.shared("divide", (part, self.constant(digit.stride, S32)))
            part = self.shared("remainder", (part, self.constant(digit.size, S32)))
            if result is not None:
                result = self.shared("multiply", (result, self.constant(digit.size, S32)))
                part = self.shared("add", (result, part))
            result = part
        return result if result is not None else self.constant(0, S32)

    def is_first(self, digits: Digits) -> Instruction:
        """Returns a scalar predicate: whether this device is the first of those that differ in these digits."""
        place = self.coordinate(tuple(sorted(digits, key=lambda d: -d.stride)))
        return self.shared("compare", (place, self.constant(0, S32)), CompareAttributes(ComparisonDirection.EQ))

    def only_first(self, digits: Digits, value: Instruction, identity_value: Any) -> Instruction:
        """Returns `value` on the first of the devices that differ in these digits, `identity_value` on the others.

        Zeros of either sign may stay on all: the sum of equal ones has their sign.
        """
        if not digits:
            return value
        made = moved_constant(value)
        if made is not None and bool(np.all(made == identity_value)):
            return value
        dims = value.shape.dims
        fill = self.splat(self.constant(identity_value, value.shape.element), dims)
        return self.add("select", (self.splat(self.is_first(digits), dims), value, fill))

    def offset(self, digits: Digits, tile: int, element: ElementType = S32) -> Instruction:
        """Returns the scalar start of this device's tile of `tile` elements along a dimension.

        Raises CompileError for a dimension whose places the type cannot hold.
        """
        self.check((product(digits) - 1) * tile, element)
        place = self.coordinate(digits)
        if element is not S32:
            place = self.shared("convert", (place,), NONE, array(element))
        return self.shared("multiply", (place, self.constant(tile, element)))

    def check(self, value: int, element: ElementType) -> None:
        """Raises CompileError for a number that the type cannot hold."""
        if not -element.greatest - 1 <= value <= element.greatest:
            what = f"{self.like.opcode} {self.like.name}" if self.like is not None else "this op"
            fail(f"{what} needs indices up to {abs(value):,} along a divided dimension, too large for {element}",
                 self.like.location if self.like is not None else None,
                 help="split the dimension by a reshape, or divide another one")

    # -- arrays

    def pad_to(self, value: Instruction, dim: int, size: int) -> Instruction:
        """Pads the array with zeros (or false) at the end of a dimension, or cuts it there, to `size` elements."""
        have = value.shape.dims[dim]
        if have == size:
            return value
        if size < have:
            limits = tuple(SliceDim(0, size if i == dim else n) for i, n in enumerate(value.shape.dims))
            return self.add("slice", (value,), SliceAttributes(limits))
        padding = PaddingConfig(
            tuple(PadDim(0, size - have if i == dim else 0) for i in range(value.shape.rank))
        )
        zero = self.constant(0, value.shape.element)
        return self.add("pad", (value, zero), PadAttributes(padding))

    def dynamic_slice(self, value: Instruction, starts: dict[int, Instruction], sizes: tuple[int, ...]) -> Instruction:
        """Returns the part of `sizes` elements that begins at `starts` (0 where not given)."""
        if not starts and value.shape.dims == sizes:
            return value
        zero = self.constant(0, S32)
        indices = [starts.get(dim, zero) for dim in range(value.shape.rank)]
        return self.add("dynamic-slice", (value, *indices), DynamicSliceAttributes(sizes))

    def reshape(self, value: Instruction, dims: tuple[int, ...]) -> Instruction:
        if value.shape.dims == dims:
            return value
        return self.add("reshape", (value,), NONE, value.shape.with_dims(dims))

    def transpose(self, value: Instruction, perm: tuple[int, ...]) -> Instruction:
        if perm == tuple(range(len(perm))):
            return value
        return self.add("transpose", (value,), TransposeAttributes(perm))

    def compare(self, left: Instruction, right: Instruction, direction: ComparisonDirection) -> Instruction:
        return self.add("compare", (left, right), CompareAttributes(direction))

    def inside(self, shape: Shape, tiling: Tiling, dims: Sequence[int]) -> Instruction | None:
        """Returns a mask of the tile that is true where all of `dims` are within the array; None if that holds
        everywhere.
        """
        local = tiling.local_dims(shape.dims)
        mask: Instruction | None = None
        for dim in dims:
            if shape.dims[dim] % product(tiling.dims[dim]) == 0:
                continue
            element = places_type(shape.dims[dim])
            index = self.shared("iota", (), IotaAttributes(dim), array(element, local))
            start = self.splat(self.offset(tiling.dims[dim], local[dim], element), local)
            index = self.shared("add", (index, start))
            end = self.splat(self.constant(shape.dims[dim], element), local)
            within = self.shared("compare", (index, end), CompareAttributes(ComparisonDirection.LT), array(PRED, local))
            mask = within if mask is None else self.shared("and", (mask, within))
        return mask

    def fill_outside(self, value: LocalValue, dims: Sequence[int], monoid: Monoid) -> LocalValue:
        """Returns the value with the monoid's identity in the padding of `dims`."""
        mask = self.inside(value.shape, value.tiling, dims)
        if mask is None:
            return value
        element = value.shape.element
        fill = self.splat(self.constant(exact_identity(monoid, element), element), mask.shape.dims)
        return LocalValue(self.add("select", (mask, value.instruction, fill)), value.shape, value.tiling, value.monoid)


def places_type(size: int) -> ElementType:
    """Returns the integer type that counts the places of a dimension, including its padding."""
    return S32 if size < 1 << 30 else S64


def splat_scalar(value: LocalValue) -> Instruction | None:
    """Returns the scalar that a value visibly repeats on every device, if any."""
    on_every_device = not value.tiling.unreduced and value.tiling.device is None
    return repeated_scalar(value.instruction) if on_every_device else None


def is_made_anywhere(value: LocalValue) -> bool:
    """Whether any device can compute any tile of a value without communication."""
    return value.rematerialize is not None or splat_scalar(value) is not None


def is_array_of(value: Array, scalar: Any) -> bool:
    """Whether every element of a numpy array equals this scalar bit by bit."""
    expected = np.full(value.shape, scalar, dtype=value.dtype)
    return expected.tobytes() == np.ascontiguousarray(value).tobytes()
