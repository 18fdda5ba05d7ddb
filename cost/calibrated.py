"""Makes a machine file from measurements, and fits `latency + bytes / bandwidth` to measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .fits import Fit
from .formulas import Kind, received
from .links import Link, Links
from .machine import Cluster
from .machine_file import MachineFile
from .native_speed import NATIVE, UNKNOWN, NativeSpeed
from .sizes import timed

_FASTEST = 1e15  # bytes per second: times that do not grow
_STEEPEST = 40.0  # logarithm of the ratio of both parts, where one of them is all
_TRIED, _CLOSE = 81, 1e-12  # lines in each round, and how close the last ones are

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class LatencyLine:
    """`latency` in seconds and `bandwidth` in bytes per second. `error` is the largest relative error of a point, 1 for
    twice the time and for half of it.
    """

    latency: float
    bandwidth: float
    error: float

    def seconds(self, count: float) -> float:
        """Returns the time of this number of bytes."""
        return self.latency + count / self.bandwidth


def fit_line(counts: Sequence[float], seconds: Sequence[float]) -> LatencyLine:
    """Fits the line with the least sum of squared logarithms of predicted to measured times, without negative
    coefficients. A prediction too fast by a factor is as wrong as one too slow by it. Squared relative errors would
    rate all predictions that are much too fast the same, and caches make small arrays far faster than large ones.

    `counts` are bytes, at least two different numbers of them; counts and `seconds` are above zero. Raises ValueError
    for others.
    """
    if len(set(counts)) < 2 or min(*counts, *seconds) <= 0:
        raise ValueError("times above zero of at least two sizes above zero are needed")
    x, t = np.asarray(counts, np.float64), np.asarray(seconds, np.float64)
    middle = np.exp(np.log(x).mean())
    share = _shares(np.array([_best_ratio(x / middle, t)]))
    off = _off(share, x / middle, t)[0]
    scale, part = float(np.exp(off.mean())), float(share[0])
    error = float(np.exp(np.abs(off - off.mean()).max()) - 1)
    return LatencyLine(scale * (1 - part), 1 / max(scale * part / float(middle), 1 / _FASTEST), error)


def _best_ratio(x: Numbers, t: Numbers) -> float:
    """Returns the logarithm of slope / intercept of the line with the least variance of logarithmic errors."""
    low, high = -_STEEPEST, _STEEPEST
    while high - low > _CLOSE:
        ratios = np.linspace(low, high, _TRIED)
        best = int(np.argmin(_off(_shares(ratios), x, t).var(axis=1)))
        low, high = float(ratios[max(best - 1, 0)]), float(ratios[min(best + 1, _TRIED - 1)])
    return (low + high) / 2


def _shares(ratios: Numbers) -> Numbers:
    """Returns slope / (slope + intercept) for logarithms of slope / intercept; exactly 1 at the steepest."""
    return 1 / (1 + np.exp(-ratios))


def _off(shares: Numbers, x: Numbers, t: Numbers) -> Numbers:
    """Returns the logarithms of time to prediction, a row per line. A line takes one second at x = 1, of which a share
    grows with `x`.
    """
    return np.log(t) - np.log((1 - shares)[:, None] + shares[:, None] * x)


_TYPICAL = 1e6  # bytes by which collectives are compared


@dataclass(frozen=True, slots=True)
class Sample:
    """Measured seconds of collectives of one kind in groups of this many devices, without those of each `array` that is
    combined after the first. The keys are the bytes of the larger of operand and result on a device.
    """

    kind: Kind
    devices: int
    seconds: Mapping[int, float]
    array: float = 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, and how it was measured."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Between:
    """The seconds that a collective and the ops around it take more where ranks compute between collectives, those of
    each further `array` that it combines, and those where caches hold nothing of its code (`cold`).
    """

    collective: float = 0.0
    array: float = 0.0
    cold: float = 0.0

    @property
    def source(self) -> str:
        """How sources of collectives tell it; nothing where it was not measured."""
        if not self.collective and not self.array and not self.cold:
            return ""
        cold = f", {timed(self.cold)} where caches hold nothing of its code" if self.cold else ""
        return f"; between other ops {timed(self.collective)} more, {timed(self.array)} for each array{cold}"


_NOT_MEASURED = Between()


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a machine: seconds to launch an op, bytes of memory per second, multiply-adds per second by bits,
    the speed of computation while a collective runs, times of collectives of `devices` devices at most, whether
    programs were fused, the speed of native code with how it was measured, and what collectives take more `between`
    ops.
    """

    launch: Figure
    memory: Figure
    rates: Mapping[int, Figure]
    overlap: Figure | None = None
    devices: int = 1
    samples: tuple[Sample, ...] = ()
    source: str = ""
    fused: bool = True
    native: NativeSpeed = UNKNOWN
    native_source: str = ""
    between: Between = _NOT_MEASURED


def machine_of(found: Measured, name: str) -> MachineFile:
    """Returns the machine file of a measured machine. Collectives that were not measured cost as much as the slowest.
    """
    sources = {"compute.launch": found.launch.source, "memory.bandwidth": found.memory.source}
    sources |= {f"work.{'bf16' if bits == 16 else f'f{bits}'}": rate.source for bits, rate in found.rates.items()}
    by_bits = tuple(sorted((bits, rate.value) for bits, rate in found.rates.items()))
    share, links, fits = 1.0, Links(), list[Fit]()
    if found.overlap is not None:
        share, sources["compute.overlap"] = found.overlap.value, found.overlap.source
    between = found.between
    for n, sample in enumerate(found.samples):
        sizes = [received(sample.kind, size, sample.devices) for size in sample.seconds]
        line = fit_line(sizes, list(sample.seconds.values()))
        latency, array = line.latency + between.collective, sample.array + between.array
        fits.append(Fit(sample.kind, (sample.devices,), latency, line.bandwidth, array, between.cold))
        sources[f"collectives.{n}"] = (
            f"{found.source}: fit to {len(sizes)} sizes, {min(sample.seconds)} to {max(sample.seconds)} bytes, "
            f"errors up to {line.error:.0%}{between.source}"
        )
    sources["links.0"] = "not measured: the default machine's"
    largest = [f for f in fits if f.devices == (found.devices,)]
    if largest:
        slowest = max(largest, key=lambda f: f.latency + _TYPICAL / f.bandwidth)
        links = Links(((1, Link(slowest.latency, slowest.bandwidth)),))
        sources["links.0"] = f"the {slowest.kind} of {found.devices} devices, the slowest at a megabyte"
    machine = Cluster(
        links, found.memory.value, by_bits[-1][1], by_bits, found.launch.value, share, fits=tuple(fits),
        fused=found.fused, native_speed=found.native,
    )  # fmt: skip
    if machine.native.is_known:
        sources |= {f"native.{name}": found.native_source for name in (*NATIVE, "second_cache")}
    return MachineFile(name, machine, sources)
