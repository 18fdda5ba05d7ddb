"""Lowers some results of a computation that share their loops to one nest.

Values are emitted on demand, from the results back to the parameters, each at an index. A reduction over all columns is
a fold, whose result later strips of the same row use; the number of folds that a value depends on is its stage. A value
that an earlier strip computed is recomputed, unless it calls a function: then it is spilled to a scratch row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...ir.brief import brief
from ...ir.errors import NotEvaluable
from ...ir.graph.extremes import ArrayFold
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import pooled_of, sources_of, takes_arrays, windows_of
from ...ir.graph.monoid import MONOID_OPS, reduction_monoid
from ...ir.graph.op import Role
from ...ir.graph.source import Windows
from ...ir.ops.computations import accumulator
from ...ir.ops.elementwise import no_computation
from ...ir.ops.reduce import ReduceAttributes
from ...ir.ops.shaping import Iota, IotaAttributes
from ...ir.tools import mixed_precision
from ...ir.types.element_type import PRED, Kind, from_numpy
from .builder import Builder
from .elements import from_memory, memory, register, to_memory
from .folds import fold_of, is_fold
from .index import Affine, Index, combined, counter, delinearized, row_major, through
from .loops import Do, Lane, Nest, Node
from .space import LoopSpace, Uses
from .trace import TracedLanes, constant, literal
from .ufuncs import U8, UFUNCS
from .unroll import copies

Key = tuple[Instruction, Index]


class MoreAxes(Exception):
    """Requests further loops, over dimensions that a reduction reduces."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes)
        self.sizes = sizes


@dataclass(frozen=True, slots=True)
class Operand:
    """A parameter: its buffer, and its strides per dimension, in elements."""

    buffer: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A result, or a part of one: the offset of its first element in the buffer, and its strides in elements."""

    buffer: int
    instruction: Instruction
    strides: tuple[int, ...]
    offset: int = 0

    def place(self, index: Sequence[Affine]) -> Affine:
        return combined(index, self.strides, self.offset)


@dataclass(frozen=True, slots=True)
class Result:
    """An output to store. Reductions marked as `sink` combine rows in their buffer."""

    output: Output
    index: Index  # of the instruction, or of the operand of a sink
    sink: bool

    @property
    def instruction(self) -> Instruction:
        return self.output.instruction


@brief
@dataclass(slots=True)
class NestLowering:
    """One nest. `inputs` are the parameters; scratch rows are numbered from `scratch` on, and their types
    appended to `rows`.
    """

    space: LoopSpace
    inputs: dict[Instruction, Operand]
    scratch: int
    builder: Builder
    uses: Uses = field(default_factory=Uses)
    rows: list[Lane] = field(default_factory=list[Lane])
    stage: int = 0
    known: dict[Any, tuple[TracedLanes, int]] = field(default_factory=dict[Any, tuple[TracedLanes, int]])
    heavy: set[Any] = field(default_factory=set[Any])
    depths: dict[Key, int] = field(default_factory=dict[Key, int])
    folds: dict[Key, int] = field(default_factory=dict[Key, int])
    _parts: dict[Key, list[Key]] = field(default_factory=dict[Key, "list[Key]"])

    def lower(self, results: list[Result]) -> Nest:
        waits = [self.depth((r.instruction.operands[0] if r.sink else r.instruction, r.index)) for r in results]
        sums: dict[int, TracedLanes] = {}
        last = max([*waits, *(d + 1 for d in self.folds.values())])
        for self.stage in range(last + 2):
            totals = [(key, self.folded(key)) for key, depth in self.folds.items() if depth == self.stage]
            for place, (result, depth) in enumerate(zip(results, waits, strict=True)):
                if result.sink:
                    self.sink(result, place, depth, sums)
                elif depth == self.stage:
                    value = self.value((result.instruction, result.index))
                    self.store(result, value)
            self.builder.end_strip()
            for key, total in totals:
                self.known[(*key, None)] = self.finished(key, total), -1
        *outer, columns = self.space.merged
        nest = self.builder.finish(tuple(outer), columns, 1)
        return replace(nest, unroll=copies(nest.steps))

    # -- the graph

    def parts(self, key: Key) -> list[Key]:
        """Returns the operands of an instruction that its value at an index needs, with their indices."""
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = self._found_parts(key)
        return found

    def _found_parts(self, key: Key) -> list[Key]:
        i, index = key
        if i.op.role in (Role.PARAMETER, Role.CONSTANT) or isinstance(i.op, Iota):
            return []
        if is_fold(i):
            return [(i.operands[0], self.reduced_index(i, index)), (i.operands[1], ())]
        windows = windows_of(i)
        if windows is not None:
            sources = [windows.within, *(start.index for start in windows.starts)]
            operands = [i.operands[0], *(i.operands[start.operand] for start in windows.starts)]
            sizes = self.space.sizes
            return [(o, through(s, index, i.shape.dims, o.shape.dims, sizes)) for o, s in zip(operands, sources)]
        sources = sources_of(i)
        if sources is not None:
            sizes = self.space.sizes
            return [(o, through(s, index, i.shape.dims, o.shape.dims, sizes)) for o, s in zip(i.operands, sources)]
        pooled = pooled_of(i)
        if pooled is not None:
            operand, start = i.operands
            indices = [through(s, index, i.shape.dims, operand.shape.dims, self.space.sizes) for s in pooled.sources]
            return [*((operand, found) for found in indices), (start, ())]
        if not takes_arrays(i.op, i.call):
            raise NotEvaluable(f"native kernels have no {i.opcode}")
        return [(o, index if o.shape.rank else ()) for o in i.operands]

    def depth(self, key: Key) -> int:
        """Returns the number of folds that a value depends on, and records all folds below it."""
        if key not in self.depths:
            depth = max((self.depth(part) for part in self.parts(key)), default=0)
            if is_fold(key[0]) and not _is_trivial(key[0]):
                self.folds[key] = depth
                depth += 1
            self.depths[key] = depth
        return self.depths[key]

    def reduced_index(self, i: Instruction, index: Index) -> Index:
        """Returns the index of a reduction's operand: its reduced dimensions run over the loops that the result's index
        does not use.
        """
        sizes, dims = self.space.sizes, i.operands[0].shape.dims
        taken = {axis for part in index for axis, _ in part.terms}
        free = [axis for axis in range(len(sizes)) if axis not in taken]
        reduced = [d for d in range(len(dims)) if d in i.attributes_as(ReduceAttributes).dimensions]
        wanted = tuple(dims[d] for d in reduced)
        if _is_trivial(i):
            parts = iter(index)
            return tuple(Affine() if d in reduced else next(parts) for d in range(len(dims)))
        if math.prod(sizes[axis] for axis in free) != math.prod(wanted):
            raise MoreAxes(wanted)
        self.uses.reduced.add(frozenset(free))
        position = combined([counter(a, sizes[a]) for a in free], row_major([sizes[a] for a in free]))
        inner, outer = iter(delinearized(position, wanted, sizes)), iter(index)
        return tuple(next(inner) if d in reduced else next(outer) for d in range(len(dims)))

    # -- values

    def value(self, key: Key, mask: Node | None = None) -> TracedLanes:
        """Returns the value of an instruction at an index, in lanes where the mask is true."""
        known = self.known.get((*key, mask))
        if known is not None:
            value, stage = known
            if stage in (-1, self.stage) or value.node.uniform:
                return value
            if (*key, mask) in self.heavy:
                return self.kept(key, mask, value)
        calls = self.builder.calls
        made = self.made(key, mask)
        if self.builder.calls > calls and not any((*part, mask) in self.heavy for part in self.parts(key)):
            self.heavy.add((*key, mask))
        self.known[(*key, mask)] = made, self.stage
        return made

    def kept(self, key: Key, mask: Node | None, value: TracedLanes) -> TracedLanes:
        """Spills a value of an earlier strip to a scratch row, and reloads it; masks are recomputed."""
        lane = value.node.lane
        if lane is Lane.MASK:
            return self.made(key, mask)
        axis = len(self.space.sizes) - 1
        access = self.space.access(self.scratch + len(self.rows), Affine(0, ((axis, 1),)))
        access = type(access)(access.buffer, 0, (*(0 for _ in access.strides[:-1]), 1))
        self.rows.append(lane)
        self.builder.spill(value.node, access)
        found = value.with_node(self.builder.load(access, lane))
        self.known[(*key, mask)] = found, self.stage
        return found

    def made(self, key: Key, mask: Node | None) -> TracedLanes:
        i, index = key
        if i.shape.is_dynamic or not i.shape.is_array or mixed_precision.computed(i) is not None:
            raise NotEvaluable(f"native kernels have no {i.opcode} of {i.shape}")
        register(i.shape.element)
        if i.op.role is Role.PARAMETER:
            return self.loaded(i, index, mask)
        if i.op.role is Role.CONSTANT:
            return literal(self.builder, i)
        if isinstance(i.op, Iota):
            return self.iota(i, index)
        if is_fold(i):
            if _is_trivial(i):
                fold_of(i)
                return self.finished(key, self.value(self.parts(key)[0], mask))
            raise NotEvaluable("native kernels reduce in every row, or into a result")
        windows = windows_of(i)
        if windows is not None:
            return self.windowed(key, windows, mask)
        if sources_of(i) is not None:
            return self.moved(key, mask)
        pooled = pooled_of(i)
        if pooled is not None:
            return self.pooled(key, MONOID_OPS[pooled.monoid], mask)
        kernel, operands = i.op.kernel(i.call, no_computation), [self.value(part, mask) for part in self.parts(key)]
        try:
            return kernel(*operands)
        except TypeError as error:  # numpy asks for the numbers of a traced value
            raise NotEvaluable(f"{i.opcode} looks at numbers") from error

    def windowed(self, key: Key, windows: Windows, mask: Node | None) -> TracedLanes:
        """Loads an element of a parameter from a window whose start indices a row computes."""
        (operand, index), *starts = self.parts(key)
        if operand.op.role is not Role.PARAMETER:
            raise NotEvaluable("native kernels read at computed places from memory only")
        b, at = self.builder, self.builder.constant(0, Lane.I64)
        for start, part in zip(windows.starts, starts, strict=True):
            if part[0].shape.element.kind is Kind.UNSIGNED and part[0].shape.element.bits == 64:
                raise NotEvaluable("native kernels have indices of 63 bits")
            place = self.value(part, mask).astype(np.dtype(np.int64)).node
            clamped = b.op(Do.MINIMUM, b.op(Do.MAXIMUM, place, 0), start.limit)
            at = b.add(at, b.mul(clamped, self.inputs[operand].strides[start.dim]))
        return self.loaded(operand, index, mask, at)

    def loaded(self, i: Instruction, index: Index, mask: Node | None, at: Node | None = None) -> TracedLanes:
        operand = self.inputs[i]
        place = combined(index, operand.strides)
        self.uses.loaded.add(self.space.strides(place))
        found = self.builder.load(self.space.access(operand.buffer, place), memory(i.shape.element), mask, at)
        return TracedLanes(self.builder, from_memory(self.builder, found, i.shape.element), i.shape.element)

    def iota(self, i: Instruction, index: Index) -> TracedLanes:
        along = index[i.attributes_as(IotaAttributes).iota_dimension]
        count = TracedLanes(self.builder, self.counted(along), from_numpy(np.dtype(np.int32)))
        return count.astype(i.shape.element.numpy)

    def counted(self, index: Affine) -> Node:
        """Converts an index to a number."""
        if max(map(abs, index.range(self.space.sizes))) > np.iinfo(np.int32).max:
            raise NotEvaluable("native kernels count in 32 bits")
        b = self.builder
        result = b.constant(index.offset, Lane.I32)
        for axis, coefficient in index.terms:
            self.uses.counted.add(axis)
            place = b.index(self.space.loop_of(axis))
            result = b.add(result, b.mul(place, coefficient) if coefficient != 1 else place)
        return result

    def moved(self, key: Key, mask: Node | None) -> TracedLanes:
        """Selects the first operand whose index is in bounds. A single operand needs no test: its index is in bounds in
        all lanes of the mask.
        """
        parts = self.parts(key)
        if len(parts) == 1:
            return self.value(parts[0], mask)
        found: TracedLanes | None = None
        for operand, index in reversed(parts):
            inside = self.inside(index, operand.shape.dims)
            both = self.both(inside, mask)
            value = self.value((operand, index), both if operand.shape.rank else None)
            if found is None or inside is None:
                found = value
            else:
                found = value.with_node(self.builder.select(inside, value.node, found.node))
        assert found is not None
        return found

    def pooled(self, key: Key, ufunc: ArrayFold, mask: Node | None) -> TracedLanes:
        """Combines the elements of a window that lie inside of their operand, one by one."""
        *elements, start = self.parts(key)
        element = key[0].shape.element
        found = self.value(start).astype(accumulator(element))
        for operand, index in elements:
            inside = self.inside(index, operand.shape.dims)
            both = self.both(inside, mask)
            more = UFUNCS[ufunc](found, self.value((operand, index), both).astype(accumulator(element)))
            found = more if inside is None else found.with_node(self.builder.select(inside, more.node, found.node))
        return found.astype(element.numpy)

    def both(self, mask: Node | None, other: Node | None) -> Node | None:
        return self.builder.op(Do.AND, mask, other) if mask and other else mask or other

    def inside(self, index: Index, dims: tuple[int, ...]) -> Node | None:
        """Returns the mask of indices in bounds; None where all are known to be."""
        found: Node | None = None
        for part, size in zip(index, dims, strict=True):
            low, high = part.range(self.space.sizes)
            tests: list[Node] = []
            if high >= size:
                tests.append(self.builder.lt(self.counted(part), size))
            if low < 0:
                tests.append(self.builder.le(self.builder.constant(0, Lane.I32), self.counted(part)))
            for test in tests:
                found = test if found is None else self.builder.op(Do.AND, found, test)
        return found

    # -- reductions and results

    def folded(self, key: Key) -> TracedLanes:
        """Emits a strip's part of a reduction over the columns."""
        (operand, _), i = self.parts(key), key[0]
        free = {axis for part in operand[1] for axis, _ in part.terms} - {a for part in key[1] for a, _ in part.terms}
        if self.space.is_merged and not free <= self.space.columns:
            raise NotEvaluable("native kernels reduce the last dimensions of a row")
        return self.fold(i, self.value(operand))

    def finished(self, key: Key, total: TracedLanes) -> TracedLanes:
        """Finishes a reduction after its strip: combines it with the initial value, and converts it to its own type."""
        i, (_, init) = key[0], self.parts(key)
        total = total.astype(accumulator(i.shape.element))
        start = self.value(init).astype(total.dtype)
        monoid = reduction_monoid(i.attributes_as(ReduceAttributes).to_apply)
        assert monoid is not None
        return UFUNCS[MONOID_OPS[monoid]](start, total).astype(i.shape.element.numpy)

    def fold(self, i: Instruction, value: TracedLanes) -> TracedLanes:
        """Reduces the columns of a value by the computation of a reduction, in its accumulator type."""
        fold = fold_of(i)
        wide = value.astype(accumulator(i.shape.element))
        if wide.element is PRED:
            byte = self.builder.cast(Do.ZEXT, wide.node, Lane.I8)
            return TracedLanes(self.builder, self.builder.fold(fold.do, fold.identity & 1, byte), U8)
        return wide.with_node(self.builder.fold(fold.do, fold.identity, wide.node))

    def sink(self, result: Result, number: int, depth: int, sums: dict[int, TracedLanes]) -> None:
        """Combines rows of a reduction in its buffer. If it reduces columns too, a strip before folds these."""
        i, key = result.instruction, (result.instruction.operands[0], result.index)
        fold = fold_of(i)
        if fold.start is None or from_numpy(accumulator(i.shape.element)) is not i.shape.element:
            raise NotEvaluable("native kernels combine rows from a constant on, in types that need no rounding")
        kept = [part for d, part in enumerate(result.index) if d not in i.attributes_as(ReduceAttributes).dimensions]
        place = result.output.place(kept)
        self.uses.stored.add(self.space.strides(place))
        used = {axis for part in kept for axis, _ in part.terms}
        reduces_columns = not used & self.space.columns
        self.uses.reduced.add(frozenset(range(len(self.space.sizes))) - used)
        if depth == self.stage:
            value = self.value(key)
            sums[number] = self.fold(i, value) if reduces_columns else value.astype(accumulator(i.shape.element))
        if self.stage == depth + reduces_columns:
            value = sums[number]
            node = to_memory(self.builder, value.node, value.element)
            init = constant(self.builder, fold.start, value.element)
            self.builder.store(self.space.access(result.output.buffer, place), node, fold.do, init.data)

    def store(self, result: Result, value: TracedLanes) -> None:
        place = result.output.place(result.index)
        self.uses.stored.add(self.space.strides(place))
        node = to_memory(self.builder, value.node, value.element)
        self.builder.store(self.space.access(result.output.buffer, place), node)


def _is_trivial(i: Instruction) -> bool:
    """Whether a reduction combines single elements with the initial value."""
    dims = i.operands[0].shape.dims
    return math.prod(dims[d] for d in i.attributes_as(ReduceAttributes).dimensions) == 1
