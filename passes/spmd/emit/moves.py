"""The moves of a resharding plan as instructions.

One `MoveEmitter` emits one plan. Consecutive slices become one dynamic-slice. Every collective has its cause in the
frontend attribute `hloom.cause`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.diagnostics import InternalError
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.attributes import NONE
from ....ir.graph.instruction import FrontendAttributes, Instruction
from ....ir.graph.monoid import exact_identity
from ....ir.ops.collectives import (
    AllGatherAttributes,
    AllReduceAttributes,
    AllToAllAttributes,
    CollectivePermuteAttributes,
    ReduceScatterAttributes,
)
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.structure import moved_constant
from ....ir.sharding.digit import Digits, product
from ....ir.sharding.replica_groups import ReplicaGroups, over_digits
from ....ir.types.element_type import ELEMENT_TYPES, PRED, S32, ElementType
from ....ir.types.shape import Shape
from ...resharding.base.moves import (
    AllGatherMove,
    AllReduceMove,
    AllToAllMove,
    Exchange,
    Mask,
    Move,
    Permute,
    ReduceScatterMove,
    ReshardPlan,
    SliceMove,
    Spread,
)
from ...resharding.exchange.plan import plan_exchange
from ...resharding.exchange.quotient import quotient
from .channels import Channels, permute_pairs
from .emitter import Emitter
from .exchange import emit_exchange

_SMALL = 256  # bytes up to which padded tiles may be as large as the array


@dataclass
class MoveEmitter:
    """Emits moves of an array of the (global) shape. `order` is the device order of its current tiling.

    The numbers of an `unreduced` result are added later, so that all but one of them have to be -0.0 in their own type.
    """

    emitter: Emitter
    channels: Channels
    shape: Shape
    monoid: Monoid
    order: tuple[int, ...] | None
    cause: FrontendAttributes
    unreduced: bool = False

    def emit(self, array: Instruction, plan: ReshardPlan) -> Instruction:
        """Returns the array after the moves. Raises InternalError for a plan that replicates it on the way without
        need.
        """
        source, between = array, list[Instruction]()
        slices: list[SliceMove] = []
        if not self.unreduced and any(isinstance(move, Mask) and move.device is not None for move in plan.moves):
            array = self._as_bits(array)
        for move in plan.moves:
            if isinstance(move, SliceMove):
                slices.append(move)
                continue
            array = self._move(self._slice(array, slices), move)
            between.append(array)
            slices = []
        array = self._slice(array, slices)
        if not plan.may_replicate:
            self._check_between(source, between, array)
        if array.shape.element is self.shape.element:
            return array
        array = self._cast("bitcast-convert", array, _holder(self.shape.element))
        return self._cast("convert", array, self.shape.element)

    def _check_between(self, source: Instruction, between: Sequence[Instruction], result: Instruction) -> None:
        """Checks that no device holds the whole array in between if it does so at neither end: it may lack the memory.
        """

        def is_whole(array: Instruction) -> bool:
            return all(n >= size for n, size in zip(array.shape.dims, self.shape.dims, strict=True))

        if self.shape.byte_size <= _SMALL or is_whole(source) or is_whole(result):
            return
        if any(map(is_whole, between)):
            ends = f"from tiles of {source.shape} to tiles of {result.shape}"
            raise InternalError(f"{self.cause.get('hloom.cause')}: {self.shape} is replicated on the way {ends}")

    def _as_bits(self, array: Instruction) -> Instruction:
        """Returns the array as integers, to which adding zeros changes nothing (-0.0 + 0.0 is not -0.0)."""
        element = array.shape.element
        self.monoid = Monoid.OR if element is PRED else Monoid.ADD
        if not element.is_float:
            return array
        holder = _holder(element)
        array = self._cast("convert", array, holder)
        return self._cast("bitcast-convert", array, ELEMENT_TYPES[f"u{holder.bits}"])

    def _cast(self, opcode: str, array: Instruction, element: ElementType) -> Instruction:
        if array.shape.element is element:
            return array
        return self.emitter.add(opcode, (array,), NONE, Shape(element, array.shape.dims))

    def _move(self, array: Instruction, move: Move) -> Instruction:
        match move:
            case AllGatherMove():
                return self._all_gather(array, move)
            case AllToAllMove():
                return self._all_to_all(array, move)
            case AllReduceMove():
                return self._all_reduce(array, move.digits)
            case ReduceScatterMove():
                return self._reduce_scatter(array, move)
            case Mask():
                return self._mask(array, move)
            case Spread():
                return self._spread(array, move)
            case Permute():
                self.order = move.target.order
                pairs = permute_pairs(move.source, move.target, self.channels.devices)
                attributes = CollectivePermuteAttributes(source_target_pairs=pairs, channel_id=self.channels.next())
                return self.emitter.add("collective-permute", (array,), attributes, cause=self.cause)
            case Exchange():
                self.order = move.target.order
                plan = plan_exchange(quotient(move, self.shape.dims, self.channels.devices))
                return emit_exchange(self._ordered(plan.part.order), array, plan, self.channels, self.cause)
            case SliceMove():
                return self._slice(array, [move])

    def _groups(self, digits: Digits) -> ReplicaGroups:
        return over_digits(self.channels.devices, digits, self.order)

    def _ordered(self, order: tuple[int, ...] | None) -> Emitter:
        if order == self.emitter.order:
            return self.emitter
        other = Emitter(self.emitter.computation, order)
        other.like = self.emitter.like
        return other

    # -- without communication

    def _slice(self, array: Instruction, slices: list[SliceMove]) -> Instruction:
        """Emits all slices as one dynamic-slice."""
        if not slices:
            return array
        emitter = self._ordered(self.order)
        parts: dict[int, Digits] = {}
        for move in slices:
            if move.dim not in parts:
                array = emitter.pad_to(array, move.dim, move.padded)
            parts[move.dim] = parts.get(move.dim, ()) + move.digits
        sizes = [n // product(parts.get(dim, ())) for dim, n in enumerate(array.shape.dims)]
        starts = {dim: emitter.offset(digits, sizes[dim]) for dim, digits in parts.items()}
        return emitter.dynamic_slice(array, starts, tuple(sizes))

    def _identities(self, array: Instruction, dims: tuple[int, ...]) -> Instruction:
        element = array.shape.element
        return self.emitter.splat(self.emitter.constant(exact_identity(self.monoid, element), element), dims)

    def _mask(self, array: Instruction, move: Mask) -> Instruction:
        self.order = move.order
        numbers = moved_constant(array)
        if numbers is not None and (numbers == exact_identity(self.monoid, array.shape.element)).all():
            return array  # on all devices, identities combine to the identity (to +0.0, if they are)
        if move.device is None:
            emitter = self._ordered(self.order)
            place, chosen = emitter.coordinate(move.digits), 0
        else:
            emitter = self._ordered(None)
            place, chosen = emitter.partition_id(), move.device
        here = emitter.compare(place, emitter.constant(chosen, S32), ComparisonDirection.EQ)
        dims = array.shape.dims
        return emitter.add("select", (emitter.splat(here, dims), array, self._identities(array, dims)))

    def _spread(self, array: Instruction, move: Spread) -> Instruction:
        emitter = self._ordered(self.order)
        tile = array.shape.dims[move.dim]
        dims = tuple(n * product(move.digits) if i == move.dim else n for i, n in enumerate(array.shape.dims))
        starts = [emitter.constant(0, S32)] * len(dims)
        starts[move.dim] = emitter.offset(move.digits, tile)
        result = emitter.add("dynamic-update-slice", (self._identities(array, dims), array, *starts))
        return emitter.pad_to(result, move.dim, move.size)

    # -- collectives

    def _among(self, digits: Digits) -> dict[str, Any]:
        """Returns the attributes of a collective among the devices that differ in these digits."""
        groups = self._groups(digits)
        return {"channel_id": self.channels.next(), "replica_groups": groups, "use_global_device_ids": True}

    def _all_gather(self, array: Instruction, move: AllGatherMove) -> Instruction:
        size = product(move.digits)
        shape = array.shape.with_dims(tuple(n * size if i == move.dim else n for i, n in enumerate(array.shape.dims)))
        attributes = AllGatherAttributes(dimensions=(move.dim,), **self._among(move.digits))
        gathered = self.emitter.add("all-gather", (array,), attributes, shape, self.cause)
        return self.emitter.pad_to(gathered, move.dim, move.size)

    def _all_to_all(self, array: Instruction, move: AllToAllMove) -> Instruction:
        """Splits target dimensions into a part per shift and the rest, and exchanges all parts as one dimension.

        Each part, which then counts senders, is moved in front of the source dimension of its shift.
        """
        emitter, counts = self.emitter, [product(shift.digits) for shift in move.shifts]
        rank = array.shape.rank
        for dim, size in enumerate(move.padded):
            array = emitter.pad_to(array, dim, size)
        # Parts are numbered from `rank` on, after the dimensions themselves.
        split = [[rank + i for i, s in enumerate(move.shifts) if s.target == dim] + [dim] for dim in range(rank)]
        joined = [[rank + i for i, s in reversed([*enumerate(move.shifts)]) if s.source == dim] + [dim]
                  for dim in range(rank)]
        size_of = [n // product(d for s in move.shifts if s.target == dim for d in s.digits)
                   for dim, n in enumerate(move.padded)] + counts
        axes = [axis for part in split for axis in part]
        parts = [rank + i for i in range(len(counts))]
        array = emitter.reshape(array, tuple(size_of[axis] for axis in axes))
        place = axes.index(rank)
        if axes[place : place + len(parts)] != parts:
            place, rest = 0, [axis for axis in axes if axis < rank]
            array = emitter.transpose(array, tuple(map(axes.index, parts + rest)))
            axes = parts + rest
        dims, count = array.shape.dims, product(move.digits)
        array = emitter.reshape(array, (*dims[:place], count, *dims[place + len(parts) :]))
        attributes = AllToAllAttributes(
            dimensions=(place,), channel_id=self.channels.next(), replica_groups=self._groups(move.digits)
        )
        array = emitter.add("all-to-all", (array,), attributes, cause=self.cause)
        array = emitter.transpose(emitter.reshape(array, dims), tuple(axes.index(a) for part in joined for a in part))
        array = emitter.reshape(array, tuple(math.prod(size_of[axis] for axis in part) for part in joined))
        for dim, size in enumerate(move.sizes):
            array = emitter.pad_to(array, dim, size)
        return array

    def _all_reduce(self, array: Instruction, digits: Digits) -> Instruction:
        reducer = self.channels.reducer(self.monoid, array.shape)
        attributes = AllReduceAttributes(to_apply=reducer, **self._among(digits))
        return self.emitter.add("all-reduce", (array,), attributes, cause=self.cause)

    def _reduce_scatter(self, array: Instruction, move: ReduceScatterMove) -> Instruction:
        count = product(move.digits)
        array = self.emitter.pad_to(array, move.dim, move.padded)
        dims = tuple(n // count if i == move.dim else n for i, n in enumerate(array.shape.dims))
        reducer = self.channels.reducer(self.monoid, array.shape)
        attributes = ReduceScatterAttributes(dimensions=(move.dim,), to_apply=reducer, **self._among(move.digits))
        return self.emitter.add("reduce-scatter", (array,), attributes, array.shape.with_dims(dims), self.cause)


def _holder(element: ElementType) -> ElementType:
    """Returns the float type that holds the element's bits for a bitcast: f16 holds floats without integers of their
    width.
    """
    return element if f"u{element.bits}" in ELEMENT_TYPES else ELEMENT_TYPES["f16"]
