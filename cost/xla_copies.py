"""The copies that XLA makes for ops on CPUs, beyond the values of a program.

- A product of batches that stand between other dimensions, or of several dimensions at once, reads its left operand as
  batches, rows, depth and the right one as batches, depth, columns. A convolution reads `b..f` and `..io`. A value that
  one of them alone reads is stored in this order; others are copied.
- A collective along a dimension within others has it outermost: ops that no loop computes read a copy.
- A custom-call whose arrays are not in rows reads and writes copies.
- Running sums of a long dimension are made of sums of blocks.
- A select-and-scatter finds the places of the selected elements first, with an index for each dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..ir.analysis.awaited import reads
from ..ir.analysis.liveness import Buffer
from ..ir.graph.attributes import Attributes, Window
from ..ir.graph.instruction import Instruction
from ..ir.ops.calls.behaviour import CustomCallAttributes
from ..ir.ops.convolution import ConvolutionAttributes
from ..ir.ops.dot import DotAttributes
from ..ir.ops.select_and_scatter import SelectAndScatterAttributes
from ..ir.ops.window import ReduceWindowAttributes
from ..ir.types.shape import Shape
from .products import product_of
from .xla_kernels import is_plain, is_view

_INDEX = 4  # bytes
_BLOCK = 16  # `base_length` of XLA's ReduceWindowRewriter


def copies(times: Mapping[Instruction, int]) -> Iterator[Buffer]:
    """Yields the memory of copies that ops of a computation need, at these times."""
    for op, time in times.items():
        if is_within(op):
            yield from _of_collective(op, time, times)
        for source, size in _of_product(op) if product_of(op) else _RULES.get(type(op.attributes), _nothing)(op):
            yield Buffer(source, 0, size, time, time)


Copies = Iterable[tuple[Instruction, int]]
"""What is copied, and the bytes of each copy."""


def is_within(op: Instruction) -> bool:
    """Whether an op is a collective along a dimension within others."""
    along: tuple[int, ...] = getattr(op.attributes, "dimensions", ()) if op.op.is_collective else ()
    if not along or not op.shape.is_array or not op.operands[0].shape.is_array:
        return False
    return any(size != 1 for size in op.operands[0].shape.dims[: along[0]])


def joins(product: Instruction, side: int, is_result: bool) -> bool:
    """Whether XLA joins dimensions of an operand of a product, or those that come from it to the result: the rows or
    columns, the depth, and batches of one element.
    """
    a = product.attributes_as(DotAttributes)
    batch, depth = ((a.lhs_batch_dims, a.lhs_contracting_dims), (a.rhs_batch_dims, a.rhs_contracting_dims))[side]
    sizes = product.operands[side].shape.dims
    rest = len(sizes) - len(batch) - len(depth)
    return any(sizes[d] == 1 for d in batch) or rest > 1 or (not is_result and len(depth) > 1)


def _of_collective(op: Instruction, time: int, times: Mapping[Instruction, int]) -> Iterator[Buffer]:
    """Yields the operand that is copied, or the result if it is larger, for those that read it from memory."""
    (operand, *_), readers = op.operands, [reader for reader, _ in reads(op, is_view)]
    if op.shape.byte_size <= operand.shape.byte_size:
        yield Buffer(operand, 0, operand.shape.byte_size, time, time)
    elif any(not reader.op.is_fusible for reader in readers):
        first = min(times.get(reader, time) for reader in readers)
        yield Buffer(op, 0, op.shape.byte_size, first, first)


def _of_product(product: Instruction) -> Copies:
    if is_plain(product):
        return
    a = product.attributes_as(DotAttributes)
    sides = ((a.lhs_batch_dims, a.lhs_contracting_dims), (a.rhs_batch_dims, a.rhs_contracting_dims))
    for n, (operand, (batch, depth)) in enumerate(zip(product.operands[:2], sides, strict=True)):
        rest = [d for d in range(len(operand.shape.dims)) if d not in batch and d not in depth]
        inner = [rest, depth] if n == 0 else [depth, rest]
        orders = [[*batch, *inner[0], *inner[1]]]
        if 1 not in operand.shape.dims and max(map(len, inner)) <= 1:
            orders.append([*batch, *inner[1], *inner[0]])
        if not any(_is_sorted(order, operand.shape) for order in orders):
            yield from _unless_alone(operand)


def _of_convolution(op: Instruction) -> Copies:
    labels = op.attributes_as(ConvolutionAttributes).dim_labels
    space = "".join(labels.spatial)
    if not _is_sorted([labels.out.index(label) for label in f"b{space}f"], op.shape):
        yield op, op.shape.byte_size
    for operand, found, wanted in zip(op.operands, (labels.lhs, labels.rhs), (f"b{space}f", f"{space}io"), strict=True):
        if not _is_sorted([found.index(label) for label in wanted], operand.shape):
            yield from _unless_alone(operand)


def _of_custom_call(op: Instruction) -> Copies:
    return [(value, value.shape.byte_size) for value in (op, *op.operands) if not _is_in_rows(value.shape)]


def _of_selection(op: Instruction) -> Copies:
    read, source = op.operands[0].shape, op.operands[1].shape
    yield op, _INDEX * len(read.dims) * (read.num_elements + source.num_elements) + source.byte_size


def _of_windows(op: Instruction) -> Copies:
    if op.shape.is_array and _is_running(op.attributes_as(ReduceWindowAttributes).window, op.shape):
        yield op, op.shape.byte_size + op.shape.byte_size // _BLOCK


def _nothing(op: Instruction) -> Copies:
    return ()


_RULES: dict[type[Attributes], Callable[[Instruction], Copies]] = {
    ConvolutionAttributes: _of_convolution, CustomCallAttributes: _of_custom_call,
    SelectAndScatterAttributes: _of_selection, ReduceWindowAttributes: _of_windows,
}  # fmt: skip


def _is_running(window: Window, shape: Shape) -> bool:
    """Whether each element combines all before it along a long dimension."""
    return any(d.size == size > _BLOCK and d.size - 1 in (d.low, d.high)
               for d, size in zip(window.dims, shape.dims, strict=True))


def _unless_alone(operand: Instruction) -> Iterator[tuple[Instruction, int]]:
    """Yields an operand that is copied: not one that a loop makes for a single reader, in its order."""
    while is_view(operand):
        operand = operand.operands[0]
    if not operand.op.is_fusible or len(list(reads(operand, is_view))) > 1:
        yield operand, operand.shape.byte_size


def _is_sorted(order: Sequence[int], shape: Shape) -> bool:
    """Whether this order of the dimensions is that in memory, but for those of size 1."""
    places = [d for d in order if shape.dims[d] != 1]
    return places == sorted(places)


def _is_in_rows(shape: Shape) -> bool:
    return not shape.is_array or shape.minor_to_major == tuple(reversed(range(len(shape.dims))))
