"""Counts the work of the machine code of an op, by the names of `cost.native_speed`.

Kernels of loops are counted as they are written: a nest runs the operations of each of its steps once per row, or once
per strip of 16 columns, of which the last one is as long as the others. LLVM makes fewer of some and more of others;
an extreme of floats with the order of zeros and NaN takes five. A strip whose sums or extremes the rest of the row
waits for runs at the speed of its longest chain if that is longer than its operations take side by side. A division
takes the place of some operations; what it takes longer counts where fewer others go on beside it. Products are counted
by the stages of their plan, with the conversions around them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ....cost.host import HOST
from ....cost.memory_traffic import touched
from ....ir.errors import NotEvaluable
from ....ir.graph.attributes import Window
from ....ir.graph.instruction import Instruction
from ..loops import LANES, LOADS, Access, Do, Kernel, Lane, Nest, Node, Row, Step, Store, Strip
from ..lowerings import Lowerings
from ..native import expand
from ..native_steps import conversions, has_loops, loops_of, widened
from ..products.product import is_product, product_plan
from ..products.stages import CopyStage, Method, Multiply, Repeat, Stage
from ..products.tiles import WIDEST, heights
from ..put import WIDTHS, put_runs
from ..step import StridedLayout
from ..turned import turned_in

_FREE = frozenset((Do.CONSTANT, Do.BITCAST, Do.INDEX, Do.FOLDED))
_DIVISIONS = frozenset((Do.DIV, Do.SQRT))
_QUOTIENTS = frozenset((Do.SDIV, Do.UDIV, Do.SREM, Do.UREM))
_EXTREMES = frozenset((Do.MAXIMUM, Do.MINIMUM))
_OF_EXTREME = 5  # operations of an extreme of floats
_OF_SELECTED = 4  # elements of a window, as long as one of which an element is selected
_LOOKED_AHEAD = 512  # operations of a row that a processor begins before those before them have ended
_READ_AHEAD = 4  # times as many lines as the first cache holds, from which on reading waits for each
_WORD = 4  # bytes
_STRIP = 4 * LANES  # bytes
_OF_RUN = 10  # words that move while the copy of a run begins
_ALONE = ("scattered", "narrow")
_SIDE_BY_SIDE = 4  # operations that take as long as a link of a chain
_BESIDE_DIVISION = 12  # operations that a processor does while it divides ..
_OF_DIVISION = 7  # .. and those in whose place the division itself stands
_DIVIDED = 3  # operations, and links of a chain, that take as long as a division
_AHEAD = 4  # strips of a row after which its results are in memory when the next row reads them


class KernelWork(defaultdict[str, float]):
    """Numbers of things by their names, 0 where there are none."""

    def __init__(self, /, **counts: float) -> None:
        super().__init__(float, **counts)

    def add(self, more: Mapping[str, float], times: float = 1) -> None:
        """Adds other counts so many times."""
        for name, count in more.items():
            self[name] += times * count


def native_counts(
    instruction: Instruction, layouts: Sequence[StridedLayout], lowerings: Lowerings
) -> KernelWork | None:
    """Counts the work of the machine code of an op whose operands have these layouts; None if it has none."""
    try:
        if is_product(instruction.op):
            return _product(instruction, layouts, lowerings)
        if not has_loops(instruction):
            return None
        return kernel_counts(loops_of(instruction, lowerings).lowered(layouts).kernel)
    except (NotEvaluable, KeyError):
        return None


def kernel_counts(kernel: Kernel) -> KernelWork:
    """Counts the work of a kernel of loops."""
    found = KernelWork(entry=1)
    for nest in expand(kernel).nests:
        found["nest"] += 1
        waits, known = any(isinstance(step, Strip) and step.folds for step in nest.steps), set[Access]()
        for step in nest.steps:
            more = _row(nest, step, waits) if isinstance(step, Row) else _strip(nest, step, waits)
            moved = _moved(step)
            if known and moved <= known:
                more["apart"] = max(more["operation"] - _LOOKED_AHEAD * math.prod(nest.rows), 0.0)
            known |= moved
            found.add(more)
    return found


def _moved(step: Step) -> set[Access]:
    """Returns the accesses of a step whose places differ between rows."""
    loads = [node.data for node in step.nodes if node.do in LOADS and not node.uniform]
    return {a for a in (*loads, *(store.access for store in step.stores)) if any(a.strides[:-1])}


def put_counts(part: StridedLayout, whole: StridedLayout, itemsize: int) -> KernelWork:
    """Counts putting an array of this layout into another one: runs as long as words move alone, a longer one takes as
    long as some of these to begin.
    """
    run, runs = put_runs(part, whole)
    if run * itemsize in WIDTHS and runs > 1:
        return KernelWork(narrow=runs)
    return KernelWork(move=2 * math.prod(part.dims) * itemsize / _STRIP, narrow=_OF_RUN * (runs - 1))


def numpy_counts(instruction: Instruction) -> KernelWork:
    """Counts an op that numpy computes. Windows take a call for each of their positions, in one dimension after the
    other, each on the elements that the dimensions before have left; where they select an element, for the positions
    of all dimensions.
    """
    found = KernelWork(call=1, called=touched(instruction))
    window = getattr(instruction.attributes, "window", None)
    if isinstance(window, Window):
        sizes = [w.size for w in window.dims]
        selects = len(instruction.operands) > 2 and instruction.shape.is_array
        found["window"] += math.prod(sizes) if selects else sum(n for n in sizes if n > 1)
        if selects:
            found["windowed"] += _OF_SELECTED * math.prod(sizes) * instruction.operands[1].shape.num_elements
        else:
            before, after = (next(iter(v.shape.leaves())).dims for v in (instruction.operands[0], instruction))
            left = [math.prod((*after[: n + 1], *before[n + 1 :])) for n in range(len(after))]
            found["windowed"] += sum(size * count for size, count in zip(sizes, left, strict=False) if size > 1)
    return found


def _row(nest: Nest, step: Row, waits: bool) -> KernelWork:
    rows, links = math.prod(nest.rows), _links(step.nodes)
    count = sum(node.do not in _FREE for node in step.nodes)
    found = KernelWork(uniform=rows * len(step.stores))
    is_chain = waits and _SIDE_BY_SIDE * links > count
    found["chain" if is_chain else "uniform"] += rows * (links if is_chain else count)
    return found


def _strip(nest: Nest, step: Strip, waits: bool) -> KernelWork:
    rows, strips = math.prod(nest.rows), -(-nest.columns // LANES)
    lanes = [node for node in step.nodes if not node.uniform and node.do not in _FREE]
    found = KernelWork(uniform=rows * sum(n.uniform and n.do not in _FREE for n in step.nodes))
    inside, turned = KernelWork(), turned_in(nest)
    for node in lanes:
        if node.data in turned.loads and not node.operands:
            found["turned"] += rows * strips * LANES * _width(node)
            found["crowded"] += rows / LANES * nest.columns * _crowded(nest, node)
            inside["move"] += _width(node)
            continue
        name, times = _operation(node, nest.columns)
        if name in ("uniform", *_ALONE):
            found[name] += times * rows
            if name in _ALONE:
                found["crowded"] += times * rows * _crowded(nest, node)
        else:
            inside[name] += times
    for fold in step.folds:
        inside["operation"] += _OF_EXTREME if fold.do in _EXTREMES else 1
        found["extreme" if fold.do in _EXTREMES else "fold"] += rows
    for store in step.stores:
        wide = _width(store.value)
        if store.access in turned.stores and store.do is None:
            found["turned"] += rows * strips * LANES * wide
            inside["move"] += wide
        elif store.access.column == 1:
            inside["move"] += wide * (2 if store.do else 1)
        else:
            found[_alone(store.value.lane)] += rows * nest.columns
            excess = HOST.excess(nest.columns, store.access.column * store.value.lane.bits // 8)
            found["crowded"] += rows * nest.columns * (excess > 0)
        if store.do:
            inside["operation"] += wide
            found["combined"] += rows * (strips <= _AHEAD and _follows(nest, store))
    divisions = inside["division"]
    inside["division"] = max(divisions - inside["operation"] / _BESIDE_DIVISION, 0.0)
    inside["operation"] += _OF_DIVISION * divisions
    links = _links(lanes)
    beside = inside["operation"] + inside["move"] + _DIVIDED * (inside["division"] + inside["remainder"])
    if waits and _SIDE_BY_SIDE * links > strips * beside:
        found["chain"] += rows * links
    else:
        found.add(inside, rows * strips)
    return found


def _operation(node: Node, columns: int) -> tuple[str, float]:
    """Returns the name that an operation of a strip counts by, and the number of these: in a row for elements that are
    moved alone or once, else in a strip.
    """
    wide = _width(node)
    if node.do in LOADS:
        column = node.data.column
        return ("move", wide) if column == 1 else (_alone(node.lane), columns) if column else ("uniform", 1)
    if node.do in _QUOTIENTS:
        return "remainder", LANES
    if node.do in _DIVISIONS:
        return "division", wide * max(wide, 1)
    return "operation", wide * (_OF_EXTREME if node.do in _EXTREMES and node.lane.is_float else 1)


def _alone(lane: Lane) -> str:
    """Returns the kind of an element that is moved alone: processors gather words, narrower ones go one by one."""
    return "scattered" if lane.bits >= 8 * _WORD else "narrow"


def _crowded(nest: Nest, node: Node) -> float:
    """Returns the share of the cache lines of a strided load, one for each column, that the first cache no longer
    holds when the next rows need them. Squares are turned line by line, but lines that came ahead of them are lost.
    """
    excess = HOST.excess(nest.columns, node.data.column * node.lane.bits // 8)
    return min(excess / _READ_AHEAD, 1)


def _lost(lines: int, stride: int, loops: Sequence[int]) -> float:
    """Returns the share of cache lines at a stride in words that have left the first cache when a loop reads them
    again: one with stride 0 among `loops`.
    """
    return min(HOST.excess(lines, stride * _WORD), 1.0) if 0 in loops else 0.0


def _width(node: Node) -> float:
    """Returns the share of 32 bits that a lane takes; at least half."""
    return 1.0 if node.lane is Lane.MASK else max(node.lane.bits / 32, 0.5)


def _follows(nest: Nest, store: Store) -> bool:
    """Whether the next row updates the elements that a row has stored."""
    return bool(nest.rows) and nest.rows[-1] > 1 and not store.access.strides[len(nest.rows) - 1]


def _links(nodes: Iterable[Node]) -> float:
    """Returns the operations of the longest chain of values."""
    found: dict[Node, float] = {}
    for node in nodes:
        own = 0 if node.do in _FREE else 1
        if node.do in _DIVISIONS or node.do in _EXTREMES:
            own = _DIVIDED
        elif node.do in _QUOTIENTS:
            own = 2 * _DIVIDED
        found[node] = own + max([found.get(o, 0.0) for o in node.operands], default=0.0)
    return max(found.values(), default=0.0)


def _product(
    instruction: Instruction, layouts: Sequence[StridedLayout], lowerings: Lowerings
) -> KernelWork | None:
    """Counts a product by its plan, and the conversions of narrow operands and of the result."""
    wide = widened(instruction.op, instruction.call, layouts)
    if wide is None:
        return None
    result, read = StridedLayout.dense(wide.shape.dims), list(layouts)
    converted = KernelWork()
    for number, kernels in conversions(instruction.call, wide, lowerings):
        converted.add(kernel_counts(kernels.lowered([*layouts, result][number : number + 1]).kernel))
        if number < len(read):
            read[number] = StridedLayout.dense(wide.operands[number].dims)
    plan = product_plan(instruction.op, wide, read, result, wide.shape.element.is_float)
    if plan is None:
        return None
    converted.add(_stages(plan.stages))
    converted["entry"] += 1
    return converted


def _stages(stages: Sequence[Stage]) -> KernelWork:
    found = KernelWork()
    for stage in stages:
        if isinstance(stage, Repeat):
            times = math.prod(term.size for term in stage.terms)
            found.add(_stages(stage.stages), times)
        elif isinstance(stage, CopyStage):
            found["copied"] += math.prod(term.size for term in stage.terms)
        elif isinstance(stage, Multiply):
            times = math.prod(term.size for term in stage.loops)
            found.add(_multiply(stage), times)
    return found


def _tile_sums(rows: int, vectors: int) -> int:
    """Returns the time of one step of all tiles, in additions at full throughput. A tile with few sums takes as long as
    one with `HOST.sums_at_once`: each addition waits for that of the step before.
    """
    highest, *rest = heights(WIDEST)
    high = [(highest, rows // highest), *((h, rows % highest // h % 2) for h in rest)]
    wide = [(WIDEST.vectors, vectors // WIDEST.vectors), (vectors % WIDEST.vectors, 1)]
    return sum(many * more * max(h * w, HOST.sums_at_once) for h, many in high for w, more in wide if w)


def _multiply(stage: Multiply) -> Mapping[str, float]:
    rows, columns, inner = stage.row.size, stage.column.size, stage.inner.size
    if stage.method is Method.TILES:
        columns = -(-columns // LANES) * LANES
        panel = "panel" if stage.column.right == 1 else "panel_turned"
        lines = columns // LANES
        crowded = 2 * rows * lines * _lost(rows, stage.row.out, [term.out for term in stage.loops])  # read and written
        crowded += inner * lines * _lost(inner, stage.inner.right, [term.right for term in stage.loops])
        found = {"tile": 1, "tile_multiply": _tile_sums(rows, lines) * LANES * inner, panel: inner * columns,
                 "tile_element": rows * (inner + columns), "tile_crowded": crowded}  # fmt: skip
        if stage.rows is not None:
            found["panel_turned"] = found.get("panel_turned", 0) + rows * inner
        return found
    if stage.method is Method.BLAS:
        if 1 in (rows, columns):
            return {"vector": 1, "vector_multiply": rows * columns * inner}
        elements = rows * inner + inner * columns + rows * columns
        return {"blas": 1, "blas_multiply": rows * columns * inner, "blas_element": elements}
    return {"loop_multiply": rows * columns * max(inner, 1)}
