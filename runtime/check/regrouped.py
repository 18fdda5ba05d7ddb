"""Adds up sums in other parts than one device does, as many devices do: the roundings of another order are real ones.

A partitioned program rounds the sums of its tiles before it adds them up, and a kernel rounds inside of a sum as it
likes. How far that takes a result does not follow from the size of the result: where terms cancel, sums on the way are
larger. So a check runs the unpartitioned program again, in which every op that adds up terms takes some of them at a
time, in boxes like tiles with other borders, and adds the results. It is the op's own kernel that rounds inside
of a part, and the result's own type that rounds between them. Sums that are exact stay exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...ir.factors.sharding_rule import FactorKind, Monoid, ValueFactors
from ...ir.graph.attributes import Dims
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Additive, Applies
from ...ir.graph.monoid import common_monoid
from ...ir.graph.op import Algebra, Compile, Kernel, OpCall
from ...ir.types.literal import Array
from ...ir.types.shape import Shape
from ..plan.kernels import NumpyKernels

_PARTS = 4  # at most, along one dimension
Mask = Array  # true where a term belongs to a part


@dataclass(frozen=True)
class SumOfTerms:
    """The terms that an op adds up. It is additive in the operands `terms`, of equal dimensions, together with those to
    which it adds the sums (`begins`). Terms at different places along `dims` may come into the same sum.
    """

    terms: tuple[int, ...]
    begins: tuple[int, ...]
    dims: tuple[int, ...]

    @staticmethod
    def of(instruction: Instruction) -> SumOfTerms | None:
        """Returns the terms of an instruction; None if it adds no floats, or in a fixed order."""
        call = instruction.call
        if not all(leaf.element.is_float or leaf.element.is_complex for leaf in call.shape.leaves()):
            return None
        found = _added(instruction, call)
        if found is None or not found[0] or any(not s.is_array or s.is_dynamic for s in call.operands):
            return None
        terms, begins = found
        rule = instruction.op.sharding_rule(call)
        dims = _summed_dims(call.operands[terms[0]], rule.operands[terms[0]], [f.kind for f in rule.factors])
        if not dims or any(call.operands[n].dims != call.operands[terms[0]].dims for n in terms):
            return None
        return SumOfTerms(terms, begins, dims)


def _added(instruction: Instruction, call: OpCall[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the operands that hold terms, and those to which an op adds them."""
    op = instruction.op
    match op.algebra_of(call):
        case Algebra.BILINEAR:
            return (0,), ()
        case Algebra.FOLD:
            applies, additive = op.interface(Applies), op.interface(Additive)
            if applies is None or common_monoid(getattr(call.attributes, applies.applied)) is not Monoid.ADD:
                return None
            started = frozenset[int]() if additive is None else additive.started(call)
            folded = [n for n, s in enumerate(call.operands) if n in applies.folded(call) and not s.element.is_integer]
            begins = tuple(n for n in folded if n in started or not call.operands[n].dims)
            return tuple(n for n in folded if n not in begins), begins
        case _:
            return None


def _summed_dims(shape: Shape, factors: ValueFactors, kinds: Sequence[FactorKind]) -> tuple[int, ...]:
    """Returns the dimensions of terms of which one result has several."""
    return tuple(
        d for d, (n, own) in enumerate(zip(shape.dims, factors, strict=True))
        if n > 1 and not all(kinds[f] is FactorKind.PASS for f in own)
    )  # fmt: skip


class Regrouped(NumpyKernels):
    """Computes all ops by numpy, and sums in parts that `seed` chooses. `count` is the number of such sums."""

    def __init__(self, seed: int) -> None:
        self.seed, self.count = seed, 0

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        whole, found = super().kernel(instruction, compile), SumOfTerms.of(instruction)
        if whole is None or found is None:
            return whole
        self.count += 1
        dims = instruction.operands[found.terms[0]].shape.dims
        masks = list(_parts(dims, found.dims, np.random.default_rng((self.seed, self.count))))
        leaves = list(instruction.shape.leaves())
        order: Literal["C", "F"] = "C" if self.seed % 2 else "F"  # numpy adds one by one across rows, halves along them

        def run(*operands: Any) -> Any:
            sums: list[Any] = []
            for mask in masks:
                given = [*operands]
                for n in found.terms:
                    given[n] = np.zeros(operands[n].shape, operands[n].dtype, order)
                    np.copyto(given[n], operands[n], where=mask)
                for n in found.begins if sums else ():
                    given[n] = np.zeros_like(operands[n])
                result = whole(*given)
                parts: list[Any] = list(result) if instruction.shape.is_tuple else [result]
                sums = [self.add(t.element, x, y) for t, x, y in zip(leaves, sums, parts)] if sums else parts
            return tuple(sums) if instruction.shape.is_tuple else sums[0]

        return run


def _parts(dims: Dims, cut: Sequence[int], random: np.random.Generator) -> Iterator[Mask]:
    """Yields masks of boxes that make up the whole, divided along one or two dimensions, and often like tiles."""
    even = bool(random.integers(2))
    chosen: list[int] = random.permutation(np.asarray(cut))[: int(random.integers(1, 3))].tolist()
    most = _PARTS if len(chosen) == 1 else _PARTS // 2
    ranges: list[list[tuple[int, int]]] = []
    for d in chosen:
        inner: list[int] = random.integers(1, dims[d], int(random.integers(1, most))).tolist()
        if even:
            inner = [-(-dims[d] // (len(inner) + 1)) * (n + 1) for n in range(len(inner))]
        ranges.append(list(itertools.pairwise(sorted({0, dims[d], *(n for n in inner if n < dims[d])}))))
    for box in itertools.product(*ranges):
        mask = np.ones([1] * len(dims), bool)
        for d, (start, end) in zip(chosen, box, strict=True):
            inside = np.zeros(dims[d], bool)
            inside[start:end] = True
            mask = mask & inside.reshape([-1 if n == d else 1 for n in range(len(dims))])
        yield mask
