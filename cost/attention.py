"""Attention as one kernel: the values between its products that a machine with such a kernel keeps out of memory.

    s = dot(q, k)     p = a softmax of s, masked     o = dot(p, v)

A product of heads with a result larger than its operands begins a kernel. Ops on elements, broadcasts and reductions
continue it, and products end it: also in the backward pass, which computes scores again and ends in three products.
Between them lies an exponential of the scores: kernels know no other function. Where nothing else reads a value of this
size, none lies in memory (Dao et al., "FlashAttention", 2022). A mask that compares two counters lets half of the
products through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ..ir.brief import brief
from ..ir.graph.algebra import Algebra
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import memory
from ..ir.graph.op import Role
from ..ir.ops.elementwise import function_of
from ..ir.types.element_type import PRED, ElementType
from .machine import Machine
from .products import ProductSizes, is_by_vector, product_of, sizes_of
from .uses import algebra
from .work import is_contraction

_WIDEST = 256  # numbers per head for which there are kernels
_CAUSAL = 0.5  # of the products, where a mask lets a triangle through
_DEEP = 24  # values of which a mask is made


@brief
@dataclass(frozen=True, slots=True)
class AttentionKernels:
    """The attention kernels of a computation: values `inside`, and each product with the share that is computed."""

    inside: frozenset[Instruction]
    products: dict[Instruction, float]

    def time(self, machine: Machine, value: Instruction, sizes: ProductSizes, element: ElementType) -> float:
        """Returns the machine's time of a contraction of these sizes, inside or outside."""
        if value in self.products:
            return self.products[value] * machine.attention_work(sizes, element)
        if is_by_vector(value, sizes):
            return machine.work(sizes.multiply_adds, element)
        return machine.product(sizes, element)


NO_KERNELS = AttentionKernels(frozenset(), {})


class KnownAttention:
    """The attention kernels on a machine, found once for each computation; none where it has no such kernels."""

    def __init__(self, machine: Machine) -> None:
        self.has_kernels = bool(machine.attention)
        self._kernels: dict[Computation, AttentionKernels] = {}

    def of(self, computation: Computation | None) -> AttentionKernels:
        """Returns the kernels of a computation."""
        if computation is None or not self.has_kernels:
            return NO_KERNELS
        if computation not in self._kernels:
            self._kernels[computation] = attention_kernels(computation)
        return self._kernels[computation]

    def forget(self) -> None:
        """Finds all kernels anew when they are next asked for."""
        self._kernels.clear()


class OutsideOfAttention(KnownAttention):
    """Says that all values lie in memory but those inside of attention kernels, as `live_memory` asks."""

    def inside(self, computation: Computation) -> frozenset[Instruction]:
        """Returns the values inside of the kernels of a computation."""
        return self.of(computation).inside

    def is_stored(self, value: Instruction, /) -> bool:
        return value not in self.of(value.parent).inside

    def together(self, value: Instruction, /) -> Collection[Instruction]:
        return (value,)

    @staticmethod
    def on(machine: Machine) -> OutsideOfAttention | None:
        """Returns the answers for a program on this machine; None where attention is no kernel."""
        return OutsideOfAttention(machine) if machine.attention else None


def attention_kernels(computation: Computation) -> AttentionKernels:
    """Finds the attention of a computation."""
    inside: set[Instruction] = set()
    products: dict[Instruction, float] = {}
    for seed in computation:
        if seed not in inside and _begins(seed):
            kernel = _Kernel(seed)
            if kernel.is_closed() and kernel.ends and kernel.has_softmax():
                share = _CAUSAL if any(map(_is_causal, kernel.values)) else 1.0
                inside |= kernel.values
                products |= dict.fromkeys((*kernel.begins, *kernel.ends), share)
    return AttentionKernels(frozenset(inside), products)


def _begins(value: Instruction) -> bool:
    """Whether a value may be the scores of heads: each operand has the dimension of heads."""
    product = product_of(value)
    if product is None or not product.lhs_batch_dims or not value.shape.is_array:
        return False
    large = value.shape.num_elements > sum(o.shape.num_elements for o in value.operands)
    return large and sizes_of(value).depth <= _WIDEST


class _Kernel:
    """The values of the size of scores around a product, the products that begin them, and those that end them."""

    def __init__(self, seed: Instruction) -> None:
        self.size = seed.shape.num_elements
        self.values = {seed}
        self.begins = {seed: None}
        self.ends: dict[Instruction, None] = {}

    def is_closed(self) -> bool:
        """Follows all uses. Returns whether only products, and ops of a kernel, read a value of this size."""
        pending = list(self.values)
        while pending:
            value = pending.pop()
            if value.parent is None or value.parent.root is value:
                return False
            for user in value.users:
                if is_contraction(user):
                    self.ends[user] = None
                elif not _continues(user):
                    return False
                else:
                    self._add(user, pending)
            if value not in self.begins:
                for operand in value.operands:
                    if _begins(operand):
                        self.begins[operand] = None
                    if operand in self.begins or _continues(operand):
                        self._add(operand, pending)
        return True

    def has_softmax(self) -> bool:
        """Whether an exponential is computed from the scores."""
        pending = list(self.begins)
        reached = set(pending)
        for value in pending:
            if function_of(value.op, value.shape.element.kind) is np.exp:
                return True
            new = self.values.intersection(value.users) - reached
            reached |= new
            pending += new
        return False

    def _add(self, value: Instruction, pending: list[Instruction]) -> None:
        if value not in self.values and value.shape.num_elements >= self.size:
            self.values.add(value)
            pending.append(value)


def _continues(value: Instruction) -> bool:
    """Whether a kernel computes a value from its operands: an op on elements, a view, a reduction, a copy."""
    return value.shape.is_array and bool(value.operands) and (value.op.is_fusible or memory(value.op).is_view)


def _is_causal(value: Instruction) -> bool:
    """Whether a value is chosen by a mask that compares two counters."""
    if value.op.role is Role.FUSION or len(value.operands) != 3:
        return False
    made = _made(value.operands[0])
    return any(len(v.operands) == 2 and _compares(v) and all(map(_counts, v.operands)) for v in made)


def _compares(value: Instruction) -> bool:
    return algebra(value) is Algebra.ORDER and value.shape.element is PRED


def _counts(value: Instruction) -> bool:
    """Whether a value is made of counters and constants, with a counter among them."""
    return any(algebra(v) is Algebra.MADE and not v.operands for v in _made(value))


def _made(value: Instruction) -> list[Instruction]:
    """Returns the values of which a value is made, itself first; none if a parameter is among them, or too many."""
    found = [value]
    for one in found:
        found += [o for o in one.operands if o not in found]
        if one.op.role is Role.PARAMETER or len(found) > _DEEP:
            return []
    return found
