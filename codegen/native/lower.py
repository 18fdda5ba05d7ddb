"""Lowers computations of element-wise ops, moves and reductions to kernels.

Results with the same loops share a nest. A nest is lowered twice: once on fine loops, to collect their uses, and again
on merged ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...cost.host import HOST
from ...ir.brief import brief
from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import sources_of, updates_of
from ...ir.graph.monoid import reduction_monoid
from ...ir.graph.op import Role
from ...ir.graph.source import RowMajor, Updates, lie_side_by_side
from ...ir.ops.reduce import ReduceAttributes
from ...ir.ops.structure import ParameterAttributes
from ...ir.reached import reached
from ...ir.types.element_type import ElementType
from ...ir.types.shape import Shape
from .builder import Builder
from .elements import memory
from .folds import is_fold
from .index import Index, SplitAxis, combined, counter, row_major
from .loops import LOADS, Kernel, Lane, Nest, Strip
from .nest import MoreAxes, NestLowering, Operand, Output, Result
from .reducers import Reducer
from .space import LoopSpace, Uses, merge, wanted_block
from .step import StridedLayout
from .updates import Combiner, updates_nest


@brief
@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel whose buffers are the parameters, the results and scratch rows of these sizes, in elements. Parameters
    have `layouts`, results are dense.
    """

    kernel: Kernel
    layouts: tuple[StridedLayout, ...]
    parameters: tuple[Shape, ...]
    results: tuple[Shape, ...]
    scratch: tuple[int, ...]


@dataclass(slots=True)
class _Axes:
    """The loops of a nest: dimensions, each with the sizes of its fine loops."""

    dims: list[list[int]]

    @staticmethod
    def of(dims: Sequence[int]) -> _Axes:
        return _Axes([[n] if n > 1 else [] for n in dims])

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(n for dim in self.dims for n in dim) or (1,)

    def split(self, axis: int, inner: int) -> None:
        for dim in self.dims:
            if axis < len(dim):
                if dim[axis] % inner:
                    raise NotEvaluable("native kernels need dimensions that nest")
                dim[axis : axis + 1] = [dim[axis] // inner, inner]
                return
            axis -= len(dim)

    def index(self, count: int) -> Index:
        """Returns the index of the first `count` dimensions."""
        first, found = 0, list[tuple[range, list[int]]]()
        for dim in self.dims[:count]:
            found.append((range(first, first + len(dim)), dim))
            first += len(dim)
        return tuple(
            combined([counter(a, n) for a, n in zip(axes, dim, strict=True)], row_major(dim)) for axes, dim in found
        )


def lower(computation: Computation, layouts: Sequence[StridedLayout] | None = None) -> LoweredKernel:
    """Returns the kernel of a computation whose parameters have these layouts (None: dense). Raises NotEvaluable if no
    kernel computes it.
    """
    root = computation.root
    outputs = root.operands if root.op.role is Role.TUPLE else [root]
    parameters = computation.parameters
    shapes = [*(p.shape for p in parameters), *(leaf for o in outputs for leaf in o.shape.leaves())]
    if not all(s.is_array and not s.is_dynamic and s.num_elements for s in shapes):
        raise NotEvaluable("native kernels take arrays of known sizes that are not empty")
    found = tuple(StridedLayout.dense(p.shape.dims) for p in parameters) if layouts is None else tuple(layouts)
    updates = updates_of(root)
    if updates is not None:
        return _updates(computation, updates, found)
    if is_fold(root) and reduction_monoid(root.attributes_as(ReduceAttributes).to_apply) is None:
        return _reduced(computation, shapes, found)
    groups = _groups([part for n, o in enumerate(outputs, len(parameters)) for part in _parts(_output(n, o))])
    made = _Lowering(shapes)
    made.inputs = {p: Operand(n, layout.strides) for n, (p, layout) in enumerate(zip(parameters, found, strict=True))}
    strided = [p for p, layout in zip(parameters, found, strict=True) if not layout.is_dense]
    try:
        nests = [made.nest(group) for group in groups]
        poor = [p for p in _read_poorly(nests, parameters) if p in strided]
    except NotEvaluable:  # rows of these strides may have no kernel where dense ones have
        if not strided:
            raise
        nests, poor = [], strided
    if poor:
        made = _Lowering(shapes, made.inputs)
        nests = [made.dense(p) for p in poor] + [made.nest(group) for group in groups]
    kernel = Kernel(tuple(made.lanes), tuple(nests))
    results = tuple(shapes[len(parameters) :])
    return LoweredKernel(kernel, found, tuple(shapes[: len(parameters)]), results, tuple(made.scratch))


class _Lowering:
    """The buffers of a kernel under construction, and the number of values in its nests."""

    def __init__(self, shapes: Sequence[Shape], inputs: dict[Instruction, Operand] | None = None) -> None:
        self.lanes = [memory(s.element) for s in shapes]
        self.inputs = inputs or {}
        self.scratch: list[int] = []
        self.values = 0

    def nest(self, group: list[Output]) -> Nest:
        """Returns the nest of some results."""
        nest, rows = _nest(group, self.inputs, len(self.lanes), self.values)
        self.lanes += rows
        self.scratch += [nest.columns] * len(rows)
        return self.add(nest)

    def add(self, nest: Nest) -> Nest:
        """Counts the values of a nest, so that later nests number theirs after them."""
        self.values += sum(len(step.nodes) for step in nest.steps)
        return nest

    def buffer(self, element: ElementType, size: int) -> int:
        """Returns the number of a new scratch array."""
        self.lanes.append(memory(element))
        self.scratch.append(size)
        return len(self.lanes) - 1

    def dense(self, parameter: Instruction) -> Nest:
        """Returns a nest that copies a parameter to a dense scratch array, from which later nests read it."""
        shape = parameter.shape
        buffer = self.buffer(shape.element, shape.num_elements)
        nest = self.nest([_output(buffer, parameter)])
        self.inputs = {**self.inputs, parameter: Operand(buffer, StridedLayout.dense(shape.dims).strides)}
        return nest


def _updates(computation: Computation, updates: Updates, layouts: tuple[StridedLayout, ...]) -> LoweredKernel:
    """Returns the kernel of an op that updates parts of an array: a copy of the array, the updates, and, where sums
    have a wider type, their rounding. See `updates`.
    """
    root, parameters = computation.root, computation.parameters
    if list(root.operands) != list(parameters):
        raise NotEvaluable("native kernels take operands of updates as parameters only")
    combined = Combiner.of(root.called()[0], root.shape.element)
    made = _Lowering([*(p.shape for p in parameters), root.shape])
    made.inputs = {p: Operand(n, layout.strides) for n, (p, layout) in enumerate(zip(parameters, layouts, strict=True))}
    result = array = len(parameters)
    kept = root.shape.with_element(combined.element)
    values = Computation("updates")
    if combined.element is not root.shape.element:
        array = made.buffer(combined.element, root.shape.num_elements)
    outer = values.add("parameter", [], ParameterAttributes(0), root.shape)
    made.inputs[outer] = made.inputs[parameters[0]]
    nests = [made.nest([_output(array, values.add("convert", [outer], shape=kept))])]
    nests.append(made.add(updates_nest(root, updates, combined, (array, *range(result)), layouts, made.values)))
    if array != result:
        sums = values.add("parameter", [], ParameterAttributes(1), kept)
        made.inputs[sums] = Operand(array, tuple(row_major(root.shape.dims)))
        nests.append(made.nest([_output(result, values.add("convert", [sums], shape=root.shape))]))
    kernel = Kernel(tuple(made.lanes), tuple(nests))
    return LoweredKernel(kernel, layouts, tuple(p.shape for p in parameters), (root.shape,), tuple(made.scratch))


def _reduced(computation: Computation, shapes: Sequence[Shape], layouts: tuple[StridedLayout, ...]) -> LoweredKernel:
    """Returns the kernel of a reduction by a computation. See `reducers`."""
    root, parameters = computation.root, computation.parameters
    reducer = Reducer(root, {p: n for n, p in enumerate(parameters)}, layouts)
    made, results = _Lowering(shapes), range(len(parameters), len(shapes))
    pieces = reducer.pieces()
    scratch = [made.buffer(leaf.element, pieces) for leaf in root.shape.leaves()] if pieces else []
    nests = [made.add(reducer.nest(part, made.values)) for part in reducer.parts(results, scratch)]
    kernel = Kernel(tuple(made.lanes), tuple(nests))
    count = len(parameters)
    return LoweredKernel(kernel, layouts, tuple(shapes[:count]), tuple(shapes[count:]), tuple(made.scratch))


def _read_poorly(nests: list[Nest], parameters: list[Instruction]) -> list[Instruction]:
    """Returns parameters read with a stride in the inner loop of a nest whose loops cannot be interchanged."""
    found: set[int] = set()
    for nest in nests:
        strips = [step for step in nest.steps if isinstance(step, Strip)]
        keeps_order = any(strip.folds or any(store.do for store in strip.stores) for strip in strips)
        if keeps_order and nest.rows and nest.columns > HOST.strided_columns:
            loads = [node.data for strip in strips for node in strip.nodes if node.do in LOADS]
            found |= {access.buffer for access in loads if abs(access.column) > 1}
    return [p for n, p in enumerate(parameters) if n in found]


def _output(buffer: int, instruction: Instruction) -> Output:
    return Output(buffer, instruction, tuple(row_major(instruction.shape.dims)))


def _parts(output: Output) -> list[Output]:
    """Returns the operands that a concatenation places next to each other in its result; other results are one part.
    Empty operands, which have no loops, are left out.
    """
    i = output.instruction
    sources = sources_of(i) or ()
    if not lie_side_by_side(sources, i.call.operands, i.shape):
        return [output]
    found: list[Output] = []
    for operand, source in zip(i.operands, sources, strict=True):
        assert not isinstance(source, RowMajor)
        if not operand.shape.num_elements:
            continue
        offset = output.offset - sum(a.offset * stride for a, stride in zip(source, output.strides, strict=True))
        found += _parts(Output(output.buffer, operand, output.strides, offset))
    return found


def _space(output: Instruction) -> tuple[int, ...]:
    """Returns the loop dimensions of a result."""
    return output.operands[0].shape.dims if is_fold(output) else output.shape.dims


def _groups(outputs: list[Output]) -> list[list[Output]]:
    """Groups results that share loops: those of one space, and those of its leading dimensions."""
    groups: list[list[Output]] = []
    for output in sorted(outputs, key=lambda o: -math.prod(_space(o.instruction))):
        space = _space(output.instruction)
        for group in groups:
            whole = group[0].instruction
            first = _space(whole)
            if first == space or (first[: len(space)] == space and _depends(output.instruction, whole)):
                group.append(output)
                break
        else:
            groups.append([output])
    return groups


def _depends(one: Instruction, other: Instruction) -> bool:
    """Whether two values depend on a common reduction, and so on the same rows."""

    def reductions(start: Instruction) -> set[Instruction]:
        return {i for i in reached([start], lambda i: i.operands) if is_fold(i)}

    return bool(reductions(one) & reductions(other))


def _result(output: Output, axes: _Axes, combine_rows: bool) -> Result:
    """Returns how a result is stored. A reduction combines rows unless it reduces the last dimensions alone;
    `combine_rows` makes all reductions do so.
    """
    i = output.instruction
    index = axes.index(len(_space(i)))
    if not is_fold(i):
        return Result(output, index, False)
    sizes, reduced = i.operands[0].shape.dims, i.attributes_as(ReduceAttributes).dimensions
    kept = [d for d, n in enumerate(sizes) if d not in reduced and n > 1]
    first = min((d for d in reduced if sizes[d] > 1), default=len(sizes))
    if combine_rows or any(d > first for d in kept):
        return Result(output, index, True)
    return Result(output, tuple(part for d, part in enumerate(index) if d not in reduced), False)


def _nest(group: list[Output], inputs: dict[Instruction, Operand], scratch: int, first: int) -> tuple[Nest, list[Lane]]:
    try:
        return _nest_of(group, False, inputs, scratch, first)
    except NotEvaluable:
        return _nest_of(group, True, inputs, scratch, first)


def _nest_of(
    group: list[Output], combine_rows: bool, inputs: dict[Instruction, Operand], scratch: int, first: int
) -> tuple[Nest, list[Lane]]:
    space_of_all = _space(group[0].instruction)
    axes = _Axes.of(space_of_all)

    def lowering(space: LoopSpace) -> NestLowering:
        return NestLowering(space, inputs, scratch, Builder(len(space.groups) - 1, first))

    def results() -> list[Result]:
        return [_result(output, axes, combine_rows) for output in group]

    def uses() -> Uses:
        trial = lowering(LoopSpace.fine(axes.sizes))
        trial.lower(results())
        return trial.uses

    block: int | None = None
    for _ in range(64):
        try:
            found = uses()
            space = merge(axes.sizes, found, block)
            split = wanted_block(space, found) if block is None else None
            if split is not None:
                block = split[0]
                axes.split(*split)
                continue
            final = lowering(space)
            return final.lower(results()), final.rows
        except SplitAxis as wanted:
            block = block if block is None or block < wanted.axis else block + 1
            axes.split(wanted.axis, wanted.inner)
        except MoreAxes as wanted:
            if len(axes.dims) > len(space_of_all):
                break
            axes.dims += _Axes.of(wanted.sizes).dims
        except ValueError as error:
            raise NotEvaluable(str(error)) from error
    raise NotEvaluable("native kernels need one order of loops")
