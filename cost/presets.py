"""Machines by name, and as text: the rates of devices that people have, and the links between them.

    h100                                             a preset
    h100;memory=2.4TB                                a preset with another rate of memory
    work=bf16:400T,f32:60T;memory=2TB                the default machine with other rates

`work` lists multiply-adds per second by float type (K, M, G, T, P are powers of 1000), `memory` bytes per second. Links
are given apart (`cost.links`).

The figures are peaks as vendors state them, of dense products; a multiply-add is two of their operations. A torus has
two links per axis and direction, and collectives use both. Latencies and the bandwidth of H100 nodes are fits to tables
of XLA and NCCL, those of the CPU cluster were measured with Open MPI.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..ir.diagnostics import fail
from ..ir.sharding.mesh import Mesh
from ..ir.types.element_type import ELEMENT_TYPES
from .links import Link, Links, parse_links
from .machine import DEFAULT, Cluster, Machine


def _torus(memory: float, bf16: float, link: float) -> Cluster:
    # XLA multiplies f32 in one pass of bf16 unless asked otherwise.
    return Cluster(Links(((1, Link(1e-6, 2 * link)),)), memory, bf16 / 2, ((8, bf16), (32, bf16 / 2)))


PRESETS: dict[str, Cluster] = {
    "tpu-v5e": _torus(819e9, 197e12, 45e9),
    "tpu-v5p": _torus(2765e9, 459e12, 90e9),
    "tpu-v6e": _torus(1638e9, 918e12, 90e9),
    # NVLink within nodes of eight, a network card per GPU across nodes.
    "a100": Cluster(Links(((1, Link(25e-6, 230e9)), (8, Link(150e-6, 25e9)))), 2039e9, 9.7e12,
                    ((16, 156e12), (32, 78e12), (64, 9.7e12))),
    "h100": Cluster(Links(((1, Link(25e-6, 368e9)), (8, Link(150e-6, 50e9)))), 3350e9, 33e12,
                    ((8, 989e12), (16, 494e12), (32, 247e12), (64, 33e12))),
    # A rank per core: AVX-512 products, MPI over shared memory or a network.
    "cpu-cluster": Cluster(Links(((1, Link(3e-5, 1e9)),)), 1e10, 2.5e10, ((32, 5e10), (64, 2.5e10))),
}  # fmt: skip


def machine_name(machine: Machine) -> str:
    """Returns the name of a preset, `the default machine`, or `the given machine`."""
    if machine == DEFAULT:
        return "the default machine"
    return next((name for name, preset in PRESETS.items() if preset == machine), "the given machine")


_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)B?$")
_POWERS = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_HELP = f"write one of {', '.join(PRESETS)}, or rates such as 'work=bf16:400T,f32:60T;memory=2TB', or both"


def parse_machine(text: str = "", links: str = "", mesh: Mesh | None = None) -> Machine:
    """Parses a machine in the text form above, and its links (see `cost.links`). Empty texts give the default. Raises
    CompileError.
    """
    first, *rest = [part.strip() for part in text.split(";")]
    machine = PRESETS.get(first) if first else DEFAULT
    if machine is None:
        machine, rest = DEFAULT, [first, *rest]
    for part in rest:
        name, _, value = part.partition("=")
        if name == "memory":
            machine = replace(machine, memory_bytes=_rate(value, part))
        elif name == "work":
            machine = _with_work(machine, value, part)
        else:
            fail(f"'{part}' is neither a machine nor a rate", help=_HELP)
    return replace(machine, links=parse_links(links, mesh)) if links else machine


def _with_work(machine: Cluster, value: str, part: str) -> Cluster:
    rates = dict(machine.by_bits)
    for entry in value.split(","):
        name, _, rate = entry.partition(":")
        element = ELEMENT_TYPES.get(name)
        if element is None or not element.is_float:
            fail(f"'{entry}' in '{part}' is not a float type and a rate", help=_HELP)
        rates[element.bits] = _rate(rate, part)
    return replace(machine, points=rates[max(rates)], by_bits=tuple(sorted(rates.items())))


def _rate(text: str, part: str) -> float:
    match = _NUMBER.match(text)
    if match is None or not float(match[1]):
        fail(f"'{part}' has no rate above zero", help=_HELP)
    return float(match[1]) * 10 ** _POWERS[match[2]]
