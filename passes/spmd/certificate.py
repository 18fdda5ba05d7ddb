"""Resharding on its own, with a certificate: the plan, what it moves, and how far that is from the least possible.

`reshard` answers "what does it cost to go from this sharding to that one?" before there is a program. `transfers` is
the same question for saved state: which slices each device of one mesh reads from which device of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.diagnostics import fail
from ...ir.digit import Digits, product
from ...ir.shape import Shape
from ...ir.sharding import Sharding
from ...ir.tiling import Tiling
from .exchange import Box, lower_bound, pieces, plan_exchange
from .moves import AllGather, AllReduce, AllToAll, Exchange, Move, Permute, ReduceScatter, Slice
from .reshard_plan import NoPlan, plan_reshard


@dataclass(frozen=True, slots=True)
class Certificate:
    """`moves` in words; bytes are per device. `bound_bytes` is what some device must receive however it is done; for
    unreduced sources, the bytes of its result. `peak_bytes` is the most that a move holds of the array.
    """

    moves: tuple[str, ...]
    collectives: int
    received_bytes: int
    bound_bytes: int
    peak_bytes: int

    @property
    def ratio(self) -> float:
        """Received over bound; 1 is optimal, also if nothing need move and nothing does."""
        if not self.bound_bytes:
            return math.inf if self.received_bytes else 1.0
        return self.received_bytes / self.bound_bytes


def reshard(shape: Shape, source: Sharding, target: Sharding, memory: int | None = None) -> Certificate:
    """The plan between two shardings over the same devices; `memory` in bytes. Raises CompileError."""
    devices = _devices(source, target)
    before, after = tiling_of(source, shape, devices), tiling_of(target, shape, devices)
    size = shape.element.byte_size
    try:
        plan = plan_reshard(before, after, shape.dims, devices, math.inf if memory is None else memory / size)
    except NoPlan:
        fail(f"no plan stays within {memory} bytes per device")
    if before.unreduced:
        bound = math.prod(after.local_dims(shape.dims))
    else:
        bound = lower_bound(before, after, shape.dims, devices)
    counts = [_collectives(m, shape.dims, devices) for m in plan.moves]
    return Certificate(
        tuple(f"{_words(m)}" + (f" ({n} rounds)" if n > 1 else "") for m, n in zip(plan.moves, counts, strict=True)),
        sum(counts),
        round(plan.received * size),
        bound * size,
        round(plan.peak * size),
    )


@dataclass(frozen=True, slots=True)
class Transfer:
    """`region` (start and end per dimension of the global array) goes from device `sender` to device `receiver`."""

    sender: int
    receiver: int
    region: Box
    bytes: int


def transfers(shape: Shape, source: Sharding, target: Sharding) -> list[Transfer]:
    """The least that must move when an array saved by the devices of `source` is loaded by those of `target`.

    The meshes may differ in size; devices of equal number are the same, and what they have they keep. A sharding
    without a mesh means one device. Raises CompileError for shardings that do not fit the shape.
    """
    sizes = [s.mesh.size if s.mesh else 1 for s in (source, target)]
    before, after = (tiling_of(s, shape, n) for s, n in zip((source, target), sizes, strict=True))
    _, sent = pieces(before, after, shape.dims, *sizes)
    size = shape.element.byte_size
    return [Transfer(p.sender, p.receiver, p.region, math.prod(p.dims) * size) for p in sent]


def _devices(source: Sharding, target: Sharding) -> int:
    sizes = {s.mesh.size for s in (source, target) if s.mesh is not None}
    if len(sizes) != 1:
        fail("both shardings must be over the same devices, they are over " + " and ".join(map(str, sorted(sizes))))
    return sizes.pop()


def tiling_of(sharding: Sharding, shape: Shape, devices: int) -> Tiling:
    """The meaning of a sharding for an array of this shape. Raises CompileError if it does not fit."""
    try:
        tiling = sharding.tiling(shape.rank)
    except (KeyError, ValueError) as error:
        fail(f"bad sharding {sharding}: {error}")
    if len(tiling.dims) != shape.rank:
        fail(f"sharding {sharding} has {len(tiling.dims)} dimensions, {shape} has {shape.rank}")
    if any(devices % product((d,)) for digits in tiling.digits() for d in digits):
        fail(f"sharding {sharding} does not divide {devices} devices")
    return tiling


def _collectives(move: Move, dims: tuple[int, ...], devices: int) -> int:
    if isinstance(move, Exchange):
        plan = plan_exchange(move.source, move.target, dims, devices)
        return sum(not r.local for r in plan.rounds)
    return 0 if isinstance(move, Slice) else 1


def _words(move: Move) -> str:
    match move:
        case Slice(dim, digits, _):
            return f"slice dimension {dim} by {_over(digits)}"
        case AllGather(dim, digits, _):
            return f"all-gather dimension {dim} over {_over(digits)}"
        case AllToAll(source, target, digits, _, _):
            return f"all-to-all dimension {source} to {target} over {_over(digits)}"
        case AllReduce(digits):
            return f"all-reduce over {_over(digits)}"
        case ReduceScatter(dim, digits, _):
            return f"reduce-scatter dimension {dim} over {_over(digits)}"
        case Permute():
            return "collective-permute of whole tiles"
        case Exchange():
            return "collective-permutes of missing pieces"


def _over(digits: Digits) -> str:
    """Digits as `size@stride` of the device number."""
    return " ".join(map(str, digits))
