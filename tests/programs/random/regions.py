"""Manual regions (`shard_map`) as a family of random ops: tiles of a value, ops on them, collectives, and back.

A region takes some axes of the mesh. What lies inside is the value of one coordinate of those axes; `varies` are the
axes along which it differs, which must divide the result. Axes that are left to the partitioner may divide values
anywhere. What a region means is told by `region_reference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hloom.ir.graph.instruction import Instruction
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling
from hloom.ir.types.element_type import S32, Kind
from hloom.ir.types.shape import Shape, array
from hloom.runtime.fabric.tiles import digit_value
from programs.random.base import LARGEST, Builder

STARTED = ["all-reduce", "all-gather", "collective-permute"]


def devices_by(mesh: Mesh, axes: tuple[str, ...]) -> list[list[int]]:
    """Groups of devices that differ in these axes alone, each in the order of its coordinates."""
    digits = [d for name in axes for d in mesh.digits(AxisRef(name))]
    groups: dict[int, list[int]] = {}
    for place in sorted(range(mesh.size), key=lambda p: digit_value(tuple(digits), p)):
        rest = place - sum(place // d.stride % d.size * d.stride for d in digits)
        groups.setdefault(rest, []).append(place)
    order = mesh.order_key or range(mesh.size)
    return [[order[p] for p in groups[rest]] for rest in sorted(groups)]


@dataclass
class Region:
    """A region under construction: `b` builds inside."""

    b: Builder
    mesh: Mesh
    axes: tuple[str, ...]
    varies: set[str]

    @property
    def free(self) -> list[str]:
        return [name for name, size in self.mesh.axes if name not in self.axes and size > 1]

    def sharding(self, rank: int) -> Sharding:
        """Of a value inside: the axes that are left on some of its dimensions."""
        if not self.free and self.b.flag():
            return Sharding(ShardingKind.MANUAL)
        dims: list[list[AxisRef]] = [[] for _ in range(rank)]
        for name in self.free:
            place = self.b.number(-1, rank - 1)
            if place >= 0:
                dims[place].append(AxisRef(name))
        return _tiled(self.mesh, dims, self.axes)

    def collective(self, opcode: str, x: Instruction, axes: tuple[str, ...], *more: Instruction, **options: Any
                   ) -> Instruction:  # fmt: skip
        """A collective of the groups that differ in these axes; some begin before they are waited for."""
        groups = devices_by(self.mesh, axes)
        if opcode in STARTED and self.b.flag():
            begun = self._made(opcode + "-start", groups, x, more, options)
            return self.b.make(opcode + "-done", begun)
        return self._made(opcode, groups, x, more, options)

    def _made(self, opcode: str, groups: list[list[int]], x: Instruction, more: Sequence[Instruction],
              options: dict[str, Any]) -> Instruction:  # fmt: skip
        options = {"channel_id": next(self.b.numbers) + 1, "bound": self.b.bounds[x]} | options
        if opcode.startswith("collective-permute"):
            first = self.b.number(0, 1)  # or nobody sends to the second
            pairs = [(g[i], g[(i + 1) % len(g)]) for g in groups for i in range(first, len(g))]
            return self.b.make(opcode, x, source_target_pairs=pairs, **options)
        if opcode.startswith(("all-reduce", "all-gather", "reduce-scatter")):
            options["use_global_device_ids"] = True
        return self.b.make(opcode, x, *more, replica_groups=groups, **options)

    def coordinate(self, axes: tuple[str, ...]) -> Instruction:
        """The number of the device within its group, s32[]."""
        numbers = {device: n for group in devices_by(self.mesh, axes) for n, device in enumerate(group)}
        table = self.b.constant(np.asarray([numbers[d] for d in range(self.mesh.size)], np.int32))
        row = self.b.make("dynamic-slice", table, self.b.make("partition-id"), dynamic_slice_sizes=(1,), bound=12)
        return self.b.make("reshape", row, shape=array(S32))


def _tiled(mesh: Mesh, dims: list[list[AxisRef]], manual: tuple[str, ...] = ()) -> Sharding:
    entries = tuple(DimSharding(tuple(refs)) for refs in dims)
    refs = tuple(AxisRef(name) for name in manual)
    return Sharding(ShardingKind.TILED, mesh, entries, manual=refs, spelling=Spelling.NAMED)


# -- what devices do together: each a function of a region, a value and the axes of the groups


def _reduction(r: Region, x: Instruction) -> tuple[str, float]:
    """An opcode that combines elements of x, and how much larger they become."""
    kind = x.shape.element.kind
    opcode = "or" if kind is Kind.PRED else "add" if kind is Kind.COMPLEX else r.b.one_of(["add", "maximum"])
    return opcode, r.mesh.size if opcode == "add" else 1


def all_reduce(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    opcode, growth = _reduction(r, x)
    r.varies -= set(axes)
    return r.collective("all-reduce", x, axes, bound=r.b.bounds[x] * growth,
                        to_apply=r.b.reducer(opcode, x.shape.element))


def all_gather(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    r.varies -= set(axes)
    return r.collective("all-gather", x, axes, dimensions=(r.b.number(0, x.shape.rank - 1),))


def reduce_scatter(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    dim = _divided(r, x, axes)
    if dim is None:
        return all_reduce(r, x, axes)
    opcode, growth = _reduction(r, x)
    r.varies |= set(axes)
    return r.collective("reduce-scatter", x, axes, dimensions=(dim,), bound=r.b.bounds[x] * growth,
                        to_apply=r.b.reducer(opcode, x.shape.element))


def all_to_all(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    dim = _divided(r, x, axes)
    if dim is None:
        return collective_permute(r, x, axes)
    r.varies |= set(axes)
    return r.collective("all-to-all", x, axes, dimensions=(dim,))


def collective_permute(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    r.varies |= set(r.axes)  # a pair may be missing
    return r.collective("collective-permute", x, axes)


def collective_broadcast(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    r.varies -= set(axes)
    return r.collective("collective-broadcast", x, axes)


def ragged_all_to_all(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    """The first row of each device, into the rows of all others."""
    count = math.prod(dict(r.mesh.axes)[name] for name in axes)
    if not x.shape.dims[0]:
        return x
    output = r.b.new(x.shape.element, (count + r.b.number(0, 1), *x.shape.dims[1:]))
    zeros, ones = (r.b.constant(np.full(count, n, np.int32)) for n in (0, 1))
    to = r.b.make("broadcast", r.coordinate(axes), shape=array(S32, (count,)), dimensions=())
    r.varies -= set(axes)
    return r.collective("ragged-all-to-all", x, axes, output, zeros, ones, to, ones, bound=r.b.bounds[x] + 5)


def device_number(r: Region, x: Instruction, axes: tuple[str, ...]) -> Instruction:
    number = r.coordinate(axes) if r.b.flag() else r.b.make("convert", r.b.make("replica-id"), shape="s32[]", bound=0)
    own = r.b.as_kind(number, x.shape.element.name)
    r.varies |= set(axes)
    opcode = "or" if x.shape.element.kind is Kind.PRED else "add"
    return r.b.make(opcode, x, r.b.make("broadcast", own, shape=x.shape.without_layout(), dimensions=()))


def _divided(r: Region, x: Instruction, axes: tuple[str, ...]) -> int | None:
    """A dimension that the groups divide evenly."""
    count = math.prod(dict(r.mesh.axes)[name] for name in axes)
    found = [d for d, n in enumerate(x.shape.dims) if n % count == 0]
    return r.b.one_of(found) if found else None


Exchange = Callable[[Region, Instruction, tuple[str, ...]], Instruction]
EXCHANGES: list[Exchange] = [
    all_reduce, all_gather, reduce_scatter, all_to_all, collective_permute, collective_broadcast, ragged_all_to_all,
    device_number,
]  # fmt: skip


# -- the region itself


def region(b: Builder, x: Instruction) -> Instruction:
    """x in tiles, up to four steps on them, and the whole again."""
    mesh = b.mesh
    names = [name for name, size in mesh.axes if size > 1]
    axes = tuple(name for name in names if b.flag()) or (b.one_of(names),)
    r = Region(replace(b, placed=[], values=[]), mesh, axes, set())
    y = _enter(b, r, x)
    for _ in range(b.number(1, 4)):
        r.b.values.append(y)
        if y.shape.rank and b.flag():
            found = b.one_of(EXCHANGES)(r, y, tuple(name for name in axes if b.flag()) or axes[:1])
            r.b.values = []  # what has been exchanged differs along other axes than what was before
        else:
            found = b.one_of(b.one_of(b.inner))(r.b, y)
        if found.shape.num_elements > LARGEST:
            break
        y = found
    if r.varies and not y.shape.rank:
        y = all_reduce(r, y, tuple(name for name in axes if name in r.varies))
    for value in r.b.placed:
        if value.shape.is_array and not b.number(0, 2):
            value.sharding = r.sharding(value.shape.rank)
    return _leave(b, r, y)


def _border(b: Builder, target: str, x: Instruction, shape: Shape, sharding: Sharding) -> Instruction:
    made = b.make("custom-call", x, shape=shape.without_layout(), custom_call_target=target, bound=b.bounds[x])
    made.sharding = sharding
    b.placed.remove(made)  # it has its sharding
    return made


def _enter(b: Builder, r: Region, x: Instruction) -> Instruction:
    """The tile of a coordinate: the region's axes divide dimensions evenly, others may divide what is left."""
    sizes, dims = dict(r.mesh.axes), [list[AxisRef]() for _ in x.shape.dims]
    tile = list(x.shape.dims)
    for name in r.axes:
        found = [d for d, n in enumerate(tile) if n % sizes[name] == 0]
        if found and b.number(0, 3):
            dim = b.one_of(found)
            tile[dim] //= sizes[name]
            dims[dim].append(AxisRef(name))
            r.varies.add(name)
    for name in r.free:
        if dims and b.flag():
            b.one_of(dims).append(AxisRef(name))
    placed = _border(b, "Sharding", x, x.shape, _tiled(r.mesh, dims))
    part = x.shape.with_dims(tuple(tile))
    return _border(b, "SPMDFullToShardShape", placed, part, r.sharding(len(tile)))


def _leave(b: Builder, r: Region, x: Instruction) -> Instruction:
    sizes, dims = dict(r.mesh.axes), [list[AxisRef]() for _ in x.shape.dims]
    whole = list(x.shape.dims)
    for name in (name for name in r.axes if name in r.varies):
        dim = b.number(0, len(dims) - 1)
        whole[dim] *= sizes[name]
        dims[dim].append(AxisRef(name))
    placed = _border(b, "Sharding", x, x.shape, r.sharding(x.shape.rank))
    return _border(b, "SPMDShardToFullShape", placed, x.shape.with_dims(tuple(whole)), _tiled(r.mesh, dims))
