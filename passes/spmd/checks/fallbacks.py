"""Reports the losses of partitioning as diagnostics: the op, its location, bytes, and what the user can do.

There are four kinds. An op needs a dimension of an operand undivided, so that devices hold more than their own tile of
it. An op merges or splits dimensions, and its result cannot be divided as its operand is. An op computes its whole
result on every device although tiles of it are wanted. Tiles consist largely of padding. A choice that the partitioner
made only because it is cheapest is no fallback and is not reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ....ir.brief import brief
from ....ir.diagnostics import Diagnostics
from ....ir.graph.instruction import Instruction
from ....ir.graph.module import Module
from ....ir.graph.stack_frames import named_with_source
from ....ir.sharding.digit import Digits, product
from ....ir.sharding.sharding import AnySharding, leaf_shardings
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape
from ...op_sharding.assignment import Assignment, Choice, OpSharding, expressible


@dataclass(frozen=True, slots=True)
class _Finding:
    """A loss under an assignment. `text` follows the name of the instruction in the message."""

    text: str
    category: str
    help: str
    bytes: int


@brief
@dataclass(frozen=True, slots=True)
class Fallbacks:
    """Reports operands that are gathered, and results computed on every device, because the rules of ops require it.

    Equal choices have equal findings.
    """

    diagnostics: Diagnostics
    _known: dict[Choice, tuple[_Finding, ...]] = field(default_factory=dict[Choice, tuple[_Finding, ...]])

    def findings(self, choice: Choice) -> tuple[_Finding, ...]:
        """Returns the losses of each op that is divided so."""
        found = self._known.get(choice)
        if found is None:
            found = self._known[choice] = tuple(_findings(choice.op, choice.assignment))
        return found

    def report(self, instruction: Instruction, choice: Choice) -> None:
        for finding in self.findings(choice):
            self.diagnostics.remark(f"{named_with_source(instruction)} {finding.text}", instruction.location,
                                    category=finding.category, help=finding.help, cost=finding.bytes)


def _findings(op: OpSharding, assignment: Assignment) -> Iterator[_Finding]:
    count = len(op.rule.operands)
    found = [f for n in range(count) if (f := _gathered(op, assignment, n))]
    found = found or [f for n in range(count) if (f := _lost(op, assignment, n))]
    yield from found
    if not assignment and not found and any(_gathered_dims(op, n) for n in range(count, len(op.shapes))):
        size = op.call.shape.byte_size
        dims = [factors for value in op.rule.values()[count:] for factors in value]
        may_divide = any(factors and all(map(op.divisible, factors)) for factors in dims)
        yield _Finding(
            f"computes its whole result on every device ({size} bytes), of which each keeps a tile", "replication",
            ("shard another dimension of it, or" if may_divide else "no dimension of it can be divided:")
            + " annotate it as replicated if this is meant", size)


def _gathered(op: OpSharding, assignment: Assignment, number: int) -> _Finding | None:
    gathered = _gathered_dims(op, number)
    if not gathered or number in op.free:
        return None
    tiling, target, shape = op.tilings[number], op.tiling(number, assignment), op.shapes[number]
    tile = tiling.local_shape(shape).byte_size
    if target.local_shape(shape).byte_size <= tile:
        return None  # the digits moved to other dimensions
    elements = op.plan(tiling, target, shape).received
    if math.isinf(elements):
        return None  # the partitioner will raise an error
    received = round(elements * shape.element.byte_size)
    tiles = product(tiling.dims[gathered[0]])
    others = [
        dim for dim, factors in enumerate(op.rule.operands[number])
        if factors and dim not in gathered and all(map(op.divisible, factors))
        and shape.dims[dim] >= tiles * product(tiling.dims[dim])
    ]  # fmt: skip
    instead = " or ".join(map(str, others))
    return _Finding(
        f"needs dimension {gathered[0]} of operand {number} ({shape}) whole on every "
        f"device: each receives {received} bytes, its own tile has {tile}",
        "replication" if target.is_replicated else "gather",
        f"shard dimension {instead} of the operand instead" if others
        else "annotate the operand as replicated if this is meant", received)


def _lost(op: OpSharding, assignment: Assignment, number: int) -> _Finding | None:
    """Finds an operand whose division the results cannot keep, so that they are in fewer tiles than the operand.

    The results have the divided dimension as the inner part of another one, or in parts.
    """
    tiling, shape = op.tilings[number], op.shapes[number]
    split = [dim for dim, digits in enumerate(tiling.dims) if digits]
    if not split or number in op.free or op.device is not None or expressible(op.rule, tiling.dims, number):
        return None
    tiles = product([d for dim in split for d in tiling.dims[dim]])
    results = range(len(op.rule.operands), len(op.shapes))
    if not all(product([d for digits in op.tilings[r].dims for d in digits]) < tiles for r in results):
        return None
    plans = [(op.plan(tiling, op.tiling(number, assignment), shape), shape)]
    plans += [(op.plan(op.tiling(r, assignment), op.tilings[r], op.shapes[r]), op.shapes[r]) for r in results]
    received = sum(plan.received * of.element.byte_size for plan, of in plans)
    if not received or math.isinf(received):
        return None
    alone = {dim: [own if d == dim else () for d, own in enumerate(tiling.dims)] for dim in split}
    lost = next((dim for dim in split if not expressible(op.rule, alone[dim], number)), split[0])
    moved = [_moved(tiling.dims, lost, dim) for dim in range(shape.rank)]
    others = [d for d, dims in enumerate(moved) if d != lost and shape.dims[d] >= product(dims[d])
              and expressible(op.rule, dims, number)]  # fmt: skip
    return _Finding(
        f"cannot keep dimension {lost} of operand {number} ({shape}) divided: "
        f"each device receives {round(received)} bytes, its own tile has {tiling.local_shape(shape).byte_size}",
        "replication" if all(op.tilings[r].is_replicated for r in results) else "gather",
        f"shard dimension {' or '.join(map(str, others))} of the operand instead" if others
        else "annotate the operand as replicated if this is meant", round(received))


def _moved(dims: Sequence[Digits], source: int, target: int) -> list[Digits]:
    """Returns the digits of dimensions after those of `source` have moved to the end of those of `target`."""
    kept = [() if dim == source else digits for dim, digits in enumerate(dims)]
    return [(*digits, *dims[source]) if dim == target else digits for dim, digits in enumerate(kept)]


def _gathered_dims(op: OpSharding, value: int) -> list[int]:
    """Returns the divided dimensions of a value that the op needs undivided."""
    factors = op.rule.values()[value]
    return [d for d, f in enumerate(factors) if op.tilings[value].dims[d] and not all(map(op.divisible, f))]


def report_padding(module: Module, fraction: float, least: int, diagnostics: Diagnostics) -> None:
    """Reports each kind of array of a SHARDED module whose tiles waste more than `fraction` of a tile and `least`
    bytes.
    """
    first_of: dict[tuple[int, int], Instruction] = {}  # by identities: mostly a few objects
    same = [id(first_of.setdefault((id(i.shape), id(i.sharding)), i)) for c in module for i in c]
    counts = Counter(same)
    kinds: dict[tuple[Shape, AnySharding | None], list[Instruction]] = {}
    for first in first_of.values():
        kinds.setdefault((first.shape, first.sharding), []).extend([first] * counts[id(first)])
    found: dict[tuple[Shape, Tiling], list[Instruction]] = {}
    for (whole, annotation), instructions in kinds.items():
        shapes = list(whole.leaves())
        for shape, sharding in zip(shapes, leaf_shardings(annotation, len(shapes)), strict=True):
            if shape.is_array and sharding is not None and not sharding.is_replicated:
                tiling = sharding.tiling(shape.rank)
                if _waste(shape, tiling) > max(least, fraction * tiling.local_shape(shape).byte_size):
                    found.setdefault((shape.without_layout(), tiling), []).extend(instructions)
    for (shape, tiling), instructions in found.items():
        first, tile = instructions[0], tiling.local_shape(shape)
        dims = [f"{n} in {product(d)} tiles of {t}" for n, d, t in zip(shape.dims, tiling.dims, tile.dims, strict=True)
                if n % product(d)]
        more = f" (and {len(instructions) - 1} more like it)" if len(instructions) > 1 else ""
        diagnostics.remark(
            f"{named_with_source(first)}: {round(_waste(shape, tiling))} of the {tile.byte_size} bytes of a tile of "
            f"{shape} are padding{more}: {', '.join(dims)}", first.location, category="padding",
            help="choose a size that the tiles divide, fewer tiles, or another dimension",
            cost=len(instructions) * _waste(shape, tiling))


def _waste(shape: Shape, tiling: Tiling) -> float:
    """Returns the average number of bytes per tile that hold no data."""
    tiles = product([digit for digits in tiling.dims for digit in digits])
    return tiling.local_shape(shape).byte_size - shape.byte_size / tiles
