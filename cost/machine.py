"""The machine model: times of communication, memory traffic and computation.

Passes take all times from a `Machine`. An embedder passes its own in the `PassContext`. `Cluster` is the default: equal
devices and the links between them.

Times are picoseconds; `SECOND` converts. At the default rates, those of current accelerators to an order of magnitude,
a byte over a link takes 10 and a byte of memory 1. Costs are then sums of integers, and equal costs compare equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

from ..ir.graph.attributes import Pairs
from ..ir.kept_hash import KeptHash, keep_hash
from ..ir.sharding.digit import Digits, product
from ..ir.types.element_type import ElementType
from .algorithms import in_steps
from .fits import Fit
from .formulas import Kind
from .links import DEFAULT as ONE_LINK
from .links import Links
from .native_speed import UNKNOWN, NativeSpeed
from .over_links import over_links, over_slowest
from .permutes import PermuteCrossing, crossing
from .products import AT_RATE, ProductSizes, ProductSpeed
from .torus import axes_of
from .transfer import SECOND as SECOND
from .transfer import Transfer as Transfer

_SUM = 4  # bytes of a sum of products before it has its type
_FORTH, _BACK = "axis {} forth", "axis {} back"  # engines of a torus that has one for each direction


@runtime_checkable
class Machine(Protocol):
    """A machine model with times in picoseconds. Must be immutable and hashable: plans are cached by machine.

        @dataclass(frozen=True)
        class Slow(hloom.Machine):
            def collective(self, kind, digits, order=None):
                return Transfer(latency=5e6, per_byte=40.0)    # 5 us, 25 GB/s

            def memory(self, count):
                return count / 2                               # 2 TB/s

            def work(self, points, element):
                return points / (400 if element.bits <= 16 else 50)    # multiply-adds per picosecond

            fastest = Transfer(latency=5e6, per_byte=40.0)
    """

    def collective(self, kind: Kind, digits: Digits | None, order: tuple[int, ...] | None = None) -> Transfer:
        """Returns the cost of a collective in groups of the devices that differ in `digits`.

        Digits count places in `order` if that is given. Without digits, data moves between arbitrary devices.
        """
        ...

    def memory(self, count: float) -> float:
        """Returns the time to read or write this number of bytes of a device's memory."""
        ...

    def work(self, points: float, element: ElementType) -> float:
        """Returns the time to compute this number of points of an op's index space, such as multiply-adds of a
        contraction, on elements of this type on one device.
        """
        ...

    @property
    def fastest(self) -> Transfer:
        """A lower bound for the cost of every collective."""
        ...

    def permute(self, pairs: Pairs, digits: Digits | None) -> Transfer:
        """Returns the cost of a permute between these pairs of devices, which differ in `digits`."""
        return self.collective("collective-permute", digits)

    def product(self, sizes: ProductSizes, element: ElementType) -> float:
        """Returns the time of matrix products, which may depend on their sizes: by default that of their work."""
        return self.work(sizes.multiply_adds, element)

    def with_cold_collectives(self, share: float) -> Machine:
        """Returns a machine whose collectives have this share of the time that they take more where caches hold nothing
        of their code.
        """
        return self

    @property
    def native(self) -> NativeSpeed:
        """The speed of native code, where such runs the programs; unknown by default."""
        return UNKNOWN

    @property
    def attention(self) -> float:
        """The share of the rate of `work` that a kernel for attention reaches; 0 where attention is no kernel."""
        return 0.0

    def attention_work(self, sizes: ProductSizes, element: ElementType) -> float:
        """Returns the time of products in a kernel for attention: by default that of its share of the rate."""
        return self.work(sizes.multiply_adds, element) / self.attention

    @property
    def epilogues(self) -> bool:
        """Whether a product and the ops on elements after it are one kernel (`cost.epilogues`)."""
        return False

    @property
    def prologues(self) -> bool:
        """Whether a product computes operands from narrower values as it reads these (`cost.epilogues`)."""
        return False

    @property
    def compiles_by_xla(self) -> bool:
        """Whether forecasts state the memory that XLA for CPUs allocates, not that of the kernels that they time."""
        return False

    def of_devices(self, count: int) -> Machine:
        """Returns the machine for a program on this many devices, whose links may depend on it."""
        return self

    def slower(self, by: float) -> Machine:
        """Returns a machine whose collectives take longer by this factor; this one if it cannot be slower."""
        return self

    @property
    def torus(self) -> tuple[int, ...]:
        """The devices along each axis of a torus of known shape; empty if there is none."""
        return ()

    @property
    def levels(self) -> tuple[int, ...]:
        """The strides of the device number at which the cost of collectives changes; empty if it does not."""
        return ()

    @property
    def launch(self) -> float:
        """The fixed time of an op, in addition to its memory traffic and work: 0 unless the machine says otherwise."""
        return 0.0

    def engine(self, kind: Kind, digits: Digits | None) -> str:
        """Returns the name of the engine that runs a collective. An engine runs one at a time, in the order of the
        starts. By default one engine runs all.
        """
        return "communication"

    def engines_of(self, kind: Kind, digits: Digits | None) -> tuple[str, ...]:
        """Returns all engines that a collective occupies at the same time, as that of several axes of a torus does."""
        return (self.engine(kind, digits),)

    def engines_of_permute(self, pairs: Pairs, digits: Digits | None) -> tuple[str, ...]:
        """Returns all engines that a permute between these pairs of devices occupies."""
        return self.engines_of("collective-permute", digits)

    @property
    def overlap(self) -> float:
        """The speed of computation while a collective runs: 1 where both run fully at the same time, 0 where
        computation stands still.
        """
        return 1.0

    @property
    def capacity(self) -> float:
        """The bytes of a device's memory that a program may fill; without a limit by default."""
        return math.inf

    @property
    def host(self) -> float:
        """The time of a byte between the memories of a device and of its host, each way; infinite if programs cannot
        move values there.
        """
        return math.inf

    @property
    def error(self) -> float | None:
        """The largest relative error that forecasts of published or measured steps showed; None if none is known."""
        return None

    @property
    def fuses(self) -> bool:
        """Whether programs are fused before they run, so that values inside of fusions cost no memory traffic."""
        return True


@keep_hash
@dataclass(frozen=True, slots=True)
class Cluster(KeptHash, Machine):
    """Equal devices, the links between them, and the rates of a device per second: `memory_bytes` read or written, and
    `points` of index spaces (multiply-adds of a contraction).

    `by_bits` are rates of points by the width of floats, narrowest first: a float has the rate of the first width that
    holds it. So do integers by `by_integer_bits`. Other elements, and wider ones, have the rate `points`. An op takes
    `launch_seconds` in addition. `overlap_share` is the speed of computation while a collective runs, from 0 to 1. A
    program may fill `memory_size` bytes less the share `reserve`, and move `host_bytes` each way between a device and
    its host, 0 if none. `engines` are pairs of a kind, or of the first stride of a level of links, and the name of the
    engine that runs such collectives; a kind goes before a stride. A collective that was measured (`fits`) costs what
    was measured. Others cost what the best algorithm takes (`cost.algorithms`) if the links have steps, what
    `cost.rails` says if they are rails, else latency and bandwidth of the slowest link. Programs are `fused` before
    they run, or run op by op. `products` says what share of the rate matrix products reach, `attention_share` is that
    of a kernel for attention, 0 without one. By `has_epilogues` ops on elements join the kernel of a product, by
    `has_prologues` those of narrower operands. By `has_xla_memory` forecasts state the memory that XLA for CPUs
    allocates. `native_speed` is that of native code where such runs the programs. By `torus_engines` each axis of a
    torus of known shape is an engine of its own, by `both_ways` each of its directions. `known_error` is the largest
    error of forecasts that were compared with steps, 0 if none were.
    """

    links: Links = ONE_LINK
    memory_bytes: float = 1e12
    points: float = 1e14
    by_bits: tuple[tuple[int, float], ...] = ()
    launch_seconds: float = 0.0
    overlap_share: float = 1.0
    memory_size: float = math.inf
    reserve: float = 0.0
    engines: tuple[tuple[Kind | int, str], ...] = ()
    fits: tuple[Fit, ...] = ()
    fused: bool = True
    products: ProductSpeed = AT_RATE
    attention_share: float = 0.0
    has_epilogues: bool = False
    has_prologues: bool = False
    has_xla_memory: bool = False
    known_error: float = 0.0
    torus_engines: bool = False
    both_ways: bool = False
    native_speed: NativeSpeed = UNKNOWN
    host_bytes: float = 0.0
    by_integer_bits: tuple[tuple[int, float], ...] = ()

    def collective(self, kind: Kind, digits: Digits | None, order: tuple[int, ...] | None = None) -> Transfer:
        """Returns the cost over the links used; over the slowest of all without digits or with an `order`."""
        if digits is None or order is not None:
            return _anywhere(self, kind, 2 if digits is None else product(digits))
        return _transfer(self, kind, digits)

    def permute(self, pairs: Pairs, digits: Digits | None) -> Transfer:
        """Returns the cost over the fullest link of a torus of known shape, else that over the digits."""
        way = self._crossing(pairs)
        if way is None:
            return self.collective("collective-permute", digits)
        return in_steps(self.links.levels[-1][1], way.steps, way.share)

    def memory(self, count: float) -> float:
        return count * (SECOND / self.memory_bytes)

    def work(self, points: float, element: ElementType) -> float:
        rates = self.by_bits if element.is_float else self.by_integer_bits if element.is_integer else ()
        return points * (SECOND / next((rate for bits, rate in rates if element.bits <= bits), self.points))

    def product(self, sizes: ProductSizes, element: ElementType) -> float:
        return _product(self, sizes, element)

    @property
    def attention(self) -> float:
        return self.attention_share

    def attention_work(self, sizes: ProductSizes, element: ElementType) -> float:
        head = min(sizes.rows, sizes.columns, sizes.depth)  # the numbers of a head: sequences are longer
        return self.work(sizes.multiply_adds, element) / (self.attention * self.products.filled_depth(head))

    @property
    def epilogues(self) -> bool:
        return self.has_epilogues

    @property
    def prologues(self) -> bool:
        return self.has_prologues

    @property
    def compiles_by_xla(self) -> bool:
        return self.has_xla_memory

    @property
    def native(self) -> NativeSpeed:
        return self.native_speed

    def of_devices(self, count: int) -> Cluster:
        """Returns this cluster with the shape of a torus of this many devices, if it has no shape."""
        return _of_devices(self, count)

    def slower(self, by: float) -> Cluster:
        return replace(self, links=self.links.times(by), fits=tuple(f.slower(by) for f in self.fits))

    def with_cold_collectives(self, share: float) -> Cluster:
        return replace(self, fits=tuple(replace(f, latency=f.latency + share * f.cold, cold=0.0) for f in self.fits))

    @property
    def fastest(self) -> Transfer:
        return _fastest(self)

    @property
    def torus(self) -> tuple[int, ...]:
        return self.links.levels[-1][1].shape

    @property
    def levels(self) -> tuple[int, ...]:
        places = self.links.levels[-1][1].places
        return tuple(sorted({d.stride for along in places for d in along} - {1})) if places else self.links.borders

    @property
    def launch(self) -> float:
        return self.launch_seconds * SECOND

    def engine(self, kind: Kind, digits: Digits | None) -> str:
        return self.engines_of(kind, digits)[-1]

    def engines_of(self, kind: Kind, digits: Digits | None) -> tuple[str, ...]:
        """Returns the engines of the axes of a torus, or of the levels of links, on which devices differ."""
        if self.torus_engines and self.torus:
            axes = range(len(self.torus)) if digits is None else axes_of(self.links.levels[-1][1], digits)
            names = (_FORTH, _BACK) if self.both_ways else ("axis {}",)
            return tuple(name.format(axis) for axis in axes or (0,) for name in names)
        named = dict(self.engines)
        if kind in named:
            return (named[kind],)
        starts = [1, *sorted(n for n in named if isinstance(n, int))]
        found = [
            named.get(low, "communication") for low, high in zip(starts, [*starts[1:], math.inf], strict=True)
            if digits is None or any(d.stride < high and d.stride * d.size > low for d in digits)
        ]  # fmt: skip
        return tuple(dict.fromkeys(found)) or ("communication",)

    def engines_of_permute(self, pairs: Pairs, digits: Digits | None) -> tuple[str, ...]:
        """Returns the directions of axes of a torus along which devices send, or the engines of the digits."""
        way = self._crossing(pairs) if self.torus_engines and self.both_ways else None
        if way is None or not way.ways:
            return self.engines_of("collective-permute", digits)
        return tuple(_FORTH.format(axis) if is_forth else _BACK.format(axis) for axis, is_forth in way.ways)

    def _crossing(self, pairs: Pairs) -> PermuteCrossing | None:
        """Returns the way of a permute in a torus of known shape whose permutes were not measured."""
        if len(self.links.levels) > 1 or any(fit.kind == "collective-permute" for fit in self.fits):
            return None
        return crossing(self.links.slowest, pairs)

    @property
    def overlap(self) -> float:
        return self.overlap_share

    @property
    def host(self) -> float:
        return SECOND / self.host_bytes if self.host_bytes else math.inf

    @property
    def error(self) -> float | None:
        return self.known_error or None

    @property
    def capacity(self) -> float:
        return self.memory_size * (1 - self.reserve)

    @property
    def fuses(self) -> bool:
        return self.fused


@lru_cache(maxsize=65536)
def _product(cluster: Cluster, sizes: ProductSizes, element: ElementType) -> float:
    """Returns the time of products in the best way. Parts of the depth write their sums, which a kernel adds."""
    work = cluster.work(sizes.multiply_adds, element)
    sums = cluster.memory(2 * _SUM * sizes.batch * sizes.rows * sizes.columns)
    return min(
        work / efficiency + (parts * sums + cluster.launch if parts > 1 else 0.0)
        for efficiency, parts in cluster.products.divisions(sizes)
    )


@lru_cache(maxsize=1024)
def _of_devices(cluster: Cluster, count: int) -> Cluster:
    links = cluster.links.of_devices(count)
    return cluster if links is cluster.links else replace(cluster, links=links)


@lru_cache(maxsize=1024)
def _fastest(cluster: Cluster) -> Transfer:
    fastest = Transfer.over(cluster.links.fastest)
    latencies = [fastest.latency, *(f.latency * SECOND for f in cluster.fits)]
    return Transfer(min(latencies), min([fastest.per_byte, *(SECOND / f.bandwidth for f in cluster.fits)]))


@lru_cache(maxsize=65536)
def _transfer(cluster: Cluster, kind: Kind, digits: Digits) -> Transfer:
    return over_links(cluster.links, cluster.fits, kind, digits)


@lru_cache(maxsize=4096)
def _anywhere(cluster: Cluster, kind: Kind, devices: int) -> Transfer:
    return over_slowest(cluster.links, cluster.fits, kind, devices)


DEFAULT = Cluster()
