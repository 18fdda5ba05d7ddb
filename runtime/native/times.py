"""Says how long a program that is prepared for native code takes on this processor, op by op.

The interpreter runs kernels that follow each other as one table, loops of nothing but kernels as machine code, and
other ops one by one by Python and numpy (`runtime/native/arrange.py`). The first kernel of a table, and a loop, have
the costs of these. Bytes that are read and written count beside the work of an op where caches do not hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...codegen.native.lowerings import Lowerings
from ...codegen.native.products.product import is_product
from ...codegen.native.step import StridedLayout
from ...codegen.native.views import view_of
from ...cost.host import HOST
from ...cost.memory_traffic import touched
from ...cost.native_speed import NativeSpeed
from ...cost.seconds import trips_of
from ...cost.uses import overwritten
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import PassesOn, movement
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.structure import element_index
from .counts import KernelWork, native_counts

_STRUCTURE = frozenset({Role.PARAMETER, Role.CONSTANT, Role.TUPLE, Role.ELEMENT})
_LANES = 64  # bytes of a strip


class NativeCounts:
    """The work of the ops of a prepared program, by the names of `cost.native_speed`."""

    def __init__(self, module: Module) -> None:
        self._lowerings = Lowerings()
        self._native: dict[Instruction, KernelWork | None] = {}
        self._loops: dict[Instruction, bool] = {}
        self._layouts: dict[Instruction, StridedLayout | None] = {}
        self.of: dict[Instruction, KernelWork] = {}
        self._count(module.entry, False)
        root = module.entry.root
        arrays = sum(i.shape.num_leaves for i in (*module.entry.parameters, root))
        self.of.setdefault(root, KernelWork()).add({"run": 1, "array": arrays})

    def total(self, module: Module) -> KernelWork:
        """Counts the work of a run, every trip of loops included."""
        return self._total(module.entry)

    def seconds(self, speed: NativeSpeed, instruction: Instruction) -> float | None:
        """Returns the time of an op, or of starting a loop; None for ops that take none or are collectives."""
        found = self.of.get(instruction)
        return None if found is None else speed.seconds(found)

    def _total(self, computation: Computation) -> KernelWork:
        found = KernelWork()
        for instruction in computation:
            found.add(self.of.get(instruction, {}))
            if instruction.op.is_control:
                called = instruction.called()
                if instruction.op.role is Role.BRANCH:
                    called = called[:1]
                for one in called:
                    found.add(self._total(one), trips_of(instruction))
        return found

    def _count(self, computation: Computation, in_code: bool) -> None:
        """Counts the ops of a computation, which runs as machine code if it is `in_code`."""
        is_table = in_code
        for instruction in computation:
            op = instruction.op
            if op.role in _STRUCTURE or op.interface(PassesOn) or self._view(instruction) is not None:
                continue
            if op.is_collective:
                is_table = in_code
                continue
            if op.is_control:
                self.of[instruction] = self._control(instruction, in_code)
                is_table = in_code
                continue
            found = self._kernel(instruction, in_code)
            if found is None:
                self.of[instruction] = KernelWork(call=1, called=touched(instruction))
                is_table = in_code
                continue
            found["table"] += not is_table
            self.of[instruction], is_table = found, True

    def _kernel(self, instruction: Instruction, in_code: bool) -> KernelWork | None:
        """Counts an op with the bytes that it reads and writes; None for one that is not native."""
        if in_code and _updates_state(instruction):
            return KernelWork(entry=1, move=2 * instruction.operands[1].shape.byte_size // _LANES)
        found = self._known(instruction)
        if found is None:
            return None
        size, result = touched(instruction), KernelWork(**found)
        if size > HOST.piece:
            result["far" if size > HOST.streamed else "near"] += size
        return result

    def _known(self, instruction: Instruction) -> KernelWork | None:
        if instruction not in self._native:
            layouts = [self._layout(operand) for operand in instruction.operands]
            if None in layouts:
                layouts = [StridedLayout.dense(leaf.dims) for o in instruction.operands for leaf in o.shape.leaves()]
            known = [layout for layout in layouts if layout is not None]
            self._native[instruction] = native_counts(instruction, known, self._lowerings)
        return self._native[instruction]

    def _layout(self, value: Instruction) -> StridedLayout | None:
        """Returns how a value lies in memory: a view as it shows its operand, another array dense; None for no array.
        A product writes its result as the only transposition that reads it wants it.
        """
        if value not in self._layouts:
            seen = self._view(value)
            is_turned = seen is not None and _writes_turned(value.operands[0])
            dense = StridedLayout.dense(value.shape.dims) if value.shape.is_array else None
            self._layouts[value] = dense if seen is None or is_turned else seen
        return self._layouts[value]

    def _view(self, value: Instruction) -> StridedLayout | None:
        """Returns the layout of a view of another value; None for values of their own."""
        operands = value.operands
        if len(operands) != 1 or not operands[0].shape.is_array or not value.shape.is_array:
            return None
        below = self._layout(operands[0])
        found = None if below is None else view_of(value, below)
        return None if found is None else found[1]

    def _control(self, instruction: Instruction, in_code: bool) -> KernelWork:
        """Counts the work of a loop or a branch beside the computations that it calls."""
        inside = in_code or self._is_native(instruction)
        for called in instruction.called():
            self._count(called, inside)
        trips = trips_of(instruction)
        if not inside:
            return KernelWork(call=1 + trips)
        found = KernelWork(loop=1, trip=trips) if instruction.op.role is Role.LOOP else KernelWork(trip=1)
        if not in_code:
            state = sum(o.shape.byte_size for o in instruction.operands)
            steps = self._steps(instruction.called())
            if state > HOST.copied_state * steps:
                found["loop_code"] += steps
                found["loop_entry"] += sum(self.of[i]["entry"] for i in self._entries(instruction.called()))
            else:
                found["taken"] += state
            found["state"] += sum(o.shape.num_leaves for o in instruction.operands)
        return found

    def _entries(self, computations: Iterable[Computation]) -> Iterator[Instruction]:
        """Yields the ops of computations that run as machine code, and of those that they call."""
        for instruction in (i for c in computations for i in c if i in self.of):
            yield instruction
            yield from self._entries(instruction.called() if instruction.op.is_control else ())

    def _steps(self, computations: Iterable[Computation]) -> int:
        """Counts the tables, of kernels or of views, the updates and the loops of computations in machine code."""
        found = 0
        for computation in computations:
            is_table = False
            for instruction in (i for i in computation if i in self.of or self._view(i) is not None):
                if instruction.op.is_control:
                    found += self._steps(instruction.called())
                is_kernel = not (instruction.op.is_control or _updates_state(instruction))
                found += not (is_kernel and is_table)
                is_table = is_kernel
            found += not is_table  # of views, before the end
        return found

    def _is_native(self, instruction: Instruction) -> bool:
        """Whether a loop runs as machine code: it consists of kernels, updates and such loops."""
        if instruction.op.role is not Role.LOOP:
            return False
        if instruction not in self._loops:
            self._loops[instruction] = all(self._runs(i) for c in instruction.called() for i in c)
        return self._loops[instruction]

    def _runs(self, instruction: Instruction) -> bool:
        op = instruction.op
        if op.role in _STRUCTURE or op.interface(PassesOn) or self._view(instruction) is not None:
            return True
        if op.role is Role.BRANCH:
            return all(self._runs(i) for c in instruction.called() for i in c)
        if op.is_control:
            return self._is_native(instruction)
        return _updates_state(instruction) or self._known(instruction) is not None


def _writes_turned(value: Instruction) -> bool:
    """Whether a product writes its result as its only reader, a transposition, wants it. One that converts does not."""
    return is_product(value.op) and len(value.users) == 1 and value.shape.element.bits >= 32


def _updates_state(instruction: Instruction) -> bool:
    """Whether an op updates a part of a loop's state in place: nothing reads the old one later, and the next trip gets
    the new one at its place.
    """
    if not _is_update(instruction) or instruction.parent is None:
        return False
    first = last = instruction
    while _is_update(first):
        first = first.operands[0]
    place = element_index(first)
    if place is None or first.operands[0].op.role is not Role.PARAMETER:
        return False
    root = instruction.parent.root
    while root not in last.users:
        updates = [user for user in last.users if _is_update(user) and user.operands[0] is last]
        if len(updates) != 1:
            return False
        last = updates[0]
    return root.op.role is Role.TUPLE and root.operands[place] is last


def _is_update(instruction: Instruction) -> bool:
    """Whether an op writes a slice into a copy of its first operand, or into that itself."""
    if 0 not in overwritten(instruction) or not instruction.shape.is_array:
        return False
    return movement(instruction.op).updates(instruction.call) is None
