"""Splits a collective into one within each host and one across hosts on a shard of the data.

    before:  s = all-reduce(x)                           -- 4 hosts of 8 devices
    after:   r = reduce-scatter(x)                       -- in each host
             t = all-reduce(r)                           -- across hosts, an eighth of the bytes
             s = all-gather(t)                           -- in each host

A device of a group sends its shard across to the devices of its rank in the other hosts; the fast links of the host do
the rest. An all-gather brings one shard per host across and spreads them in the host; a reduce-scatter goes the other
way. If the order of the group counts hosts first, the parts are also moved into place, which takes a copy.

A level of the machine begins at a stride of the device number (`Machine.levels`). The groups must have as many devices
in each host, and the machine's times decide. An array that the devices of a host do not divide is padded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from ....cost.collectives import kind_of
from ....ir.graph.attributes import Dims, PadDim, PaddingConfig, SliceDim
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import Exchange
from ....ir.graph.monoid import identity, reduction_monoid
from ....ir.ops.collective_groups import GroupAttributes
from ....ir.ops.collectives import (
    AllGather,
    AllGatherAttributes,
    AllReduce,
    AllReduceAttributes,
    ReduceScatterAttributes,
)
from ....ir.ops.shaping import TransposeAttributes
from ....ir.sharding.replica_groups import Groups
from .base import Edits, MatchingRewrite, RewriteProgram, is_plain_collective, time_text
from .groups import device_groups


@dataclass(frozen=True)
class HierarchicalCollectives(MatchingRewrite["_Levels"]):
    """Splits collectives over two levels of links where that is faster."""

    name: ClassVar[str] = "hierarchical-collectives"
    stays: ClassVar[str] = "stays one step"

    def match(self, program: RewriteProgram, instruction: Instruction) -> _Levels | str | None:
        exchange = instruction.op.interface(Exchange)
        if exchange is None or not exchange.joins:
            return None
        attributes, shapes = instruction.attributes_as(GroupAttributes), [o.shape for o in instruction.operands]
        channel = None if attributes.channel_id is None else 0  # collectives that differ in nothing else are alike
        key = (self, instruction.op, replace(attributes, channel_id=channel), instruction.shape, *shapes,
               is_plain_collective(instruction))  # fmt: skip
        found = program.once(key, lambda: _best(program, instruction))
        if not isinstance(found, tuple):
            return found
        levels, text = found
        program.remark(instruction, text)
        return levels

    def emit(self, program: RewriteProgram, edits: Edits, instruction: Instruction, found: _Levels) -> None:
        with edits.computation.at(before=instruction):
            new = _Split(program, edits.computation, instruction, found).emit()
        edits.replace(instruction, new)


@dataclass(frozen=True, slots=True)
class _Levels:
    """The replica groups of a split collective: `inner` within hosts, `outer` across, both in order. `hosts_first` says
    that places in a group count hosts, then devices of a host (else the other way, or neither if `order` is False).
    """

    inner: Groups
    outer: Groups
    hosts_first: bool
    order: bool

    @property
    def inside(self) -> int:
        return len(self.inner[0])

    @property
    def across(self) -> int:
        return len(self.outer[0])


def _best(program: RewriteProgram, collective: Instruction) -> tuple[_Levels, str] | str | None:
    """Returns the best way to split a collective with its times, or why there is none; None if it crosses no level."""
    groups = device_groups(collective, program.module)
    crossed = [
        border for border in program.context.machine.levels
        if any(len({d // border for d in group}) not in (1, len(group)) for group in groups)
    ]  # fmt: skip
    if not crossed:
        return None
    if not is_plain_collective(collective):
        return "it has several arrays, or an annotation"
    if isinstance(collective.op, AllReduce):  # in any order
        groups = tuple(tuple(sorted(group)) for group in groups)
    found = [levels for border in crossed if (levels := _levels(groups, border)) is not None]
    if not found:
        return "its groups do not have as many devices in each host"
    if isinstance(collective.op, AllReduce):
        if reduction_monoid(collective.attributes_as(AllReduceAttributes).to_apply) is None:
            return "its reduction is not known to be associative"
    else:
        found = [levels for levels in found if levels.order]
        if not found:
            return "the order of its groups mixes hosts"
    size = max(collective.shape.byte_size, collective.operands[0].shape.byte_size)
    before = program.time(kind_of(collective), size, groups)
    best = min(found, key=lambda levels: _time(program, collective, levels, size))
    after = _time(program, collective, best, size)
    if after >= before:
        return f"{time_text(before)}, in two levels {time_text(after)}"
    return best, (f"runs in hosts of {best.inside} and across {best.across}: {time_text(after)} in place of "
                  f"{time_text(before)}")  # fmt: skip


@lru_cache(maxsize=64)  # layers have equal groups
def _levels(groups: Groups, border: int) -> _Levels | None:
    inner: list[tuple[int, ...]] = []
    outer: list[tuple[int, ...]] = []
    hosts_first = devices_first = True
    for group in groups:
        hosts: dict[int, list[int]] = {}
        for device in group:
            hosts.setdefault(device // border, []).append(device)
        if len({len(h) for h in hosts.values()}) != 1:
            return None
        rows = [tuple(h) for h in hosts.values()]
        columns = list(zip(*rows, strict=True))
        inner += rows
        outer += columns
        hosts_first &= group == tuple(d for row in rows for d in row)
        devices_first &= group == tuple(d for column in columns for d in column)
    if len({len(g) for g in inner}) != 1 or len({len(g) for g in outer}) != 1:
        return None
    return _Levels(tuple(inner), tuple(outer), hosts_first and not devices_first, hosts_first or devices_first)


def _time(program: RewriteProgram, collective: Instruction, levels: _Levels, size: int) -> float:
    part, copy = size / levels.inside, program.context.machine.memory(2 * size)
    inside, outside = levels.inner, levels.outer
    if isinstance(collective.op, AllReduce):
        uneven = _divided_dim(collective, levels.inside) is None and collective.shape.num_elements % levels.inside != 0
        ends = [program.time(kind, size, inside) for kind in ("reduce-scatter", "all-gather")]
        return sum(ends) + program.time("all-reduce", part, outside) + 2 * copy * uneven
    kind = "all-gather" if isinstance(collective.op, AllGather) else "reduce-scatter"
    return program.time(kind, size, inside) + program.time(kind, part, outside) + copy * levels.hosts_first


def _divided_dim(collective: Instruction, count: int) -> int | None:
    """Returns the first dimension that is a multiple of `count`."""
    return next((d for d, n in enumerate(collective.shape.dims) if n and n % count == 0), None)


@dataclass
class _Split:
    """Emits one collective in two levels."""

    program: RewriteProgram
    computation: Computation
    collective: Instruction
    levels: _Levels

    def emit(self) -> Instruction:
        """Appends the instructions and returns the result."""
        (value,), attributes = self.collective.operands, self.collective.attributes
        if isinstance(attributes, AllGatherAttributes):
            return self._all_gather(value, attributes.dimensions[0])
        if isinstance(attributes, ReduceScatterAttributes):
            return self._reduce_scatter(value, attributes)
        return self._all_reduce(value, self.collective.attributes_as(AllReduceAttributes))

    def _all_reduce(self, value: Instruction, attributes: AllReduceAttributes) -> Instruction:
        dim, whole, size = _divided_dim(self.collective, self.levels.inside), value.shape, value.shape.num_elements
        if dim is None:
            value, dim = self._reshape(value, (size,)), 0
            value = self._padded(value, attributes, -size % self.levels.inside)
        part = self._scatter(value, dim, self.levels.inner, attributes.to_apply)
        given = AllReduceAttributes(
            to_apply=attributes.to_apply, **self.program.grouping.attributes(self.levels.outer)
        )
        part = self._add("all-reduce", part, given, part.shape.dims)
        result = self._gather(part, dim, self.levels.inner)
        if result.shape.rank == 1 and result.shape.dims[0] != size:
            result = self.computation.build("slice", result, slice=(SliceDim(0, size),), like=self.collective)
        return self._reshape(result, whole.dims)

    def _padded(self, value: Instruction, attributes: AllReduceAttributes, count: int) -> Instruction:
        monoid = reduction_monoid(attributes.to_apply)
        if not count or monoid is None:
            return value
        element = value.shape.element
        fill = self.computation.constant(identity(monoid, element), element.name)
        return self.computation.build("pad", value, fill, padding=PaddingConfig((PadDim(0, count),)), like=value)

    def _all_gather(self, value: Instruction, dim: int) -> Instruction:
        if not self.levels.hosts_first:
            return self._gather(self._gather(value, dim, self.levels.outer), dim, self.levels.inner)
        dims = value.shape.dims
        parts = self._gather(self._reshape(value, (1, *dims)), 0, self.levels.outer)
        parts = self._gather(parts, 0, self.levels.inner)
        apart = self._reshape(parts, (self.levels.inside, self.levels.across, *dims))
        # The counter of hosts, then that of devices, goes before the dimension.
        order = tuple(x for d in range(len(dims)) for x in ((1, 0, d + 2) if d == dim else (d + 2,)))
        turned = self.computation.add("transpose", (apart,), TransposeAttributes(order), like=self.collective)
        return self._reshape(turned, self.collective.shape.dims)

    def _reduce_scatter(self, value: Instruction, attributes: ReduceScatterAttributes) -> Instruction:
        dim, by = attributes.dimensions[0], attributes.to_apply
        if not self.levels.hosts_first:
            return self._scatter(self._scatter(value, dim, self.levels.inner, by), dim, self.levels.outer, by)
        dims, across, inside = value.shape.dims, self.levels.across, self.levels.inside
        part = dims[dim] // (across * inside)
        apart = self._reshape(value, (*dims[:dim], across, inside, part, *dims[dim + 1 :]))
        rest = [d for d in range(len(dims) + 2) if d not in (dim, dim + 1)]
        turned = self.computation.add(
            "transpose", (apart,), TransposeAttributes((dim + 1, dim, *rest)), like=self.collective
        )
        parts = self._scatter(turned, 0, self.levels.inner, by)
        return self._reshape(self._scatter(parts, 1, self.levels.outer, by), self.collective.shape.dims)

    def _scatter(self, value: Instruction, dim: int, groups: Groups, by: Computation) -> Instruction:
        dims = tuple(n // len(groups[0]) if d == dim else n for d, n in enumerate(value.shape.dims))
        attributes = ReduceScatterAttributes(
            dimensions=(dim,), to_apply=by, **self.program.grouping.attributes(groups)
        )
        return self._add("reduce-scatter", value, attributes, dims)

    def _gather(self, value: Instruction, dim: int, groups: Groups) -> Instruction:
        dims = tuple(n * len(groups[0]) if d == dim else n for d, n in enumerate(value.shape.dims))
        attributes = AllGatherAttributes(dimensions=(dim,), **self.program.grouping.attributes(groups))
        return self._add("all-gather", value, attributes, dims)

    def _add(self, opcode: str, value: Instruction, attributes: GroupAttributes, dims: Dims) -> Instruction:
        shape = value.shape.with_dims(dims)
        new = self.computation.add(opcode, (value,), attributes, shape, like=self.collective)
        new.frontend_attributes = self.collective.frontend_attributes
        return new

    def _reshape(self, value: Instruction, dims: Dims) -> Instruction:
        if value.shape.dims == dims:
            return value
        assert math.prod(dims) == value.shape.num_elements
        return self.computation.build("reshape", value, shape=value.shape.with_dims(dims), like=self.collective)
