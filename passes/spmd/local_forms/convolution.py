"""Local form of convolution.

A tile of the result reads an interval of the input, and so does a tile of the kernel: in the gradient of a kernel the
window is the large dimension, and a device adds the products of its taps. Where the kernel divides unevenly, the last
tiles have taps that do not exist. Weights of zero would not do, because zero times infinity is not-a-number, and nor
would a masked input, because an element that such a tap reads for one result is read by a true tap for another. So the
taps are convolved in parts that exist on a device as a whole or not at all; a part that does not exist adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product as combinations

from ....ir.factors.sharding_rule import FactorKind, Monoid
from ....ir.graph.attributes import Window, WindowDim
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import exact_identity
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.convolution import ConvolutionAttributes
from ....ir.sharding.digit import product
from ....ir.types.element_type import S32
from ...op_sharding.assignment import LocalForm
from ...op_sharding.forms import Forms
from ..emit.emitter import LocalValue
from ..emit.halo import sliced
from ..emit.local_op import LocalOp
from ..emit.reads import Fetched, fetch_reads, read_time
from .windows import within


@dataclass(frozen=True, slots=True)
class _Taps:
    """The taps of a tile of the kernel from `start` to `end` along a spatial dimension.

    They exist on the tiles before number `tiles`; on all of them if it is None.
    """

    number: int
    start: int
    end: int
    fetched: Fetched
    tiles: int | None


def convolution(local: LocalOp) -> Instruction:
    """Fetches zeros beyond the borders; where the kernel is divided, its tile is the window."""
    zero = local.emitter.constant(0, local.operands[0].instruction.shape.element)
    attributes = local.instruction.attributes_as(ConvolutionAttributes)
    labels, window = attributes.dim_labels, list(attributes.window.dims)
    local = replace(local, operands=_filled(local, attributes))
    (lhs, rhs), done = fetch_reads(local, {0: zero})
    if not done:
        return local.emit()
    parts: list[list[_Taps]] = []
    for found in done:
        label = labels.lhs[found.read.dim]
        number = labels.spatial.index(label)
        taps = rhs.shape.dims[labels.rhs.index(label)]
        lhs, window[number] = within(local, lhs, replace(window[number], size=taps), found, zero)
        parts.append(list(_parts(local, number, taps, found)))
    attributes = replace(attributes, window=Window(tuple(window)))
    first, *rest = (_on_taps(local, attributes, lhs, rhs, chosen) for chosen in combinations(*parts))
    monoid = _monoid(local)
    return reduce(lambda a, b: local.emitter.add(monoid.value, (a, b)), rest, first)


def _filled(local: LocalOp, attributes: ConvolutionAttributes) -> list[LocalValue]:
    """Fills the padding of divided features, and of the kernel where it meets elements between or around the input's.

    Divided taps need no fill: those of the padding are left out.
    """
    labels, monoid, kernel = attributes.dim_labels, _monoid(local), local.rule.operands[1]
    apart = [d for d in map(labels.rhs.index, labels.spatial)
             if all(local.rule.factors[f].kind is FactorKind.PASS for f in kernel[d])]  # fmt: skip
    features, inputs = labels.lhs.index("f"), labels.rhs.index("i")
    lhs, rhs = local.operands
    if not set(kernel[inputs]).isdisjoint(local.reduced_factors()):
        lhs = local.emitter.fill_outside(lhs, [features], monoid)
        apart.append(inputs)
    return [lhs, local.emitter.fill_outside(rhs, apart, monoid)]


def _parts(local: LocalOp, number: int, taps: int, found: Fetched) -> Iterator[_Taps]:
    """Yields the parts of a tile's taps that exist on a tile as a whole or not at all."""
    (factor,) = local.rule.operands[0][found.read.dim]
    size, tiles = local.rule.factors[factor].size, product(found.digits)
    if local.rule.factors[factor].kind is not FactorKind.REDUCTION or taps * tiles == size:
        yield _Taps(number, 0, taps, found, None)
        return
    rest = size % taps
    yield _Taps(number, 0, rest or taps, found, found.used if found.used < tiles else None)
    if rest:
        yield _Taps(number, rest, taps, found, found.used - 1)


def _on_taps(
    local: LocalOp, attributes: ConvolutionAttributes, lhs: Instruction, rhs: Instruction, parts: Sequence[_Taps]
) -> Instruction:
    """Convolves with these taps; gives the sum's identity on devices where they do not exist."""
    emitter, labels, window = local.emitter, attributes.dim_labels, list(attributes.window.dims)
    for part in parts:
        dim = labels.rhs.index(labels.spatial[part.number])
        window[part.number] = _narrowed(window[part.number], part)
        rhs = sliced(emitter, rhs, dim, part.start, part.end - part.start)
    shape = local.local_shape()
    call = replace(local.instruction.call, attributes=replace(attributes, window=Window(tuple(window))))
    adapted = local.instruction.op.localize(call, (lhs.shape, rhs.shape), shape)
    made = emitter.add("convolution", (lhs, rhs), adapted, shape, name=local.instruction.name)
    made.backend_config = local.instruction.backend_config
    for part in parts:
        if part.tiles is not None:
            tile = emitter.coordinate(part.fetched.digits)
            there = emitter.compare(tile, emitter.constant(part.tiles, S32), ComparisonDirection.LT)
            nothing = emitter.constant(exact_identity(_monoid(local), shape.element), shape.element)
            made = emitter.add("select", (emitter.splat(there, shape.dims), made, emitter.splat(nothing, shape.dims)))
    return made


def _monoid(local: LocalOp) -> Monoid:
    """Returns the monoid by which products are added; every convolution has one."""
    assert local.rule.monoid is not None
    return local.rule.monoid


def _narrowed(w: WindowDim, part: _Taps) -> WindowDim:
    """Narrows a window to a part of its taps, which keep their places."""
    before, after = part.start * w.rhs_dilate, (w.size - part.end) * w.rhs_dilate
    if w.reversal:
        before, after = after, before
    return replace(w, size=part.end - part.start, low=w.low - before, high=w.high - after)


FORMS: Forms = {"convolution": LocalForm(convolution, read_time)}
