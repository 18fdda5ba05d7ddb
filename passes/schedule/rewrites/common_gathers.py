"""Merges redundant all-gathers.

- Equal gathers of one value become one, however their groups are written.
- A gather of a gathered value becomes one gather in the groups of both, where these fit together. Along two dimensions
  the parts have to be moved into place, so there it has to be faster.
- A gather of the slices that its devices cut out of the same value is that value.
- A gather of a slice of a value that is gathered as a whole is a slice of the gathered value.

    before:  g = all-gather(w), dimensions={0}, replica_groups={{0,1},{2,3}}
             h = all-gather(g), dimensions={0}, replica_groups={{0,2},{1,3}}
    after:   h = all-gather(w), dimensions={0}, replica_groups={{0,1,2,3}}
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ....ir.analysis.per_device import clamped_starts
from ....ir.brief import brief
from ....ir.graph.attributes import SliceDim
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.ops.collectives import AllGather, AllGatherAttributes
from ....ir.ops.shaping import TransposeAttributes
from ....ir.ops.slicing import DynamicSlice, Slice, SliceAttributes
from ....ir.sharding.replica_groups import Groups
from .base import Edits, Rewrite, RewriteProgram, amount, is_plain_collective, only_user, time_text
from .groups import chained_groups, device_groups, positions


@dataclass(frozen=True)
class CommonGathers(Rewrite):
    """Merges equal and chained all-gathers, and those of slices."""

    name: ClassVar[str] = "common-gathers"

    def rewrite(self, program: RewriteProgram, computation: Computation) -> bool:
        return _Gathers(program, Edits(computation)).run()


@brief
@dataclass
class _Gathers:
    """The all-gathers of one computation, in program order."""

    program: RewriteProgram
    edits: Edits
    first: dict[Hashable, Instruction] = field(default_factory=dict[Hashable, Instruction])
    sets: dict[int, tuple[Groups, frozenset[tuple[int, ...]]]] = field(default_factory=dict[int, Any])

    def run(self) -> bool:
        rules: tuple[Callable[[Instruction], Instruction | None], ...] = (
            self._repeated, self._of_slices, self._of_a_part, self._chained,
        )  # fmt: skip
        changed = False
        for gather in list(self.edits.computation):
            if not isinstance(gather.op, AllGather) or not is_plain_collective(gather):
                continue
            found = next((f for rule in rules if (f := rule(gather)) is not None), None)
            if found is not None:
                self.edits.replace(gather, found)
                changed = True
            kept = gather if found is None else found
            if isinstance(kept.op, AllGather):
                self.first.setdefault(self._key(kept, kept.operands[0]), kept)
        if changed:
            self.edits.finish()
        return changed

    def _groups(self, gather: Instruction) -> Groups:
        return device_groups(gather, self.program.module)

    def _key(self, gather: Instruction, of: Instruction) -> Hashable:
        groups = self._groups(gather)
        if id(groups) not in self.sets:  # equal ones are one object mostly, and a set keeps its hash
            self.sets[id(groups)] = groups, frozenset(groups)
        return of, _dim(gather), self.sets[id(groups)][1]

    def _said(self, gather: Instruction, text: str) -> None:
        time = self.program.time("all-gather", gather.shape.byte_size, self._groups(gather))
        self.program.remark(gather, f"{text}: {amount(gather.shape.byte_size)} less to gather, {time_text(time)}")

    def _repeated(self, gather: Instruction) -> Instruction | None:
        """Returns an earlier gather of the same value."""
        found = self.first.get(self._key(gather, gather.operands[0]))
        if found is not None:
            self._said(gather, f"repeats {found.name}")
        return found

    def _of_slices(self, gather: Instruction) -> Instruction | None:
        """Returns the uniform value that a gather reassembles from slices; None if there is none."""
        (part,), dim = gather.operands, _dim(gather)
        if not isinstance(part.op, DynamicSlice) or part.operands[0].shape.dims != gather.shape.dims:
            return None
        groups = self._groups(gather)
        place = positions(groups, self.program.devices)
        starts = clamped_starts(self.program.per_device, part, 1, part.shape.dims)
        if place is None or starts is None:
            return None
        wanted = np.zeros_like(starts)
        wanted[:, dim] = place * part.shape.dims[dim]
        if (starts != wanted).any():
            self.program.remark(gather, "is not its operand's whole: a device cuts out another part than its own")
            return None
        if not self.program.is_equal(part.operands[0], groups):
            return None
        self._said(gather, f"puts {part.operands[0].name} together again")
        return part.operands[0]

    def _of_a_part(self, gather: Instruction) -> Instruction | None:
        """Returns a slice of the gathered whole, if the gather's operand is a slice of a value that is gathered."""
        (part,), dim = gather.operands, _dim(gather)
        if not isinstance(part.op, Slice):
            return None
        limits, source = part.attributes_as(SliceAttributes).slice, part.operands[0]
        whole = self.first.get(self._key(gather, source))
        if whole is None or limits[dim] != SliceDim(0, source.shape.dims[dim]):
            return None
        self._said(gather, f"is a part of {whole.name}")
        kept = tuple(SliceDim(0, n) if d == dim else limit
                     for d, (n, limit) in enumerate(zip(whole.shape.dims, limits, strict=True)))  # fmt: skip
        computation = self.edits.computation
        with computation.at(before=gather):
            return computation.add(part.op, (whole,), SliceAttributes(kept), gather.shape, part.name, gather)

    def _chained(self, outer: Instruction) -> Instruction | None:
        """Merges two chained gathers into one."""
        (inner,) = outer.operands
        if not isinstance(inner.op, AllGather) or only_user(inner) is None or not is_plain_collective(inner):
            return None
        groups = [self._groups(g) for g in (inner, outer)]
        both = chained_groups(groups[0], groups[1], self.program.devices)
        if both is None:
            self.program.remark(outer, f"stays behind {inner.name}: their groups do not fit together")
            return None
        size = outer.shape.byte_size
        before = sum(self.program.time("all-gather", g.shape.byte_size, of)
                     for g, of in zip((inner, outer), groups, strict=True))  # fmt: skip
        moved = self.program.context.machine.memory(2 * size) if _dim(inner) != _dim(outer) else 0.0
        after = self.program.time("all-gather", size, both) + moved
        if after > before:
            times = f"{time_text(before)}, {time_text(after)} at once"
            self.program.remark(outer, f"stays behind {inner.name}: {times}")
            return None
        times = f"{time_text(after)}, {time_text(before)} before"
        self.program.remark(outer, f"gathers for {inner.name} as well: {times}")
        with self.edits.computation.at(before=outer):
            return self._gathered_at_once(inner, outer, both, len(groups[0][0]))

    def _gathered_at_once(self, inner: Instruction, outer: Instruction, groups: Groups, count: int) -> Instruction:
        computation, value = self.edits.computation, inner.operands[0]
        if _dim(inner) == _dim(outer):
            return self._gather(outer, value, _dim(outer), groups)
        dims, outer_count = value.shape.dims, len(groups[0]) // count
        single = computation.build("reshape", value, shape=value.shape.with_dims((1, *dims)), like=outer)
        parts = self._gather(outer, single, 0, groups)
        apart = value.shape.with_dims((outer_count, count, *dims))
        split = computation.build("reshape", parts, shape=apart, like=outer)
        before = {_dim(outer): 0, _dim(inner): 1}  # the counter in front of each dimension
        order = tuple(x for d in range(len(dims)) for x in ((before[d], d + 2) if d in before else (d + 2,)))
        turned = computation.add("transpose", (split,), TransposeAttributes(order), like=outer)
        return computation.build("reshape", turned, shape=outer.shape.without_layout(), like=outer)

    def _gather(self, like: Instruction, value: Instruction, dim: int, groups: Groups) -> Instruction:
        dims = tuple(n * len(groups[0]) if d == dim else n for d, n in enumerate(value.shape.dims))
        attributes = AllGatherAttributes(dimensions=(dim,), **self.program.grouping.attributes(groups))
        new = self.edits.computation.add(like.op, (value,), attributes, value.shape.with_dims(dims), like.name, like)
        new.frontend_attributes = like.frontend_attributes
        return new


def _dim(gather: Instruction) -> int:
    return gather.attributes_as(AllGatherAttributes).dimensions[0]
