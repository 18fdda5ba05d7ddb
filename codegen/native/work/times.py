"""Says how long a program that is prepared for native code takes on this processor, op by op.

The interpreter runs kernels that follow each other as one table, up to where it waits for a collective, loops of
nothing but kernels as machine code, and other ops one by one by Python and numpy (`runtime/native/arrange.py`). The
first kernel of a table, and a loop, have the costs of these. Bytes that are read and written count beside the work of
an op where caches do not hold them: part of them come while it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....cost.host import HOST
from ....cost.native_speed import NativeSpeed
from ....cost.seconds import trips_of
from ....cost.uses import overwritten
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import PassesOn, movement
from ....ir.graph.module import Module
from ....ir.graph.op import Role
from ....ir.ops.control import WhileAttributes
from ..lowerings import Lowerings
from ..products.product import is_product
from ..put import start_indices
from ..step import StridedLayout
from ..views import view_of
from .counts import KernelWork, native_counts, numpy_counts, put_counts
from .puts import PutForm, SlicePuts, forwards
from .reuse import Missed, Reuse
from .table_arrays import TableArrays
from .tables import STRUCTURE, tables_of

_LANES = 64  # bytes of a strip
_STARTED = 5  # trips that take as long as the start of a loop that other machine code runs
# Microseconds of the work of Python, where caches hold its code and objects; only their proportions count.
_OF_STEP = {"table": 4, "held": 0.36, "shown": 0.95, "call": 9, "window": 4.6, "update": 6, "loop": 2, "state": 0.9,
            "placed": 0.5}  # fmt: skip
_OF_PYTHON = {"run": 7, "array": 0.35, **_OF_STEP}
_OF_COLLECTIVE = 30  # microseconds of the work of Python for a collective
_KERNELS = 60  # kernels between two collectives, after which caches hold little of the Python of collectives
_DISPLACED = 200  # microseconds of other work of Python, after which little is left of some in the first caches


class NativeCounts:
    """The work of the ops of a prepared program, by the names of `cost.native_speed`, where the second cache of a core
    has so many bytes.
    """

    def __init__(self, module: Module, second_cache: float = HOST.near_cache) -> None:
        self._second_cache = second_cache
        self._lowerings = Lowerings()
        self._native: dict[Instruction, KernelWork | None] = {}
        self._loops: dict[Instruction, bool] = {}
        self._layouts: dict[Instruction, StridedLayout | None] = {}
        self._arrays: dict[Computation, int] = {}
        self._puts: dict[Computation, SlicePuts] = {}
        self._reuse = Reuse(module, self._view, self._is_native, second_cache)
        self._by_python = list[Instruction]()  # also collectives
        self.of: dict[Instruction, KernelWork] = {}
        self._count(module.entry, False)
        self._by_python.sort(key=self._reuse.before.__getitem__)
        root = module.entry.root
        arrays = sum(i.shape.num_leaves for i in (*module.entry.parameters, root))
        first = next((i for i in self._by_python if not i.op.is_collective), root)
        self.of.setdefault(first, KernelWork()).add({"run": 1, "array": arrays})
        self._add_cold()
        self._add_displaced()

    def run(self, module: Module) -> list[tuple[int, KernelWork]]:
        """Returns the executions of each op in a run, every trip of loops included, and its work."""
        return list(self._run(module.entry, 1))

    def cold_collectives(self, module: Module) -> float:
        """Returns the share of the Python of collectives, from 0 to 1, that caches no longer hold when one runs. A half
        is displaced by the kernels between two of them, the other one by their bytes, as far as the last cache loses
        these.
        """
        kernels = collectives = 0.0
        for times, instruction in self._executed(module.entry, 1):
            collectives += times * instruction.op.is_collective
            kernels += times * self.of.get(instruction, KernelWork()).get("entry", 0.0)
        collectives = max(collectives, 1.0)
        bytes_between = min(self._reuse.total / collectives / self._second_cache, 1.0)
        displaced = min(kernels / collectives / _KERNELS, 1.0)
        return (displaced + bytes_between * min(self._reuse.total / HOST.streamed, 1.0)) / 2

    def seconds(self, speed: NativeSpeed, instruction: Instruction) -> float | None:
        """Returns the time of an op, or of starting a loop; none for a view, None for other ops that are not counted,
        such as collectives.
        """
        found = self.of.get(instruction)
        if found is None:
            return None if self._view(instruction) is None else 0.0
        return speed.seconds(found)

    def _add_cold(self) -> None:
        """Adds the work of Python whose code and objects are no longer in the second cache, for kernels have touched
        others since the step before; the last one of a run comes before the first of the next.
        """
        steps = [i for i in self._by_python if not i.op.is_collective]
        last = self._reuse.before[steps[-1]] - self._reuse.total if steps else 0
        for instruction in steps:
            work, place = self.of[instruction], self._reuse.before[instruction]
            share = min((place - last) / self._second_cache, 1.0)
            work["cold"] += share * _of_python(work, _OF_PYTHON)
            last = place

    def _add_displaced(self) -> None:
        """Adds the work of Python whose code is no longer in the first caches, for Python has done other work since the
        last step of its kind; the last one of a run comes before the first of the next.
        """
        spent = [_OF_COLLECTIVE if i.op.is_collective else _of_python(self.of[i], _OF_STEP) for i in self._by_python]
        place, last = -sum(spent), dict[str, float]()
        for is_real in (False, True):
            for instruction, own in zip(self._by_python, spent, strict=True):
                is_table = not instruction.op.is_collective and "table" in self.of[instruction]
                kind = "table" if is_table else instruction.opcode
                if is_real and not instruction.op.is_collective:
                    self.of[instruction]["displaced"] += own * min((place - last[kind]) / _DISPLACED, 1.0)
                place += own
                last[kind] = place

    def _run(self, computation: Computation, times: int) -> Iterator[tuple[int, KernelWork]]:
        for executions, instruction in self._executed(computation, times):
            if instruction in self.of:
                yield executions, self.of[instruction]

    def _executed(self, computation: Computation, times: int) -> Iterator[tuple[int, Instruction]]:
        """Yields the instructions of a computation and of those that it calls, each after its executions in a run."""
        for instruction in computation:
            yield times, instruction
            if instruction.op.is_control:
                called = instruction.called()
                if instruction.op.role is Role.BRANCH:
                    called = called[:1]
                for one in called:
                    yield from self._executed(one, times * trips_of(instruction))

    def _count(self, computation: Computation, in_code: bool) -> None:
        """Counts the ops of a computation, which runs as machine code if it is `in_code`."""
        tables, others = tables_of(
            computation, lambda i: self._view(i) is None and not self._is_kernel(i, in_code)
        )
        for instruction in others:
            if not in_code:
                self._by_python.append(instruction)
            if not instruction.op.is_collective:
                self.of[instruction] = self._step(instruction, in_code)
        puts = self._puts[computation] = SlicePuts(computation, self._view, others)
        for instruction in (i for table in tables for i in table if self._view(i) is None):
            form = puts.of.get(instruction)
            self.of[instruction] = self._kernel(instruction) if form is None else self._put(instruction, form, in_code)
        known = TableArrays(computation, self._view, others, puts)
        self._arrays[computation] = 0
        for table in tables:
            held, shown = known.arrays(table)
            self._arrays[computation] += held + shown
            if not in_code:
                first = next((i for i in table if i in self.of), table[0])
                self._by_python.append(first)
                self.of.setdefault(first, KernelWork()).add({"table": 1, "held": held, "shown": shown})

    def _is_kernel(self, instruction: Instruction, in_code: bool) -> bool:
        """Whether an op that is no view runs in a table."""
        if instruction.op.is_collective or instruction.op.is_control:
            return False
        return start_indices(instruction) is not None or self._known(instruction) is not None

    def _step(self, instruction: Instruction, in_code: bool) -> KernelWork:
        """Counts an op that is a step of its own: control flow, an update by Python, or one that numpy computes."""
        if instruction.op.is_control:
            return self._control(instruction, in_code)
        if 0 in overwritten(instruction) and movement(instruction.op).updates(instruction.call) is None:
            return KernelWork(update=1, taken=instruction.operands[1].shape.byte_size + instruction.shape.byte_size)
        return numpy_counts(instruction)

    def _put(self, instruction: Instruction, form: PutForm, in_code: bool) -> KernelWork:
        """Counts an update of a slice with the copy that it needs: by a kernel, or of an array from outside by Python,
        unless that is state of a loop.
        """
        whole, dense = instruction.shape.byte_size, StridedLayout.dense(instruction.shape.dims)
        part = self._layout(instruction.operands[1]) or StridedLayout.dense(instruction.operands[1].shape.dims)
        is_state = form is PutForm.TAKEN and self._puts[_parent(instruction)].is_of_state(instruction)
        is_copied = form is PutForm.COPIED or (in_code and form is PutForm.TAKEN and not is_state)
        work = put_counts(part, StridedLayout(part.dims, dense.strides), instruction.shape.element.byte_size)
        work.add({"entry": 1 + is_copied, "move": 2 * whole * is_copied / _LANES})
        self._with_waiting(instruction, work)
        if form is PutForm.TAKEN and not (in_code or is_state):
            work["taken"] += whole
        return work

    def _kernel(self, instruction: Instruction) -> KernelWork:
        """Counts an op of a table with the bytes that it reads and writes."""
        return self._with_waiting(instruction, KernelWork(**(self._known(instruction) or {})))

    def _with_waiting(self, instruction: Instruction, work: KernelWork) -> KernelWork:
        """Adds the bytes of an op that the second cache does not hold to its work."""
        work.add(self._reuse.of.get(instruction, Missed())._asdict())
        return work

    def _known(self, instruction: Instruction) -> KernelWork | None:
        if instruction not in self._native:
            layouts = [self._layout(operand) for operand in instruction.operands]
            if None in layouts:
                layouts = [StridedLayout.dense(leaf.dims) for o in instruction.operands for leaf in o.shape.leaves()]
            known = [layout for layout in layouts if layout is not None]
            found = native_counts(instruction, known, self._lowerings)
            self._native[instruction] = self._inlined(instruction) if found is None else found
        return self._native[instruction]

    def _inlined(self, instruction: Instruction) -> KernelWork | None:
        """Counts a fusion whose loops do not fit together: its ops then run one by one. None if one has no kernel."""
        if instruction.op.role is not Role.FUSION:
            return None
        found = KernelWork()
        for own in instruction.called()[0]:
            if own.op.role in STRUCTURE or own.op.interface(PassesOn) or self._view(own) is not None:
                continue
            work = self._known(own)
            if work is None:
                return None
            found.add(work)
        return found

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
        if instruction.op.role is not Role.LOOP:
            return KernelWork(trip=1)
        changed = [leaf.byte_size for n, leaf in enumerate(instruction.shape.leaves())
                   if not forwards(instruction.attributes_as(WhileAttributes).body, n)]  # fmt: skip
        if in_code:
            return KernelWork(trip=trips + _STARTED, entry=len(changed), move=2 * sum(changed) / _LANES)
        missed = self._reuse.of.get(instruction, Missed())._asdict()
        arrays = {"state": instruction.shape.num_leaves, "placed": self._held(instruction)}
        return KernelWork(loop=1, trip=trips, taken=sum(changed), **missed, **arrays)

    def _held(self, instruction: Instruction) -> int:
        """Counts the arrays that the tables of a loop take and show, and those of loops and branches in it."""
        inside = (i for c in instruction.called() for i in c if i.op.is_control)
        return sum(self._arrays[c] for c in instruction.called()) + sum(map(self._held, inside))

    def _is_native(self, instruction: Instruction) -> bool:
        """Whether a loop runs as machine code: it consists of kernels, updates and such loops."""
        if instruction.op.role is not Role.LOOP:
            return False
        if instruction not in self._loops:
            self._loops[instruction] = all(self._runs(i) for c in instruction.called() for i in c)
        return self._loops[instruction]

    def _runs(self, instruction: Instruction) -> bool:
        op = instruction.op
        if op.role in STRUCTURE or op.interface(PassesOn) or self._view(instruction) is not None:
            return True
        if op.role is Role.BRANCH:
            return all(self._runs(i) for c in instruction.called() for i in c)
        if op.is_control:
            return self._is_native(instruction)
        return start_indices(instruction) is not None or self._known(instruction) is not None


def _of_python(work: KernelWork, weights: Mapping[str, float]) -> float:
    """Returns the microseconds of the work of Python, about, by those of its kinds."""
    return sum(work[name] * weight for name, weight in weights.items() if name in work)


def _writes_turned(value: Instruction) -> bool:
    """Whether a product writes its result as its only reader, a transposition, wants it. One that converts does not."""
    return is_product(value.op) and len(value.users) == 1 and value.shape.element.bits >= 32


def _parent(instruction: Instruction) -> Computation:
    assert instruction.parent is not None, "an op of a program"
    return instruction.parent
