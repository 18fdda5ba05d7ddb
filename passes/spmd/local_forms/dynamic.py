"""Local forms of dynamic-slice and dynamic-update-slice along divided dimensions.

A device holds positions [offset, offset + size) of such a dimension. A slice finds its elements among these, at their
places among identities, so that the sum over the devices is the slice. An update is replicated; each device writes the
part of it in its own positions. Starts are first clamped to the global array, as the ops do. Both touch only as much of
a tile as the slice or the update contains.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.graph.attributes import NONE, PadDim, PaddingConfig
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import choice_identity
from ....ir.ops.comparison import ComparisonDirection
from ....ir.ops.shaping import IotaAttributes
from ....ir.ops.slicing import PadAttributes
from ....ir.types.element_type import S32
from ....ir.types.shape import array
from ...op_sharding.assignment import LocalForm
from ...op_sharding.forms import Forms
from ..emit.emitter import Emitter
from ..emit.local_op import LocalOp


@dataclass(frozen=True, slots=True)
class _Window:
    """A window of `size` elements along a divided dimension, as one device sees it.

    `near` is the start of `seen` elements of the tile that include all of the tile's elements in the window. The window
    begins `ahead` elements (s32, negative if before) after `near`.
    """

    size: int
    seen: int
    near: Instruction
    ahead: Instruction


def dynamic_slice(local: LocalOp) -> Instruction:
    """Returns the slice's elements in the tile, identities elsewhere."""
    operand = local.operands[0]
    windows = _windows(local, local.instruction.shape.dims)
    if not windows:
        return local.emit()
    emitter, dims = local.emitter, local.local_shape().dims
    starts = _starts(local, windows, local.instruction.shape.dims)
    seen = emitter.dynamic_slice(operand.instruction, starts, _seen(windows, dims))
    padded = surrounded(emitter, seen, {d: w.size for d, w in windows.items()})
    shifts = {d: _plus(emitter, w.ahead, w.size) for d, w in windows.items()}
    return emitter.dynamic_slice(padded, shifts, dims)


def dynamic_update_slice(local: LocalOp) -> Instruction:
    """Writes the part of the update that lies in the tile."""
    operand, update = local.operands[:2]
    windows = _windows(local, update.shape.dims)
    if not windows:
        return local.emit()
    emitter, updates = local.emitter, update.instruction
    sizes = _seen(windows, updates.shape.dims)
    starts = _starts(local, windows, update.shape.dims)
    old = emitter.dynamic_slice(operand.instruction, starts, sizes)
    padded = surrounded(emitter, updates, {d: w.seen for d, w in windows.items()})
    back = {d: emitter.shared("subtract", (emitter.constant(w.seen, S32), w.ahead)) for d, w in windows.items()}
    new = emitter.dynamic_slice(padded, back, sizes)
    part = emitter.add("select", (_inside(emitter, windows, sizes), new, old))
    zero = emitter.constant(0, S32)
    places = [starts.get(d, zero) for d in range(len(sizes))]
    return emitter.add("dynamic-update-slice", (operand.instruction, part, *places), name=local.instruction.name)


def clamped_start(emitter: Emitter, start: Instruction, last: int) -> Instruction:
    """Clamps a start index (or an array of them) of any integer type to [0, last], as s32. Raises CompileError where
    s32 cannot hold `last`.
    """
    emitter.check(last, S32)
    element, dims = start.shape.element, start.shape.dims
    bounds = [emitter.splat(emitter.constant(n, element), dims) for n in (0, min(last, element.greatest))]
    inside = emitter.shared("clamp", (bounds[0], start, bounds[1]))
    return inside if element is S32 else emitter.shared("convert", (inside,), NONE, array(S32, dims))


def _windows(local: LocalOp, sizes: tuple[int, ...]) -> dict[int, _Window]:
    """Returns the windows in the divided dimensions of operand 0 that are not taken whole."""
    operand, emitter = local.operands[0], local.emitter
    start_of = local.operands[len(local.operands) - len(sizes) :]
    found: dict[int, _Window] = {}
    for dim, (digits, size, whole) in enumerate(zip(operand.tiling.dims, sizes, operand.shape.dims, strict=True)):
        if not digits or size == whole:
            continue
        tile = operand.instruction.shape.dims[dim]
        seen = min(size, tile)
        start = clamped_start(emitter, start_of[dim].instruction, whole - size)
        start = emitter.shared("subtract", (start, emitter.offset(digits, tile)))
        near = clamped_start(emitter, start, tile - seen)
        found[dim] = _Window(size, seen, near, emitter.shared("subtract", (start, near)))
    return found


def _starts(local: LocalOp, windows: dict[int, _Window], sizes: tuple[int, ...]) -> dict[int, Instruction]:
    """Returns the starts in the tile, for each dimension that is not taken whole."""
    whole = local.operands[0].shape.dims
    start_of = local.operands[len(local.operands) - len(sizes) :]
    found: dict[int, Instruction] = {}
    for dim, size in enumerate(sizes):
        if dim in windows:
            found[dim] = windows[dim].near
        elif size != whole[dim]:
            found[dim] = clamped_start(local.emitter, start_of[dim].instruction, whole[dim] - size)
    return found


def _seen(windows: dict[int, _Window], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(windows[d].seen if d in windows else n for d, n in enumerate(dims))


def _plus(emitter: Emitter, scalar: Instruction, number: int) -> Instruction:
    return emitter.shared("add", (scalar, emitter.constant(number, S32)))


def surrounded(emitter: Emitter, value: Instruction, widths: dict[int, int]) -> Instruction:
    """Pads some dimensions on both sides with this many identities."""
    if not widths:
        return value
    padding = PaddingConfig(tuple(PadDim(n, n) for n in (widths.get(d, 0) for d in range(value.shape.rank))))
    element = value.shape.element
    return emitter.add("pad", (value, emitter.constant(choice_identity(element), element)), PadAttributes(padding))


def _inside(emitter: Emitter, windows: dict[int, _Window], sizes: tuple[int, ...]) -> Instruction:
    """Returns a mask of the seen elements of the tile that is true within the window."""
    mask: Instruction | None = None
    for dim, window in windows.items():
        place = emitter.shared("iota", (), IotaAttributes(dim), array(S32, sizes))
        place = emitter.add("subtract", (place, emitter.splat(window.ahead, sizes)))
        first, end = (emitter.splat(emitter.constant(n, S32), sizes) for n in (0, window.size))
        after = emitter.compare(place, first, ComparisonDirection.GE)
        for part in (after, emitter.compare(place, end, ComparisonDirection.LT)):
            mask = part if mask is None else emitter.add("and", (mask, part))
    assert mask is not None
    return mask


FORMS: Forms = {
    "dynamic-slice": LocalForm(dynamic_slice),
    "dynamic-update-slice": LocalForm(dynamic_update_slice),
}
