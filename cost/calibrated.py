"""Makes a machine file from measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .fits import Fit
from .fitting import fit_line
from .formulas import Kind, received
from .links import Link, Links
from .machine import Cluster
from .machine_file import MachineFile

_TYPICAL = 1e6  # bytes by which collectives are compared


@dataclass(frozen=True, slots=True)
class Sample:
    """Measured seconds of collectives of one kind in groups of this many devices. The keys are the bytes of the larger
    of operand and result on a device.
    """

    kind: Kind
    devices: int
    seconds: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, and how it was measured."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a machine: seconds to launch an op, bytes of memory per second, multiply-adds per second by bits,
    the speed of computation while a collective runs, times of collectives of `devices` devices at most, and whether
    programs were fused.
    """

    launch: Figure
    memory: Figure
    rates: Mapping[int, Figure]
    overlap: Figure | None = None
    devices: int = 1
    samples: tuple[Sample, ...] = ()
    source: str = ""
    fused: bool = True


def machine_of(found: Measured, name: str) -> MachineFile:
    """Returns the machine file of a measured machine. Collectives that were not measured cost as much as the slowest.
    """
    sources = {"compute.launch": found.launch.source, "memory.bandwidth": found.memory.source}
    sources |= {f"work.{'bf16' if bits == 16 else f'f{bits}'}": rate.source for bits, rate in found.rates.items()}
    by_bits = tuple(sorted((bits, rate.value) for bits, rate in found.rates.items()))
    share, links, fits = 1.0, Links(), list[Fit]()
    if found.overlap is not None:
        share, sources["compute.overlap"] = found.overlap.value, found.overlap.source
    for n, sample in enumerate(found.samples):
        sizes = [received(sample.kind, size, sample.devices) for size in sample.seconds]
        line = fit_line(sizes, list(sample.seconds.values()))
        fits.append(Fit(sample.kind, (sample.devices,), line.latency, line.bandwidth))
        sources[f"collectives.{n}"] = (
            f"{found.source}: fit to {len(sizes)} sizes, {min(sample.seconds)} to {max(sample.seconds)} bytes, "
            f"errors up to {line.error:.0%}"
        )
    sources["links.0"] = "not measured: the default machine's"
    largest = [f for f in fits if f.devices == (found.devices,)]
    if largest:
        slowest = max(largest, key=lambda f: f.latency + _TYPICAL / f.bandwidth)
        links = Links(((1, Link(slowest.latency, slowest.bandwidth)),))
        sources["links.0"] = f"the {slowest.kind} of {found.devices} devices, the slowest at a megabyte"
    machine = Cluster(
        links, found.memory.value, by_bits[-1][1], by_bits, found.launch.value, share, fits=tuple(fits),
        fused=found.fused,
    )  # fmt: skip
    return MachineFile(name, machine, sources)
