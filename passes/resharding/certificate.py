"""Resharding on its own, with a certificate: the plan, its time on a machine and its bytes, and lower bounds on both.

Plans are chosen for the least time on the machine. Some device must receive the bytes of the lower bound under any
plan, and no plan receives them faster than over the machine's fastest links.

`reshard` answers "what does it cost to go from this sharding to that one?" before there is a program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...cost.machine import DEFAULT, SECOND, Machine
from ...cost.presets import machine_name
from ...ir.diagnostics import fail
from ...ir.sharding.digit import Digit, Digits, product
from ...ir.sharding.sharding import Sharding, ShardingKind
from ...ir.sharding.tiling import Tiling
from ...ir.types.shape import Shape
from .base.moves import (
    AllGatherMove,
    AllReduceMove,
    AllToAllMove,
    Exchange,
    Mask,
    Move,
    Permute,
    ReduceScatterMove,
    Resharding,
    ReshardPlan,
    SliceMove,
    Spread,
)
from .exchange.pieces import lower_bound
from .exchange.plan import plan_exchange
from .exchange.quotient import quotient
from .plan import NoPlan, plan_reshard
from .search.bound import bound
from .search.search import ReshardProblem, space_of

_MOST_DEVICES = 1 << 22


@dataclass(frozen=True, slots=True)
class Certificate:
    """A resharding plan for people: `moves` in words, bytes per device, and `seconds` on the machine called `machine`,
    which the plan minimizes.

    `bound_bytes` and `bound_seconds` are lower bounds: some device must receive so many bytes under any plan, which
    takes so long over the fastest links. `peak_bytes` is the most that a device holds of the array, before and after a
    move together.
    """

    moves: tuple[str, ...]
    collectives: int
    received_bytes: int
    bound_bytes: int
    peak_bytes: int
    seconds: float
    bound_seconds: float
    machine: str

    @property
    def ratio(self) -> float:
        """Received over bound; 1 is optimal, also if nothing need move and nothing does."""
        return _ratio(self.received_bytes, self.bound_bytes)

    @property
    def time_ratio(self) -> float:
        """Seconds over their bound; 1 is optimal, also if nothing need move and nothing does."""
        return _ratio(self.seconds, self.bound_seconds)


def _ratio(found: float, bound: float) -> float:
    if not bound:
        return math.inf if found else 1.0
    return found / bound


@dataclass(frozen=True, slots=True)
class Certified:
    """One resharding of a program and its certificate for a single execution.

    `cause` is that of its collectives (`hloom.cause`).
    """

    cause: str
    shape: Shape
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class ProgramCertificate:
    """The reshardings of a program in the order in which they were emitted, each once, however often it runs.

    What local forms exchange is not among them; `hloom.collectives` lists everything that is sent.
    """

    reshardings: tuple[Certified, ...]
    machine: str

    @staticmethod
    def of(found: Iterable[Resharding], devices: int, machine: Machine) -> ProgramCertificate:
        """Certifies the reshards that the partitioner recorded for this many devices, and planned for this machine."""
        return ProgramCertificate(tuple(
            Certified(r.cause, r.shape, certify(r.plan, r.source, r.target, r.shape, devices, machine)) for r in found
        ), machine_name(machine))

    @property
    def received_bytes(self) -> int:
        """Bytes that a device receives in all of them."""
        return sum(r.certificate.received_bytes for r in self.reshardings)

    @property
    def bound_bytes(self) -> int:
        """Bytes that some device must receive in each of them, summed up."""
        return sum(r.certificate.bound_bytes for r in self.reshardings)

    @property
    def ratio(self) -> float:
        """Received over bound; 1 is optimal, also if nothing moves."""
        return _ratio(self.received_bytes, self.bound_bytes)

    @property
    def seconds(self) -> float:
        """The time of all of them on the machine, one after the other."""
        return math.fsum(r.certificate.seconds for r in self.reshardings)

    @property
    def bound_seconds(self) -> float:
        """The lower bounds on the times of all of them, summed up."""
        return math.fsum(r.certificate.bound_seconds for r in self.reshardings)

    @property
    def time_ratio(self) -> float:
        """Seconds over their bound; 1 is optimal, also if nothing moves."""
        return _ratio(self.seconds, self.bound_seconds)


def reshard(
    shape: Shape, source: Sharding, target: Sharding, memory: int | None = None, machine: Machine = DEFAULT
) -> Certificate:
    """The plan between two shardings over the same devices; `memory` in bytes. Raises CompileError."""
    devices = _devices(source, target)
    before, after = tiling_of(source, shape, devices), tiling_of(target, shape, devices)
    size = shape.element.byte_size
    most = math.inf if memory is None else memory / size
    try:
        plan = plan_reshard(before, after, shape.dims, devices, most, size, machine)
    except NoPlan:
        fail(f"no plan stays within {memory} bytes per device")
    return certify(plan, before, after, shape, devices, machine)


def certify(
    plan: ReshardPlan, source: Tiling, target: Tiling, shape: Shape, devices: int, machine: Machine
) -> Certificate:
    """Returns the certificate of a plan for a machine: its moves in words, bytes and times."""
    counts = [_collectives(m, shape.dims, devices) for m in plan.moves]
    size = shape.element.byte_size
    least_bytes = least(source, target, shape.dims, devices) * size
    return Certificate(
        tuple(f"{_words(m)}" + (f" ({n} rounds)" if n > 1 else "") for m, n in zip(plan.moves, counts, strict=True)),
        sum(counts),
        round(plan.received * size),
        math.ceil(least_bytes - 1e-6),
        round(plan.peak * size),
        plan.cost / SECOND,
        machine.fastest.time(least_bytes) / SECOND,
        machine_name(machine),
    )


def least(source: Tiling, target: Tiling, dims: tuple[int, ...], devices: int) -> float:
    """Returns a lower bound on the elements that some device must receive between two tilings.

    With unreduced ends it is a bound that may be too low (0 where only the target is unreduced).
    """
    if not source.unreduced and not target.unreduced:
        return lower_bound(source, target, dims, devices)
    if source.device is not None or target.device is not None or source.order != target.order:
        return 0.0
    return bound(*space_of(source, target, ReshardProblem(dims, devices, 1, DEFAULT, math.inf)))


def _devices(source: Sharding, target: Sharding) -> int:
    """Returns the number of devices of both ends; an end that names none takes the number of the other."""
    sizes = {s.mesh.size for s in (source, target) if s.mesh is not None}
    if len(sizes) > 1:
        fail("both shardings must be over the same devices, they are over " + " and ".join(map(str, sorted(sizes))))
    if not sizes and ShardingKind.UNREDUCED in (source.kind, target.kind):
        fail("neither sharding says over how many devices the sum is",
             help="name them: {mesh['x'=4], [{}], unreduced={'x'}}")
    owners = [s.device for s in (source, target) if s.kind is ShardingKind.MAXIMAL]
    devices = sizes.pop() if sizes else max(owners, default=0) + 1
    if any(not 0 <= owner < devices for owner in owners):
        fail(f"there is no device {max(owners)} among {devices}")
    return devices


def tiling_of(sharding: Sharding, shape: Shape, devices: int) -> Tiling:
    """The meaning of a sharding for an array of this shape; `{unreduced}` is a sum over all devices.

    Raises CompileError if it does not fit.
    """
    if devices > _MOST_DEVICES:
        fail(f"{devices} devices are more than the {_MOST_DEVICES} that can be looked at one by one")
    try:
        tiling = sharding.tiling(shape.rank)
    except (KeyError, ValueError) as error:
        fail(f"bad sharding {sharding}: {error}")
    if sharding.kind is ShardingKind.UNKNOWN or sharding.has_manual:
        fail(f"sharding {sharding} does not say how the value is divided")
    if sharding.kind is ShardingKind.UNREDUCED and devices > 1:
        tiling = replace(tiling, unreduced=(Digit(devices, 1),))
    if len(tiling.dims) != shape.rank:
        fail(f"sharding {sharding} has {len(tiling.dims)} dimensions, {shape} has {shape.rank}")
    if any(devices % product((d,)) for digits in tiling.digits() for d in digits):
        fail(f"sharding {sharding} does not divide {devices} devices")
    return tiling


def _collectives(move: Move, dims: tuple[int, ...], devices: int) -> int:
    if isinstance(move, Exchange):
        return plan_exchange(quotient(move, dims, devices)).collectives
    return 0 if move.kind is None else 1


def _words(move: Move) -> str:
    match move:
        case SliceMove(dim, digits, _):
            return f"slice dimension {dim} by {_over(digits)}"
        case AllGatherMove(dim, digits, _):
            return f"all-gather dimension {dim} over {_over(digits)}"
        case AllToAllMove(shifts, _, _):
            return "all-to-all " + ", ".join(
                f"dimension {s.source} to {s.target} over {_over(s.digits)}" for s in shifts
            )
        case AllReduceMove(digits):
            return f"all-reduce over {_over(digits)}"
        case ReduceScatterMove(dim, digits, _):
            return f"reduce-scatter dimension {dim} over {_over(digits)}"
        case Mask(digits, _, owner):
            keeps = f"device {owner}" if owner is not None else f"one device along {_over(digits)}"
            return f"only {keeps} keeps the value"
        case Spread(dim, digits, _):
            return f"dimension {dim} becomes a partial sum over {_over(digits)}"
        case Permute():
            return "collective-permute of whole tiles"
        case Exchange():
            return "collective-permutes of missing pieces"


def _over(digits: Digits) -> str:
    """Digits as `size@stride` of the device number."""
    return " ".join(map(str, digits))
