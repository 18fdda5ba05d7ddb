"""Products that compute more than themselves in one kernel: ops on elements after them, slices and ops that widen
values before them.

    y = dot(x, convert(dynamic-slice(w, layer)))   z = maximum(y, 0)   stack = dynamic-update-slice(stack, z, layer)

Where a machine has such kernels, ops on the elements of a product follow while its tiles are on the chip, and read and
write beneath its work. An op whose other operands come later belongs to a later product. A slice that products alone
read is read in place, and a value that is put into an array is written there. An operand that takes more bytes than
those from which its elements are computed, such as weights of 8 bits that are converted and scaled, is computed as they
are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ..ir.analysis.awaited import reads
from ..ir.analysis.fusion_groups import evaluation_order
from ..ir.brief import brief
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import memory
from ..ir.graph.op import Role
from ..ir.reached import reached
from .machine import Machine
from .memory_traffic import touched
from .uses import has_windows, overwritten
from .work import is_contraction

_MOST = 32  # ops in the kernel of a product
_DEEP = 4  # values that are computed anew for a kernel


@brief
@dataclass(frozen=True, slots=True)
class Epilogues:
    """The kernels of a computation: the product that computes an op, the ops of each product, and answers whether
    values lie in memory.
    """

    hosts: dict[Instruction, Instruction] = field(default_factory=dict[Instruction, Instruction])
    members: dict[Instruction, list[Instruction]] = field(default_factory=dict[Instruction, list[Instruction]])
    stored: dict[Instruction, bool] = field(default_factory=dict[Instruction, bool])


NO_EPILOGUES = Epilogues()


def epilogues(computation: Computation, is_stored: Callable[[Instruction], bool], machine: Machine) -> Epilogues:
    """Finds the kernels of a computation, given which values lie in memory without them."""
    work = _Kernels(computation, is_stored)
    if machine.epilogues:
        for product in [i for i in reversed(work.order) if is_contraction(i) and i.shape.is_array and is_stored(i)]:
            work.follow(product)
    for value in work.order:
        if machine.prologues:
            work.read_narrower(value)
        if machine.epilogues:
            work.read_in_place(value)
            work.write_in_place(value)
    return work.found


class _Kernels:
    """The kernels found so far. Places are those of an order that no schedule changes."""

    def __init__(self, computation: Computation, is_stored: Callable[[Instruction], bool]) -> None:
        self.computation, self.is_stored = computation, is_stored
        self.order = evaluation_order(computation)
        self.place = {instruction: n for n, instruction in enumerate(self.order)}
        self.found = Epilogues()
        self.roots = [computation.root]
        while memory(self.roots[-1].op).is_view:
            self.roots.append(self.roots[-1].operands[0])

    def follow(self, product: Instruction) -> None:
        """Adds the ops on elements after a product to its kernel."""
        inside = {product}
        pending: list[int] = []
        self._push(pending, product)
        while pending and len(inside) < _MOST:
            op = self.order[heappop(pending)]
            if op not in inside and self._continues(op, product, inside):
                inside.add(op)
                self._push(pending, op)
        if len(inside) > 1:
            self._host(product, sorted(inside - {product}, key=self.place.__getitem__))
            for op in inside:
                is_read = any(reader not in inside for reader, _ in reads(op, _is_view))
                self.found.stored[op] = op in self.roots or is_read

    def _push(self, pending: list[int], op: Instruction) -> None:
        for user in op.users:
            heappush(pending, self.place[user])

    def _host(self, product: Instruction, ops: Iterable[Instruction]) -> None:
        for op in ops:
            self.found.hosts[op] = product
            self.found.members.setdefault(product, []).append(op)

    def _continues(self, op: Instruction, product: Instruction, inside: set[Instruction]) -> bool:
        if op in self.found.hosts or not op.shape.is_array or op.shape.num_elements != product.shape.num_elements:
            return False
        if memory(op.op).is_view:
            return True
        if not (op.op.is_elementwise and op.op.is_fusible):
            return False
        return all(o in inside or self._is_ready(o, self.place[product]) for o in op.operands)

    def _is_ready(self, value: Instruction, place: int, depth: int = _DEEP) -> bool:
        """Whether a value is in memory before this place, or is made there of such."""
        if value.op.role in (Role.PARAMETER, Role.CONSTANT):
            return True
        if self.is_stored(value):
            return self.place[value] < place and self.found.stored.get(value, True)
        is_made = depth > 0 and (not value.op.is_elementwise or value.shape.num_elements == 1)
        return is_made and all(self._is_ready(o, place, depth - 1) for o in value.operands)

    def read_narrower(self, value: Instruction) -> None:
        """Lets the only product that reads a value on elements compute it, if that reads fewer bytes."""
        if not (value.op.is_elementwise and value.op.is_fusible and value not in self.roots and self.is_stored(value)):
            return
        readers = list(reads(value, _is_view))
        if len(readers) != 1 or not is_contraction(readers[0][0]):
            return
        made = list(reached([value], lambda one: (o for o in one.operands if not self.is_stored(o))))
        if sum(touched(one, self.is_stored) for one in made) < 2 * value.shape.byte_size:
            inside = {value}
            for one in sorted(made, key=self.place.__getitem__, reverse=True):  # users first
                if inside.issuperset(one.users):
                    inside.add(one)
            if not inside & self.found.hosts.keys():
                self._host(readers[0][0], sorted(inside, key=self.place.__getitem__))
                self._not_stored(value)

    def read_in_place(self, value: Instruction) -> None:
        """Lets products read a slice where it lies, if they alone read it."""
        if value.operands and value.users and self.is_stored(value) and has_windows(value):
            readers = list(reads(value, _is_view))
            if readers and all(is_contraction(reader) for reader, _ in readers):
                self._host(readers[0][0], [value])
                self._not_stored(value)

    def write_in_place(self, value: Instruction) -> None:
        """Lets the op that computes a value write it into the array into which it is put."""
        is_computed = value.op.is_fusible or is_contraction(value)
        if not is_computed or not value.operands or not self.found.stored.get(value, True) or not self.is_stored(value):
            return
        readers = list(reads(value, _is_view))
        puts = [reader for reader, read in readers if _puts(reader, read)]
        if puts and all(r in puts or _same_loops(r, value) for r, _ in readers):
            self._not_stored(value)

    def _not_stored(self, value: Instruction) -> None:
        self.found.stored.update(dict.fromkeys(_shown(value), False))


def _is_view(value: Instruction) -> bool:
    return memory(value.op).is_view


def _shown(value: Instruction) -> Iterable[Instruction]:
    """Returns a value and the views of it."""
    return reached([value], lambda read: filter(_is_view, read.users))


def _puts(user: Instruction, value: Instruction) -> bool:
    """Whether a user puts a value into another operand, which it overwrites in part."""
    kept = overwritten(user)
    return bool(kept) and all(n not in kept for n, operand in enumerate(user.operands) if operand is value)


def _same_loops(user: Instruction, value: Instruction) -> bool:
    """Whether an op computes elements from those of a value in the same loops."""
    return user.op.is_elementwise and user.op.is_fusible and user.shape.num_elements == value.shape.num_elements
