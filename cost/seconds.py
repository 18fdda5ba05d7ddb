"""The seconds of single instructions on a machine, which forecasts, timelines and schedulers add up.

A kernel takes `launch + max(work / rate, bytes / bandwidth)`: the multiply-adds of contractions at the rate that
products of their sizes reach (`cost.products`), and the bytes that it reads and writes of materialized values
(`ir.analysis.stored`; all values where nothing is fused). A nest of loops is one kernel, and so are all scalars of a
computation. A fusion touches memory at its ends only and does the work of
the contractions inside. Attention is one kernel where the machine has such (`cost.attention`). A collective takes the
time of the machine for its kind, its bytes and its links, a move to or from the host a launch and its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..ir.analysis.stored import Stored
from ..ir.graph.computation import Computation
from ..ir.graph.host_memory import is_host_move
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import products_of
from ..ir.graph.module import Module
from ..ir.graph.op import Role
from ..ir.ops.collectives import Pairs, pairs_of
from ..ir.sharding.digit import Digit, Digits
from ..ir.sharding.replica_groups import ReplicaGroups
from ..ir.tools.trip_count import trip_count
from .attention import KnownAttention
from .collectives import groups_of, kind_of, wire_bytes
from .epilogues import NO_EPILOGUES, Epilogues, epilogues
from .formulas import Kind
from .groups import group_digits
from .layout import laid
from .machine import SECOND, Machine, Transfer
from .memory_traffic import reads, touched, touches_nothing
from .products import sizes_of
from .work import computes, element_of, is_contraction


class Seconds(NamedTuple):
    """Seconds of one device by kind: collectives and moves to or from the host, ops that memory bounds, ops that work
    bounds, launches of ops.
    """

    collectives: float = 0.0
    memory: float = 0.0
    work: float = 0.0
    launches: float = 0.0

    @property
    def compute(self) -> float:
        return self.memory + self.work + self.launches

    @property
    def total(self) -> float:
        return self.collectives + self.compute


_NOTHING = Seconds()
TO_HOST, FROM_HOST = "to host", "from host"  # engines


class _Route(NamedTuple):
    """The cost of the collectives of one kind over the same replica groups, and the engines that each occupies."""

    transfer: Transfer
    engines: tuple[str, ...]


class Clock:
    """Times the instructions of one program as long as its `loop_edits` stay: ask for the clock again after edits.
    Equal groups are looked up once.

    `sent` overrides the bytes of single collectives, by name. Unless `combined`, a collective of several arrays takes
    the time of one collective for each. `kernels` returns the seconds of an op, or of starting a loop, where they are
    known from the code that runs it.
    """

    def __init__(
        self, machine: Machine, devices: int, sent: Mapping[str, int] | None = None, combined: bool = True,
        kernels: Callable[[Instruction], float | None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.machine, self.devices = machine.of_devices(devices), devices
        self._stored, self._joins = Stored() if machine.fuses else None, machine.epilogues or machine.prologues
        self._attention = KnownAttention(machine)
        self._epilogues: dict[Computation, Epilogues] = {}
        self._parts: dict[Instruction, Seconds] = {}
        self._alone: dict[Instruction, Seconds] = {}
        self._touched: dict[Instruction, int] = {}
        self._sent, self._combined = sent or {}, combined
        self._launch, self._kernels = machine.launch, kernels
        self._scalars: dict[Computation, Instruction] = {}
        self._routes: dict[tuple[Kind, ReplicaGroups | Pairs], _Route] = {}
        self._taken: dict[Instruction, _Route] = {}
        self._fused: dict[Computation, float] = {}
        self._serial: dict[Computation, Seconds] = {}

    @staticmethod
    def of(module: Module, machine: Machine) -> Clock:
        """Returns the clock of a program's devices. The program keeps it; what collectives may have changed that
        replaced others since is looked up again.
        """
        found = module.analyses.get(
            module, Clock, machine, lambda: Clock(laid(module, machine.of_devices(module.devices)), module.devices)
        )
        found._serial.clear()
        found._attention.forget()
        found._epilogues.clear()
        return found

    def copied(self, copies: Mapping[Instruction, Instruction]) -> Clock:
        """Returns the clock of a copy of the program, given the copy of each instruction."""
        found = Clock(self.machine, self.devices, self._sent, self._combined)
        found._parts = {copies[i]: parts for i, parts in self._parts.items() if i in copies}
        found._touched = {copies[i]: size for i, size in self._touched.items() if i in copies}
        if self._stored is not None:
            found._stored = self._stored.copied(copies)
        found._routes = self._routes
        return found

    def of_likes(self, likes: Mapping[Instruction, Instruction]) -> Clock:
        """Returns the clock of a program whose instructions take as long as those of this one that they are `likes` of.
        """
        found = Clock(self.machine, self.devices, self._sent, self._combined)
        found._parts = {i: self.parts(like) for i, like in likes.items()}
        found._touched = {i: self.touched(like) for i, like in likes.items()}
        found._routes = self._routes
        return found

    def parts(self, instruction: Instruction) -> Seconds:
        """Returns the seconds of one execution, without those of the computations that control flow calls. The ops of a
        nest of loops add up to its time: the first that reads a value has the time of reading it.
        """
        found = self._parts.get(instruction)
        if found is None:
            found = self._parts[instruction] = self._timed(instruction, self.touched(instruction))
        return found

    def alone(self, instruction: Instruction) -> Seconds:
        """Returns the seconds of an op outside of its nest of loops, where it reads all of its operands."""
        if not self._read_before(instruction):
            return self.parts(instruction)
        found = self._alone.get(instruction)
        if found is None:
            size = touched(instruction, self.is_stored)
            found = self._alone[instruction] = self._timed(instruction, size)
        return found

    def _timed(self, instruction: Instruction, size: int) -> Seconds:
        if instruction.op.is_collective:
            return Seconds(collectives=self.collective(instruction))
        if instruction.shape.is_on_host or is_host_move(instruction):
            return Seconds(collectives=self._move(instruction))
        known = self._kernels(instruction)
        if known is not None:
            return self._of_kernel(instruction, known)
        work = self._work(instruction)
        if not size and not work:
            return _NOTHING
        launch = self._launch if work else self.launched(instruction)
        memory = self.machine.memory(size)
        bound = (0.0, work) if work >= memory else (memory, 0.0)
        return Seconds(0.0, bound[0] / SECOND, bound[1] / SECOND, launch / SECOND)

    def launched(self, instruction: Instruction) -> float:
        """Returns the picoseconds to launch the kernel of an op that is no contraction. The first value that a nest of
        loops stores has those of the nest, the first scalar of a computation those of all its arithmetic on scalars.
        """
        if not self.is_stored(instruction):
            return 0.0
        if self._stored is None or instruction.parent is None:
            return self._launch
        if _is_of_scalars(instruction):
            first = self._scalars.setdefault(instruction.parent, instruction)
        else:
            nest = self.together(instruction)
            first = next((o for o in nest if self.is_stored(o) and not self.is_joined(o)), instruction)
        return self._launch if first is instruction else 0.0

    def _of_kernel(self, instruction: Instruction, seconds: float) -> Seconds:
        """Returns the known seconds of an op as the kind that they are of."""
        if instruction.op.is_control:
            return Seconds(launches=seconds)
        return Seconds(work=seconds) if is_contraction(instruction) else Seconds(memory=seconds)

    def is_stored(self, value: Instruction) -> bool:
        """Whether a value lies in memory: neither fused into its readers nor inside of a kernel."""
        found = self._around(value).stored.get(value) if self._joins else None
        return self._is_written(value) if found is None else found

    def is_joined(self, instruction: Instruction) -> bool:
        """Whether an op runs in the kernel of a product, and takes no time of its own."""
        return instruction in self._around(instruction).hosts

    def together(self, value: Instruction) -> Collection[Instruction]:
        """Returns the values of the kernel that makes a value; of its own if none are fused."""
        return (value,) if self._stored is None else self._stored.together(value)

    def reads(self, instruction: Instruction) -> dict[int, int]:
        """Returns the numbers of the operands that an op reads in memory, with the bytes of each that its nest of loops
        has not read already.
        """
        return reads(instruction, self.is_stored, self._read_before(instruction))

    def _read_before(self, instruction: Instruction) -> Mapping[Instruction, int]:
        return {} if self._stored is None else self._stored.read_before(instruction)

    def _is_written(self, value: Instruction) -> bool:
        """Whether a value lies in memory if products write their own results."""
        if self._stored is not None and not self._stored(value):
            return False
        return not self._attention.has_kernels or value not in self._attention.of(value.parent).inside

    def _around(self, value: Instruction) -> Epilogues:
        """Returns the kernels of products around a value; none where the machine has no such kernels."""
        if not self._joins or value.parent is None:
            return NO_EPILOGUES
        if value.parent not in self._epilogues:
            self._epilogues[value.parent] = epilogues(value.parent, self._is_written, self.machine)
        return self._epilogues[value.parent]

    def touched(self, instruction: Instruction) -> int:
        """Returns the bytes of memory that an op reads and writes, a product with those of the ops in its kernel. An
        operand that several ops of a nest of loops read counts for the first.
        """
        found = self._touched.get(instruction)
        if found is None:
            found = 0
            if not touches_nothing(instruction.op) and not self.is_joined(instruction):
                own = touched(instruction, self.is_stored, self._read_before(instruction))
                found = own + sum([size for _, size in self.joined(instruction)])
            self._touched[instruction] = found
        return found

    def joined(self, product: Instruction) -> list[tuple[Instruction, int]]:
        """Returns the ops that run in the kernel of a product, each with the bytes that it reads and writes there."""
        inside = self._around(product).members.get(product, ())
        return [(one, touched(one, self.is_stored, self._read_before(one))) for one in inside]

    def _work(self, instruction: Instruction) -> float:
        """Returns the machine's time of the contractions that an instruction is or fuses, or of the products that it is
        known to compute.
        """
        if instruction.op.role is Role.FUSION:
            (fused,) = instruction.called()
            if fused not in self._fused:
                self._fused[fused] = sum(map(self._work, fused))
            return self._fused[fused]
        if not is_contraction(instruction):
            known = products_of(instruction)
            if known is None:
                return 0.0
            speed = self.machine.attention_work if known.by_hand and self.machine.attention else self.machine.product
            return known.times * speed(known.sizes, element_of(instruction))
        attention = self._attention.of(instruction.parent)
        return attention.time(self.machine, instruction, sizes_of(instruction), element_of(instruction))

    def contractions(self, computation: Computation) -> float:
        """Returns the seconds of a computation's contractions, without those of its callees: a lower bound of its time
        that needs no search for fused values.
        """
        return sum([self._work(i) for i in computation if computes(i)]) / SECOND

    def collective(self, instruction: Instruction) -> float:
        """Returns the seconds of one execution of a collective, from its start until all of its data are there."""
        arrays = max(len(instruction.operands), 1)
        times = 1 if self._combined else arrays
        transfer, received = self._route(instruction).transfer, self.received(instruction)
        return times * transfer.time(received / times, arrays // times) / SECOND

    def _move(self, instruction: Instruction) -> float:
        """Returns the seconds of a move to or from the host; what else lies there takes no time of the device."""
        return self.moved(instruction.shape.byte_size) if is_host_move(instruction) else 0.0

    def moved(self, size: int) -> float:
        """Returns the seconds of a move of so many bytes to or from the host, which is launched as a kernel is."""
        moving = size * self.machine.host if math.isfinite(self.machine.host) else self.machine.memory(2 * size)
        return (self._launch + moving) / SECOND

    def started(self, instruction: Instruction) -> float:
        """Returns the seconds of a collective, of a move to or from the host, or of the computation that a start runs.
        """
        if not instruction.op.is_control:
            return self.parts(instruction).collectives
        return self.serial(instruction.called()[0]).total

    def latency(self, instruction: Instruction) -> float:
        """Returns the seconds of a collective that it saves by joining another: those that do not depend on its bytes,
        less those of a further array. A move to or from the host saves none.
        """
        if is_host_move(instruction):
            return 0.0
        transfer = self._route(instruction).transfer
        return max(transfer.latency - transfer.per_array, 0.0) / SECOND

    def received(self, instruction: Instruction) -> int:
        """Returns the bytes that a device receives in one execution of a collective, or moves."""
        if is_host_move(instruction):
            return instruction.shape.byte_size
        found = self._sent.get(instruction.name)
        return wire_bytes(instruction, self.devices) if found is None else found

    def engines(self, instruction: Instruction) -> tuple[str, ...]:
        """Returns the names of the engines that a collective occupies, or a move to or from the host."""
        if is_host_move(instruction):
            return (TO_HOST,) if instruction.shape.is_on_host else (FROM_HOST,)
        return self._route(instruction).engines

    def _route(self, instruction: Instruction) -> _Route:
        found = self._taken.get(instruction)
        if found is None:
            found = self._taken[instruction] = self._routed(instruction)
        return found

    def _routed(self, instruction: Instruction) -> _Route:
        kind, pairs = kind_of(instruction), pairs_of(instruction)
        key = kind, groups_of(instruction) if pairs is None else pairs
        found = self._routes.get(key)
        if found is None:
            machine = self.machine
            digits = _digits(key[1], self.devices, machine.levels)
            if pairs is None:
                found = _Route(machine.collective(kind, digits), machine.engines_of(kind, digits))
            else:
                found = _Route(machine.permute(pairs, digits), machine.engines_of_permute(pairs, digits))
            self._routes[key] = found
        return found

    def serial(self, computation: Computation) -> Seconds:
        """Returns the seconds of a computation in which nothing overlaps: every trip of loops, the slowest branch."""
        found = self._serial.get(computation)
        if found is None:
            collectives = memory = work = launches = 0.0
            for instruction in computation:
                if instruction.op.is_control:
                    spent = self._spent(instruction)
                elif (own := self.parts(instruction)) is _NOTHING:
                    continue
                else:
                    spent = ((1, own),)
                for count, one in spent:
                    collectives += count * one.collectives
                    memory += count * one.memory
                    work += count * one.work
                    launches += count * one.launches
            found = self._serial[computation] = Seconds(collectives, memory, work, launches)
        return found

    def _spent(self, instruction: Instruction) -> Sequence[tuple[int, Seconds]]:
        """Returns the costs that control flow incurs, each with its number of executions."""
        called = [self.serial(c) for c in instruction.called()]
        if instruction.op.role is Role.BRANCH:
            return [(1, self.parts(instruction)), (1, max(called, key=lambda s: s.total))]
        return [(1, self.parts(instruction)), *((trips_of(instruction), s) for s in called)]


def _is_of_scalars(instruction: Instruction) -> bool:
    """Whether an op computes a scalar from scalars."""
    values = (instruction, *instruction.operands)
    return instruction.op.is_elementwise and all(v.shape.is_array and not v.shape.dims for v in values)


def trips_of(instruction: Instruction) -> int:
    """Returns the number of times that control flow runs its callees; 1 where the trip count is not known."""
    trips = trip_count(instruction) if instruction.op.role is Role.LOOP else 1
    return 1 if trips is None else trips


def _digits(groups: ReplicaGroups | Pairs, devices: int, levels: tuple[int, ...]) -> Digits | None:
    """Returns digits in which devices that exchange data differ; None if they are not known."""
    return _between(groups, devices, levels) if isinstance(groups, tuple) else group_digits(groups, devices)


def _between(pairs: Pairs, devices: int, levels: tuple[int, ...]) -> Digits | None:
    """Returns the digits between levels of links in which the devices of a pair differ."""
    cuts = [1, *(level for level in levels if level < devices), devices]
    if any(high % low for low, high in pairwise(cuts)):
        return None
    found = [
        Digit(high // low, low)
        for low, high in pairwise(cuts)
        if any(a // low % (high // low) != b // low % (high // low) for a, b in pairs)
    ]
    return tuple(sorted(found, key=lambda d: -d.stride)) if math.prod(d.size for d in found) > 1 else ()
