"""The values that lie in memory when XLA has compiled a program for CPUs.

Loops compute ops on elements and ops that move them for whoever reads them, again for each reader. A value takes memory
if an op reads it that no loop computes, if it is dear and several loops read it, or if a loop would compute it at too
many places. Sums of f32 are calls of a library, which also computes the ops around a sum up to a single result: it
reads all else from memory, broadcasts too, so that one value of two calls, or of a call and a loop, is stored.

These are the rules of `InstructionFusion` and of the library's fusions in jaxlib 0.10, read from XLA's sources and from
programs that it compiled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..ir.analysis.awaited import reads
from ..ir.analysis.fusion_groups import evaluation_order
from ..ir.graph.algebra import Algebra
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import memory
from ..ir.ops.shaping import BroadcastAttributes
from ..ir.types.element_type import F32, Kind
from .products import product_of
from .uses import algebra, overwritten

_PLACES = 15  # `FusionNodeIndexingEvaluation::kAllowedCodeDuplication` of XLA
_KNOWN = (Algebra.FIELD, Algebra.FUNCTION, Algebra.ORDER)


class XlaKernels:
    """Answers for a program, as `live_memory` asks.

    A value's homes are the stored values whose kernels compute it, itself if it is stored.
    """

    def __init__(self) -> None:
        self._homes: dict[Instruction, frozenset[Instruction]] = {}
        self._places: dict[Instruction, int] = {}
        self._analysed: set[Computation] = set()
        self._calls: set[Instruction] = set()

    def is_stored(self, value: Instruction, /) -> bool:
        """Whether a value lies in memory."""
        assert value.parent is not None
        if value.parent not in self._analysed:
            self._analyse(value.parent)
        return value in self._homes[value]

    def together(self, value: Instruction, /) -> Collection[Instruction]:
        """Returns the values of a kernel: its result, twice, so that none overwrites another by itself."""
        return (value, value)

    def is_call(self, home: Instruction) -> bool:
        """Whether the library computes a stored value."""
        return _is_sum(home) or home in self._calls

    def _analyse(self, computation: Computation) -> None:
        self._analysed.add(computation)
        root = computation.root
        while is_view(root):
            root = root.operands[0]
        for value in reversed(evaluation_order(computation)):
            self._homes[value] = frozenset({value}) if value is root else self._found(value)
        self._end_in_products(computation)

    def _found(self, value: Instruction) -> frozenset[Instruction]:
        """Returns the homes of a value whose readers have theirs."""
        if not value.operands and not value.op.is_fusible:
            return frozenset({value})
        if _is_sum(value) or (product_of(value) is not None and value.shape.element is F32):
            return self._in_call(value)
        alone = frozenset({value})
        if not value.op.is_fusible or not value.shape.is_array or is_view(value) or _is_apart(value):
            return alone
        homes, places = set[Instruction](), 0
        for reader, read in reads(value, is_view):
            found = self._homes[reader]
            if not _may_join(reader, read) or (any(map(self.is_call, found)) and not _is_known(value)):
                return alone
            homes |= found
            here = self._places.get(reader, 1)
            places = max(places, here) if reader.op.is_elementwise else places + here
        is_shared = len(homes) > 1 and (_is_dear(value) or any(map(self.is_call, homes)))
        if not homes or is_shared or places > _PLACES:
            return alone
        self._places[value] = places
        return frozenset(homes)

    def _in_call(self, value: Instruction) -> frozenset[Instruction]:
        """Returns the call that a sum or a product is part of, with all that reads it; itself if there is none."""
        readers = [reader for reader, _ in reads(value, is_view)]
        homes = {home for reader in readers for home in self._homes[reader]}
        if len(homes) == 1 and all(r.op.is_fusible and not _is_apart(r) for r in readers) and not _meets_sum(value):
            (home,) = homes
            if self.is_call(home) or (_is_sum(value) and home.op.is_elementwise and _is_known(home)):
                self._calls.add(home)
                return frozenset({home})
        return frozenset({value})

    def _end_in_products(self, values: Iterable[Instruction]) -> None:
        """Lets products take part in calls whose results they alone read."""
        for value in values:
            if value in self._calls and value in self._homes[value]:
                readers = [reader for reader, _ in reads(value, is_view)]
                if len(readers) == 1 and is_plain(readers[0]):
                    self._homes[value] = frozenset(readers)
                    self._calls.add(readers[0])


def is_view(value: Instruction) -> bool:
    """Whether a value shows another one's memory."""
    return bool(value.operands) and memory(value.op).is_view


def is_broadcast(value: Instruction) -> bool:
    """Whether a value repeats the elements of another one."""
    return isinstance(value.attributes, BroadcastAttributes)


def is_plain(value: Instruction) -> bool:
    """Whether a value is a product of f32 matrices, or of batches of them, that reads its operands as they lie."""
    a = product_of(value)
    if a is None or value.shape.element is not F32 or len(a.lhs_contracting_dims) > 1:
        return False
    batch = tuple(range(len(a.lhs_batch_dims)))
    sides = zip(value.operands[:2], (a.lhs_batch_dims, a.rhs_batch_dims), strict=True)
    return all(tuple(dims) == batch and len(o.shape.dims) <= len(batch) + 2 for o, dims in sides)


def _is_sum(value: Instruction) -> bool:
    """Whether a value is a reduction of f32, which the library makes."""
    if algebra(value) is not Algebra.FOLD or not value.op.is_fusible or not value.shape.is_array:
        return False
    return value.shape.element is F32 and value.shape.num_elements < value.operands[0].shape.num_elements


def _may_join(reader: Instruction, read: Instruction) -> bool:
    """Whether the kernel of a reader may compute what it reads."""
    kept = overwritten(reader)
    if not kept:
        return reader.op.is_fusible and not _is_apart(reader)
    is_scatter = algebra(reader) is Algebra.FOLD
    return not is_scatter and not any(n in kept for n, o in enumerate(reader.operands) if o is read)


def _meets_sum(value: Instruction) -> bool:
    """Whether ops on elements combine a sum with another one."""
    seen, stack = {value}, [value]
    while stack:
        for reader, _ in reads(stack.pop(), is_view):
            if reader in seen or reader.shape.byte_size != value.shape.byte_size:
                continue
            seen.add(reader)
            stack.append(reader)
            for operand in reader.operands:
                while is_view(operand):
                    operand = operand.operands[0]
                if _is_sum(operand) and operand not in seen:
                    return True
    return False


def _is_known(value: Instruction) -> bool:
    """Whether the library has an op."""
    if value.shape.element is not F32:
        return False
    return is_broadcast(value) or (value.op.is_elementwise and algebra(value) in _KNOWN)


def _is_apart(value: Instruction) -> bool:
    """Whether a value is a concatenation of parts of rows, which is copied."""
    if len(value.operands) < 2 or value.op.is_elementwise or not value.op.is_fusible or not value.shape.dims:
        return False
    *outer, inner = value.shape.dims
    parts = [o.shape.dims for o in value.operands if o.shape.is_array and o.shape.dims[:-1] == tuple(outer)]
    return len(parts) == len(value.operands) and sum(dims[-1] for dims in parts if dims) == inner


def _is_dear(value: Instruction) -> bool:
    """Whether a value is a function of floats, which XLA does not compute twice."""
    return algebra(value) is Algebra.FUNCTION and value.shape.element.kind in (Kind.FLOAT, Kind.COMPLEX)
