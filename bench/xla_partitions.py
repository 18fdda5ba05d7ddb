"""Measures one annotated program as partitioned by Hloom and by XLA: used by comm_vs_xla.py.

Both results go through XLA's compiler for CPU: XLA's own from the annotated text, Hloom's in manual form. Hloom reads
the programs per device that it prints, and one function costs them: bytes that a device sends, collectives that run,
multiply-adds, and the forecast of time on machines. XLA itself says how much temporary memory each needs.

XLA gets the benefit of the doubt: the faster of its own propagation and, for models, Hloom's (shardings on the values).
Bytes are the fewer of its module right after the partitioner and of the one it compiled. An all-reduce of which every
user keeps one tile per device counts as the reduce-scatter into which XLA turns it on other back ends than CPU. Those
also combine collectives of every kind, for both partitioners, while CPU combines all-reduces alone: a collective of
several arrays counts as one for each.
"""

# jaxlib's internal modules have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hloom
from hloom.cost.forecast import forecast
from hloom.cost.formulas import received
from hloom.cost.machine import Machine
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module

PASS = "spmd-partitioning"
DEVICES = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """The bytes that one device sends, and the number of collectives by kind; both count the trips of loops."""

    bytes: int
    kinds: dict[str, int]

    @property
    def count(self) -> int:
        return sum(self.kinds.values())

    @property
    def rank(self) -> tuple[int, int]:
        return self.bytes, self.count


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of one partitioned program: seconds on one machine, multiply-adds and temporary bytes of a device."""

    seconds: float
    multiply_adds: int
    temporary: int
    counted: Counted


@dataclass(frozen=True)
class Compiled:
    """A program that XLA compiled for all devices."""

    module: Module
    counted: Counted
    temporary: int

    @cached_property
    def multiply_adds(self) -> int:
        return sum(c.work for c in hloom.contractions(self.module))

    def on(self, machine: Machine) -> Cost:
        seconds = forecast(self.module, machine, reduce_scatters(self.module), combined=False).seconds
        return Cost(seconds, self.multiply_adds, self.temporary, self.counted)


def of_hloom(program: Module, machines: Mapping[str, Machine]) -> dict[str, Cost]:
    """Partitions a program for each machine. Equal results are compiled once."""
    known: dict[str, Compiled] = {}
    found: dict[str, Cost] = {}
    for name, machine in machines.items():
        local = hloom.partition(program, machine=machine)
        text = hloom.export(local).to_text()
        if text not in known:
            loaded = _compile(text)
            known[text] = Compiled(_read(loaded, program.name), count(local), _temporary(loaded))
        found[name] = known[text].on(machine)
    return found


def of_xla(variants: Sequence[Module], machines: Mapping[str, Machine], dumps: Path) -> dict[str, Cost]:
    """Returns the faster of XLA's partitionings of these variants of a program, for each machine.

    Raises what XLA raises if it can partition none.
    """
    found: list[Compiled] = []
    failures: list[RuntimeError] = []
    for variant in variants:
        try:
            found.append(_partitioned_by_xla(variant, dumps))
        except RuntimeError as error:  # jaxlib's errors are RuntimeErrors
            failures.append(error)
    if not found:
        raise failures[0]
    costs = {name: [compiled.on(machine) for compiled in found] for name, machine in machines.items()}
    return {name: min(of, key=lambda c: (c.seconds, c.counted.rank)) for name, of in costs.items()}


def _partitioned_by_xla(program: Module, dumps: Path) -> Compiled:
    for old in dumps.glob("*.txt"):
        old.unlink()
    loaded = _compile(program.to_text())
    compiled = _read(loaded, program.name)
    (partitioned,) = dumps.glob(f"*after_{PASS}.*.txt")  # without the values of large constants
    modules = (compiled, hloom.parse(partitioned.read_text(), f"{program.name} by XLA", verify=False))
    return Compiled(compiled, min((count(m, reduce_scatters(m)) for m in modules), key=lambda c: c.rank),
                    _temporary(loaded))  # fmt: skip


def _compile(text: str) -> Any:
    from support.xla_runner import compile_text

    return compile_text(text, partitions=DEVICES).loaded


def _read(loaded: Any, name: str) -> Module:
    return hloom.parse(loaded.hlo_modules()[0].to_string(), f"{name} compiled", verify=False)


def _temporary(loaded: Any) -> int:
    return loaded.get_compiled_memory_stats().temp_size_in_bytes


def count(module: Module, scattered: Mapping[str, int] | None = None) -> Counted:
    """Counts what the collectives of a per-device module send; those in `scattered` count with the bytes given there.
    """
    kinds: Counter[str] = Counter()
    sent = 0
    scattered = scattered or {}
    for found in hloom.collectives(module):
        kind = "reduce-scatter" if found.name in scattered else found.kind
        kinds[kind] += found.count * found.arrays
        sent += scattered.get(found.name, found.wire_bytes) * found.count
    return Counted(sent, dict(kinds))


def reduce_scatters(module: Module) -> dict[str, int]:
    """Returns the all-reduces of which each device keeps one tile, and their bytes as reduce-scatters."""
    sizes = {c.name: c for c in hloom.collectives(module) if c.kind == "all-reduce"}
    found: dict[str, int] = {}
    for computation in module:
        for instruction in computation:
            if instruction.name in sizes and _is_scattered(instruction, sizes[instruction.name].group_size):
                whole = sizes[instruction.name]
                found[instruction.name] = int(received("reduce-scatter", whole.buffer_bytes, whole.group_size))
    return found


def _is_scattered(instruction: Instruction, parts: int) -> bool:
    users = list(_users(instruction))
    kept = instruction.shape.num_elements // parts if instruction.shape.is_array else 0
    return bool(users) and all(u.opcode == "dynamic-slice" and u.shape.num_elements <= kept for u in users)


def _users(instruction: Instruction) -> Iterator[Instruction]:
    """Returns the users, looking through ops that only rearrange elements."""
    for user in instruction.users:
        if user.opcode in ("reshape", "bitcast", "copy", "transpose", "pad"):
            yield from _users(user)
        else:
            yield user
