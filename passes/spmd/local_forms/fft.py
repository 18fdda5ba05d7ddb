"""Local form of fft along divided dimensions: one transform per dimension, with the data transposed in between.

A transform of several dimensions is one of each in turn. During its transform, a divided dimension gives its digits to
another one by all-to-all. There they stay: a program that transforms back, or that wants the result so, exchanges once
and not twice. If no other can take them, the transform itself becomes one of two dimensions: with n = s * m
and x as a matrix [s, m], transform the columns, multiply element [k, j] by the root of unity w^(k * j) with w^n = 1,
transform the rows, and read the matrix by columns (Bailey, "FFTs in external or hierarchical memory", 1990).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....ir.graph.instruction import Instruction
from ....ir.ops.fft import FftAttributes, FftType
from ....ir.ops.shaping import BroadcastAttributes, IotaAttributes
from ....ir.sharding.digit import merge, product
from ....ir.sharding.tiling import Tiling
from ....ir.types.element_type import ELEMENT_TYPES, S32
from ....ir.types.shape import array
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ..emit.emitter import Emitter, LocalValue
from ..emit.local_op import LocalOp


@dataclass(frozen=True, slots=True)
class _Step:
    """The transform of one dimension of an array with `tiling`, to `after` elements.

    If `tiling` divides the dimension, it is transformed as a matrix.
    """

    dim: int
    kind: FftType
    length: int
    after: int
    tiling: Tiling


def _steps(
    dims: tuple[int, ...], tiling: Tiling, wanted: Tiling, attributes: FftAttributes
) -> Iterator[_Step | None]:
    """Yields the transforms, undivided dimensions first; None if one is not possible. The last one leaves its result as
    `wanted` if it can.
    """
    kind, count = attributes.fft_type, len(attributes.fft_length)
    last = len(dims) - 1
    lengths = dict(zip(range(len(dims) - count, len(dims)), attributes.fft_length, strict=True))
    order = sorted(lengths, key=lambda d: bool(tiling.dims[d]))
    if kind in (FftType.RFFT, FftType.IRFFT):
        # Only the last dimension is halved; the others are transformed while it is complex.
        order.remove(last)
        order = [last, *order] if kind is FftType.RFFT else [*order, last]
    for place, dim in enumerate(order):
        whole = {FftType.RFFT: FftType.FFT, FftType.IRFFT: FftType.IFFT}.get(kind, kind)
        own = kind if dim == last else whole
        moved = _moved(dims, tiling, wanted, dim, order[place + 1 :])
        if moved is None:
            if own is not whole or dims[dim] % product(tiling.dims[dim]) ** 2:
                yield None
                return
            moved = tiling
        after = lengths[dim] // 2 + 1 if own is FftType.RFFT else lengths[dim]
        yield _Step(dim, own, lengths[dim], after, moved)
        tiling, dims = moved, (*dims[:dim], after, *dims[dim + 1 :])


def _moved(
    dims: tuple[int, ...], tiling: Tiling, wanted: Tiling, dim: int, waiting: list[int]
) -> Tiling | None:
    """Moves a dimension's digits to another one, preferably one that has them in the `wanted` tiling, that they divide
    evenly, and that is not `waiting`.
    """
    digits = tiling.dims[dim]
    if not digits:
        return tiling
    found: list[tuple[bool, bool, bool, int, Tiling]] = []
    for other, size in enumerate(dims):
        together = merge((*tiling.dims[other], *digits))
        if other != dim and size >= product(together):
            target = tiling.with_dim(dim, ()).with_dim(other, together)
            found.append((size % product(together) != 0, other in waiting, target.dims != wanted.dims, -size, target))
    return min(found, key=lambda f: f[:4])[4] if found else None


def _exchanged(op: OpSharding, assignment: Assignment) -> float:
    attributes = op.attributes_as(FftAttributes)
    dims, current = op.shapes[0].dims, op.tiling(0, assignment)
    total = 0.0
    widest = max(op.shapes, key=lambda s: s.element.byte_size)
    for step in _planned(op, assignment):
        if step is None or 0 in (*op.shapes[0].dims, *op.shapes[1].dims, *attributes.fft_length):
            return math.inf
        total += op.plan(current, step.tiling, widest.with_dims(dims)).cost
        if digits := step.tiling.dims[step.dim]:
            split, rows, columns = _as_matrix(dims, step.tiling, step.dim, product(digits))
            total += 3 * op.plan(rows, columns, widest.with_dims(split)).cost
        dims, current = (*dims[: step.dim], step.after, *dims[step.dim + 1 :]), step.tiling
    return total


def _planned(op: OpSharding, assignment: Assignment) -> Iterator[_Step | None]:
    """Yields the transforms under an assignment; none if it divides no dimension that is transformed."""
    attributes, tiling = op.attributes_as(FftAttributes), op.tiling(0, assignment)
    if any(tiling.dims[d] for d in _own(attributes, len(tiling.dims))):
        yield from _steps(op.shapes[0].dims, tiling, op.tilings[1], attributes)


def _left(op: OpSharding, assignment: Assignment) -> Tiling:
    """Returns the tiling after the last transform."""
    *_, last = (None, *_planned(op, assignment))
    return op.by_rule(1, assignment) if last is None else last.tiling


def _own(attributes: FftAttributes, rank: int) -> range:
    return range(rank - len(attributes.fft_length), rank)


def _as_matrix(dims: tuple[int, ...], tiling: Tiling, dim: int, count: int) -> tuple[tuple[int, ...], Tiling, Tiling]:
    """Returns dimensions with [count, rest] in place of one, the tiling of the rows and that of the columns."""
    split = (*dims[:dim], count, dims[dim] // count, *dims[dim + 1 :])
    before, digits, after = tiling.dims[:dim], tiling.dims[dim], tiling.dims[dim + 1 :]
    rows = replace(tiling, dims=(*before, digits, (), *after))
    return split, rows, replace(tiling, dims=(*before, (), digits, *after))


def fft(local: LocalOp) -> Instruction:
    attributes, operand = local.instruction.attributes_as(FftAttributes), local.operands[0]
    own = _own(attributes, operand.shape.rank)
    if not any(operand.tiling.dims[d] for d in own):
        return local.emit()
    value, why = operand, f"transposition of {local.why}"
    for step in _steps(operand.shape.dims, operand.tiling, local.results[0], attributes):
        assert step is not None
        value = local.resharder.reshard(value, step.tiling, why)
        if step.tiling.dims[step.dim]:
            made = _matrix(local, value, step)
        else:
            made = _transform(local.emitter, value.instruction, step.dim, step.kind, step.length)
        dims = (*value.shape.dims[: step.dim], step.after, *value.shape.dims[step.dim + 1 :])
        value = LocalValue(made, array(made.shape.element, dims), step.tiling)
    return local.resharder.reshard(value, local.results[0], why).instruction


def _transform(emitter: Emitter, value: Instruction, dim: int, kind: FftType, length: int) -> Instruction:
    """Transforms one undivided dimension."""
    rank = value.shape.rank
    perm = (*(d for d in range(rank) if d != dim), dim)
    back = tuple(perm.index(d) for d in range(rank))
    done = emitter.add("fft", (emitter.transpose(value, perm),), FftAttributes(kind, (length,)))
    return emitter.transpose(done, back)


def _matrix(local: LocalOp, value: LocalValue, step: _Step) -> Instruction:
    """Transforms a divided dimension, in three all-to-alls."""
    emitter, dim = local.emitter, step.dim
    digits = value.tiling.dims[dim]
    count = product(digits)
    split, rows, columns = _as_matrix(value.shape.dims, value.tiling, dim, count)
    shape = value.shape.with_dims(split)

    def moved(x: Instruction, dims: tuple[int, ...], source: Tiling, target: Tiling) -> Instruction:
        held = LocalValue(emitter.reshape(x, source.local_dims(dims)), shape.with_dims(dims), source)
        return local.resharder.reshard(held, target, f"transposition of {local.why}").instruction

    x = moved(value.instruction, split, rows, columns)
    x = _transform(emitter, x, dim, step.kind, count)
    x = emitter.add("multiply", (x, _roots(emitter, x, step, emitter.offset(digits, x.shape.dims[dim + 1]))))
    x = moved(x, split, columns, rows)
    x = _transform(emitter, x, dim + 1, step.kind, split[dim + 1])
    swapped = (*range(dim), dim + 1, dim, *range(dim + 2, len(split)))
    x = moved(emitter.transpose(x, swapped), tuple(split[d] for d in swapped), columns, rows)
    return emitter.reshape(x, value.instruction.shape.dims)


def _roots(emitter: Emitter, like: Instruction, step: _Step, start: Instruction) -> Instruction:
    """Returns exp(-2 pi i k j / n) for row k and column j of a matrix (conjugate for the inverse), j from `start` on.
    """
    dim, dims = step.dim, like.shape.dims[step.dim : step.dim + 2]
    real = ELEMENT_TYPES["f32" if like.shape.element.name == "c64" else "f64"]
    places = array(S32, dims)
    row, column = (emitter.shared("iota", (), IotaAttributes(d), places) for d in range(2))
    column = emitter.shared("add", (column, emitter.splat(start, dims)))
    turn = emitter.add("convert", (emitter.add("multiply", (row, column)),), shape=array(real, dims))
    # Pi as an op is exact to whatever precision the program runs in.
    pi = emitter.add("atan2", (emitter.constant(0, real), emitter.constant(-1, real)))
    sign = emitter.constant(-2 if step.kind is FftType.FFT else 2, real)
    full = emitter.add("divide", (emitter.add("multiply", (pi, sign)), emitter.constant(step.length, real)))
    angle = emitter.add("multiply", (turn, emitter.splat(full, dims)))
    roots = emitter.add("complex", (emitter.add("cosine", (angle,)), emitter.add("sine", (angle,))))
    return emitter.add("broadcast", (roots,), BroadcastAttributes((dim, dim + 1)), like.shape)


FORMS: Forms = {"fft": LocalForm(fft, _exchanged, leaves=_left)}
