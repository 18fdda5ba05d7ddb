"""Reports the losses of partitioning as diagnostics: the op, its location, bytes, and what the user can do.

There are four kinds. An op needs a dimension of an operand undivided, so that devices hold more than their own tile of
it. An op merges or splits dimensions, and its result cannot be divided as its operand is. An op computes its whole
result on every device although tiles of it are wanted. Tiles consist largely of padding. A choice that the partitioner
made only because it is cheapest is no fallback and is not reported.
"""

from __future__ import annotations

import math

from ....ir.diagnostics import Diagnostics
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.graph.stack_frames import named_with_source
from ....ir.sharding.digit import product
from ....ir.sharding.sharding import leaf_shardings
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape
from ...op_sharding.assignment import Assignment, OpSharding, expressible


def report_op(instruction: Instruction, op: OpSharding, assignment: Assignment, diagnostics: Diagnostics) -> None:
    """Reports operands that are gathered, or a result computed on every device, because the op's rule requires it."""
    count = len(op.rule.operands)
    reported = [_report_operand(instruction, op, assignment, n, diagnostics) for n in range(count)]
    if not any(reported):
        reported = [_report_lost(instruction, op, assignment, n, diagnostics) for n in range(count)]
    if not assignment and not any(reported) and any(_gathered_dims(op, n) for n in range(count, len(op.shapes))):
        size = instruction.shape.byte_size
        diagnostics.remark(
            f"{named_with_source(instruction)} computes its whole result on every device ({size} bytes), of which each "
            f"keeps a tile", instruction.location, category="replication",
            help="shard another dimension of it, or annotate it as replicated if this is meant")


def _report_operand(
    instruction: Instruction, op: OpSharding, assignment: Assignment, number: int, diagnostics: Diagnostics
) -> bool:
    gathered = _gathered_dims(op, number)
    if not gathered or number in op.free:
        return False
    tiling, target, shape = op.tilings[number], op.tiling(number, assignment), op.shapes[number]
    tile = tiling.local_shape(shape).byte_size
    if target.local_shape(shape).byte_size <= tile:
        return False  # the digits moved to other dimensions
    elements = op.plan(tiling, target, shape).received
    if math.isinf(elements):
        return False  # the partitioner will raise an error
    received = round(elements * shape.element.byte_size)
    tiles = product(tiling.dims[gathered[0]])
    others = [
        dim for dim, factors in enumerate(op.rule.operands[number])
        if factors and dim not in gathered and all(map(op.divisible, factors))
        and shape.dims[dim] >= tiles * product(tiling.dims[dim])
    ]  # fmt: skip
    instead = " or ".join(map(str, others))
    diagnostics.remark(
        f"{named_with_source(instruction)} needs dimension {gathered[0]} of operand {number} ({shape}) whole on every "
        f"device: each receives {received} bytes, its own tile has {tile}", instruction.location,
        category="replication" if target.is_replicated else "gather",
        help=f"shard dimension {instead} of the operand instead" if others
        else "annotate the operand as replicated if this is meant")
    return True


def _report_lost(
    instruction: Instruction, op: OpSharding, assignment: Assignment, number: int, diagnostics: Diagnostics
) -> bool:
    """Reports an operand whose division the results cannot keep, so that they are in fewer tiles than the operand.

    The results have the divided dimension as the inner part of another one, or in parts.
    """
    tiling, shape = op.tilings[number], op.shapes[number]
    split = [dim for dim, digits in enumerate(tiling.dims) if digits]
    if not split or number in op.free or op.device is not None or expressible(op.rule, tiling.dims, number):
        return False
    tiles = product([d for dim in split for d in tiling.dims[dim]])
    results = range(len(op.rule.operands), len(op.shapes))
    if not all(product([d for digits in op.tilings[r].dims for d in digits]) < tiles for r in results):
        return False
    plans = [(op.plan(tiling, op.tiling(number, assignment), shape), shape)]
    plans += [(op.plan(op.tiling(r, assignment), op.tilings[r], op.shapes[r]), op.shapes[r]) for r in results]
    received = sum(plan.received * of.element.byte_size for plan, of in plans)
    if not received or math.isinf(received):
        return False
    dims = [tuple(tiling.dims[split[0]] if d == dim else () for d in range(shape.rank)) for dim in range(shape.rank)]
    others = [d for d, n in enumerate(shape.dims) if n >= tiles and expressible(op.rule, dims[d], number)]
    diagnostics.remark(
        f"{named_with_source(instruction)} cannot keep dimension {split[0]} of operand {number} ({shape}) divided: "
        f"each device receives {round(received)} bytes, its own tile has {tiling.local_shape(shape).byte_size}",
        instruction.location,
        category="replication" if all(op.tilings[r].is_replicated for r in results) else "gather",
        help=f"shard dimension {' or '.join(map(str, others))} of the operand instead" if others
        else "annotate the operand as replicated if this is meant")
    return True


def _gathered_dims(op: OpSharding, value: int) -> list[int]:
    """Returns the divided dimensions of a value that the op needs undivided."""
    factors = op.rule.values()[value]
    return [d for d, f in enumerate(factors) if op.tilings[value].dims[d] and not all(map(op.divisible, f))]


def report_padding(module: Module, fraction: float, least: int, diagnostics: Diagnostics) -> None:
    """Reports each kind of array of a SHARDED module whose tiles waste more than `fraction` of a tile and `least`
    bytes.
    """
    found: dict[tuple[Shape, Tiling], list[Instruction]] = {}
    for computation in module:
        for instruction in computation:
            shapes = list(instruction.shape.leaves())
            for shape, sharding in zip(shapes, leaf_shardings(instruction.sharding, len(shapes)), strict=True):
                if shape.is_array and sharding is not None and not sharding.is_replicated:
                    tiling = sharding.tiling(shape.rank)
                    if _waste(shape, tiling) > max(least, fraction * tiling.local_shape(shape).byte_size):
                        found.setdefault((shape.without_layout(), tiling), []).append(instruction)
    for (shape, tiling), instructions in found.items():
        first, tile = instructions[0], tiling.local_shape(shape)
        dims = [f"{n} in {product(d)} tiles of {t}" for n, d, t in zip(shape.dims, tiling.dims, tile.dims, strict=True)
                if n % product(d)]
        more = f" (and {len(instructions) - 1} more like it)" if len(instructions) > 1 else ""
        diagnostics.remark(
            f"{named_with_source(first)}: {round(_waste(shape, tiling))} of the {tile.byte_size} bytes of a tile of "
            f"{shape} are padding{more}: {', '.join(dims)}", first.location, category="padding",
            help="choose a size that the tiles divide, fewer tiles, or another dimension")


def _waste(shape: Shape, tiling: Tiling) -> float:
    """Returns the average number of bytes per tile that hold no data."""
    tiles = product([digit for digits in tiling.dims for digit in digits])
    return tiling.local_shape(shape).byte_size - shape.byte_size / tiles
