"""Machines by name, and as text: the rates of common devices, and the links between them.

    h100                                             a preset
    h100;memory=2.4TB                                a preset with another rate of memory
    a100;attention=0                                 .. without a kernel for attention: its scores lie in memory
    work=bf16:400T,f32:60T;memory=2TB                the default machine with other rates

`work` lists multiply-adds per second by float type (K, M, G, T, P are powers of 1000), `memory` bytes per second.
`launch` is the time that a kernel takes in addition (`launch=2us`), `attention` the share of `work` that a kernel for
attention reaches. Links are given apart (`cost.links`).

    FILE.toml                                        a machine file (see `cost.machine_file`), rates likewise
    tpu-v4:8x16x16                                   the axes of a torus
    h100:16x8                                        nodes, and devices in each

The presets are machine files in `cost/machines`. Their figures are peaks as vendors state them, of dense products; a
multiply-add is two of their operations. Each number has its source there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import origin
from ..ir.checked_call import checked, wrong_type
from ..ir.diagnostics import fail
from ..ir.sharding.mesh import LARGEST_MESH, Mesh
from ..ir.types.element_type import ELEMENT_TYPES
from .links import Links, parse_links
from .machine import DEFAULT, Cluster, Machine, Transfer
from .machine_file import PRESET_FILES, MachineFile, load_machine
from .quantity import Quantity

SUFFIX = ".toml"  # of machine files


class _Presets(Mapping[str, Cluster]):
    """The machines of the files in `cost/machines`, by name; a file is read when it is first asked for."""

    def __init__(self) -> None:
        self._read: dict[str, Cluster] = {}

    def __getitem__(self, name: str) -> Cluster:
        if name not in self._read:
            self._read[name] = self.file(name).machine
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PRESET_FILES)

    def __len__(self) -> int:
        return len(PRESET_FILES)

    def __contains__(self, name: object) -> bool:
        return name in PRESET_FILES

    def file(self, name: str) -> MachineFile:
        """Returns the machine file of a preset. Raises KeyError for another name."""
        return load_machine(str(PRESET_FILES[name]))

    def text(self, name: str) -> str:
        """Returns the text of the machine file of a preset. Raises KeyError for another name."""
        return PRESET_FILES[name].read_text(encoding="utf-8")


PRESETS = _Presets()
_named: dict[Machine, str] = {}  # the names of the machine files that were read, by what these hold


def machine_name(machine: Machine) -> str:
    """Returns the name of a preset or of a machine file, `the default machine`, or `the given machine`."""
    if machine == DEFAULT:
        return "the default machine"
    found = next((name for name, preset in PRESETS.items() if preset == machine), None)
    return found or _named.get(machine, "the given machine")


def machine_summary(machine: Cluster) -> tuple[str, str, str]:
    """Returns the memory, the multiply-adds of bf16, and the first links of a machine, in words."""
    size = f"{Quantity.BYTES.text(machine.memory_size)}, " if math.isfinite(machine.memory_size) else ""
    rate = next((rate for bits, rate in machine.by_bits if bits >= 16), machine.points)
    link = machine.links.levels[0][1]
    links = f"{Quantity.SECONDS.text(link.latency + link.step)}, {Quantity.BANDWIDTH.text(link.bandwidth)}"
    return size + Quantity.BANDWIDTH.text(machine.memory_bytes), Quantity.RATE.text(rate), links


_SHAPED = re.compile(r":\d+(x\d+)*$")
_NUMBER = re.compile(r"(\d{1,24}(?:\.\d{1,24})?)([KMGTP]?)B?$")
_POWERS = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_HELP = (f"write one of {', '.join(PRESETS)}, a FILE.toml, rates such as 'work=bf16:400T,f32:60T;memory=2TB', "
         "or a machine and rates")  # fmt: skip


def as_machine(machine: Machine | str) -> Machine:
    """Returns a machine, or the one that a text describes: a preset, a FILE.toml, rates. Raises CompileError, and
    TypeError for a machine of another program whose answers are no times.
    """
    if isinstance(machine, str):
        return parse_machine(machine)
    if origin.is_foreign(machine):
        _check_answers(machine)
    return machine


def _check_answers(machine: Machine) -> None:
    name = type(machine).__name__
    transfers: dict[str, Any] = {"collective": machine.collective("all-reduce", None), "fastest": machine.fastest}
    for asked, transfer in transfers.items():
        if not isinstance(transfer, Transfer):
            raise wrong_type(f"{name}.{asked}", transfer, (Transfer,), "write hloom.Transfer(latency=1e6, per_byte=10)")
        if not transfer.per_byte > 0:
            raise TypeError(f"{name}.{asked}: per_byte must be above 0, found {transfer.per_byte}")
    times: dict[str, Any] = {"memory": machine.memory(1.0), "work": machine.work(1.0, ELEMENT_TYPES["f32"])}
    for asked, seconds in times.items():
        if not isinstance(seconds, int | float | np.floating) or not seconds >= 0:
            raise wrong_type(f"{name}.{asked}", times[asked], (float,), "picoseconds, at least 0")
    try:
        hash(machine)
    except TypeError:
        raise TypeError(f"{name} must be hashable, since plans are cached by machine: a frozen dataclass is") from None


@checked
def parse_machine(text: str = "", links: str = "", mesh: Mesh | None = None) -> Machine:
    """Parses a machine in the text form above, and its links (see `cost.links`). Empty texts give the default. Raises
    CompileError.
    """
    first, *rest = [part.strip() for part in text.split(";")]
    first, _, shape = first.partition(":") if _SHAPED.search(first) else (first, "", "")
    if first.endswith(SUFFIX):
        file = load_machine(first)
        machine = file.machine
        _named.setdefault(machine, file.name)
    else:
        machine = PRESETS.get(first) if first else DEFAULT
    if machine is None:
        machine, rest = DEFAULT, [first, *rest]
    for part in rest:
        name, _, value = part.partition("=")
        if name == "memory":
            machine = replace(machine, memory_bytes=_rate(value, part))
        elif name == "work":
            machine = _with_work(machine, value, part)
        elif name == "launch":
            machine = replace(machine, launch_seconds=_seconds(value, part))
        elif name == "attention":
            machine = replace(machine, attention_share=_share(value, part))
        else:
            fail(f"'{part}' is neither a machine nor a rate", help=_HELP)
    if shape:
        machine = _shaped(machine, first, tuple(map(int, shape.split("x"))))
    return replace(machine, links=parse_links(links, mesh)) if links else machine


def _shaped(machine: Cluster, name: str, shape: tuple[int, ...]) -> Cluster:
    """Returns a machine whose torus has these axes, or whose nodes have as many devices as the last number says."""
    levels = list(machine.links.levels)
    start, link = levels[-1]
    if not all(0 < size <= LARGEST_MESH for size in shape) or math.prod(shape) > LARGEST_MESH:
        fail(f"{name} has no devices in the shape {'x'.join(map(str, shape))}", help=_HELP)
    if link.torus:
        if len(shape) != link.torus:
            fail(f"{name} is a torus of {link.torus} axes, not of {len(shape)}", help=_HELP)
        levels[-1] = start, replace(link, shape=shape)
    elif len(levels) == len(shape) == 2:
        levels[-1] = shape[1], link
    else:
        fail(f"{name} has no shape of {len(shape)} numbers: it has {len(levels)} levels of links", help=_HELP)
    return replace(machine, links=Links(tuple(levels)))


def _with_work(machine: Cluster, value: str, part: str) -> Cluster:
    rates, integers = dict(machine.by_bits), dict(machine.by_integer_bits)
    for entry in value.split(","):
        name, _, rate = entry.partition(":")
        element = ELEMENT_TYPES.get(name)
        if element is None or not (element.is_float or element.is_integer):
            fail(f"'{entry}' in '{part}' is not a type of floats or integers and a rate", help=_HELP)
        (rates if element.is_float else integers)[element.bits] = _rate(rate, part)
    return replace(machine, points=rates[max(rates)] if rates else machine.points, by_bits=tuple(sorted(rates.items())),
                   by_integer_bits=tuple(sorted(integers.items())))  # fmt: skip


def _seconds(text: str, part: str) -> float:
    found = Quantity.SECONDS.read(text)
    if found is None:
        fail(f"'{part}' has no time", help=_HELP)
    return found


def _share(text: str, part: str) -> float:
    found = Quantity.SHARE.read(text)
    if found is None:
        fail(f"'{part}' has no share between 0 and 1", help=_HELP)
    return found


def _rate(text: str, part: str) -> float:
    match = _NUMBER.match(text)
    if match is None or not float(match[1]):
        fail(f"'{part}' has no rate above zero", help=_HELP)
    return float(match[1]) * 10 ** _POWERS[match[2]]
