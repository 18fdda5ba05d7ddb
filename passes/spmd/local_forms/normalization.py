"""Local forms of batch normalisation with a divided batch: statistics are sums over the devices.

Training computes the mean, then the variance around it, with an all-reduce of one vector each, and normalises like
inference. The gradient needs two sums, which one all-reduce computes. Small floats are computed in f32, as the ops do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....ir.factors.sharding_rule import FactorKind, Monoid
from ....ir.graph.attributes import NONE, SliceDim
from ....ir.graph.instruction import Instruction
from ....ir.ops.normalization import BatchNormAttributes
from ....ir.ops.reduce import ReduceAttributes
from ....ir.ops.shaping import BroadcastAttributes, ConcatenateAttributes
from ....ir.ops.slicing import SliceAttributes
from ....ir.types.element_type import F32, ElementType
from ....ir.types.shape import array
from ...op_sharding.assignment import Assignment, LocalForm, OpSharding
from ...op_sharding.forms import Forms
from ..emit.emitter import LocalValue
from ..emit.local_op import LocalOp


def _exchanged(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time to sum two vectors with one element per feature over the devices."""
    digits = tuple(
        d for f, part in assignment.items() for d in part if op.rule.factors[f].kind is FactorKind.REDUCTION
    )
    if not digits:
        return 0.0
    vector, shape = op.tiling(1, assignment), op.shapes[1].with_element(_wide(op.shapes[1].element))
    return 2 * op.plan(vector.partial(digits, op.order), vector, shape).cost


def _wide(element: ElementType) -> ElementType:
    return element if element.bits >= 32 else F32


def training(local: LocalOp) -> Instruction:
    """Runs inference with the mean and the variance of all devices' activations."""
    if not local.reduced_factors():
        return local.emit()
    n = _Normalisation(local)
    x, scale, offset = n.operands
    (total,) = n.sums([x])
    mean = n.mean(total)
    centred = n.subtract(x, n.along(mean))
    (squares,) = n.sums([n.multiply(centred, centred)])
    variance = n.mean(squares)
    result = local.emitter.add("batch-norm-inference", (x, scale, offset, mean, variance), n.attributes, x.shape)
    return n.results(result, mean, variance)


def gradient(local: LocalOp) -> Instruction:
    """Evaluates the formulas of the op (see `ir/ops/normalization`) with sums over all devices."""
    if not local.reduced_factors():
        return local.emit()
    n = _Normalisation(local)
    x, scale, mean, variance, upstream = n.operands
    centred = n.subtract(x, n.along(mean))
    total, product = n.sums([upstream, n.multiply(upstream, centred)])
    inverse = n.inverse_deviation(variance)
    slope = n.multiply(n.mean(product), n.multiply(inverse, inverse))
    inner = n.subtract(n.subtract(upstream, n.along(n.mean(total))), n.multiply(centred, n.along(slope)))
    of_x = n.multiply(n.along(n.multiply(scale, inverse)), inner)
    return n.results(of_x, n.multiply(product, inverse), total)


class _Normalisation:
    """Arithmetic on a device's part of the activations [.., feature, ..] and on vectors [feature]."""

    def __init__(self, local: LocalOp) -> None:
        self.local, self.emitter = local, local.emitter
        self.attributes = local.instruction.attributes_as(BatchNormAttributes)
        x = local.operands[0]
        self.element = _wide(x.shape.element)
        self.operands = [self._converted(v.instruction, self.element) for v in local.operands]
        self._batch = tuple(d for d in range(x.shape.rank) if d != self.attributes.feature_index)
        self._count = math.prod(x.shape.dims[d] for d in self._batch)
        self._inside = local.emitter.inside(x.shape, x.tiling, self._batch)

    def subtract(self, left: Instruction, right: Instruction) -> Instruction:
        return self.emitter.add("subtract", (left, right))

    def multiply(self, left: Instruction, right: Instruction) -> Instruction:
        return self.emitter.add("multiply", (left, right))

    def along(self, vector: Instruction) -> Instruction:
        """Broadcasts a vector along the activations."""
        shape = self.operands[0].shape
        return self.emitter.add("broadcast", (vector,), BroadcastAttributes((self.attributes.feature_index,)), shape)

    def mean(self, total: Instruction) -> Instruction:
        return self.emitter.add("divide", (total, self._vector_of(self._count, total)))

    def inverse_deviation(self, variance: Instruction) -> Instruction:
        epsilon = self._vector_of(float(np.float32(self.attributes.epsilon)), variance)
        return self.emitter.add("rsqrt", (self.emitter.add("add", (variance, epsilon)),))

    def sums(self, values: Sequence[Instruction]) -> list[Instruction]:
        """Returns the sums of activations over the whole batch, per feature, in one reduction over the devices."""
        rows = [self._own_sum(value) for value in values]
        stack = rows[0] if len(rows) == 1 else self.emitter.add("concatenate", rows, ConcatenateAttributes((0,)))
        x, feature = self.local.operands[0], self.attributes.feature_index
        digits = tuple(d for f in self.local.reduced_factors() for d in self.local.assignment[f])
        shape = array(self.element, (len(rows), x.shape.dims[feature]))
        target = replace(x.tiling, dims=((), x.tiling.dims[feature])).canonical()
        held = LocalValue(stack, shape, target.partial(digits, self.emitter.order), Monoid.ADD)
        why = f"statistics of {self.local.why}"
        whole = self.local.resharder.reshard(held, target, why).instruction
        size = whole.shape.dims[1]
        limits = [SliceAttributes((SliceDim(n, n + 1), SliceDim(0, size))) for n in range(len(rows))]
        parts = [whole] if len(rows) == 1 else [self.emitter.add("slice", (whole,), limit) for limit in limits]
        return [self.emitter.reshape(part, (size,)) for part in parts]

    def results(self, *values: Instruction) -> Instruction:
        """Returns the tuple of results, in the type of the op."""
        element = self.local.operands[0].shape.element
        converted = [self._converted(value, element) for value in values]
        return self.emitter.add("tuple", converted, name=self.local.instruction.name)

    def _own_sum(self, value: Instruction) -> Instruction:
        """Returns the sum over this device's part of the batch, as [1, feature]."""
        emitter, zero = self.emitter, self.emitter.constant(0, self.element)
        if self._inside is not None:
            value = emitter.add("select", (self._inside, value, emitter.splat(zero, value.shape.dims)))
        add = self.local.resharder.channels.reducer(Monoid.ADD, value.shape)
        total = emitter.add("reduce", (value, zero), ReduceAttributes(self._batch, add))
        return emitter.reshape(total, (1, *total.shape.dims))

    def _vector_of(self, number: float, like: Instruction) -> Instruction:
        return self.emitter.splat(self.emitter.constant(number, self.element), like.shape.dims)

    def _converted(self, value: Instruction, element: ElementType) -> Instruction:
        if value.shape.element is element:
            return value
        return self.emitter.add("convert", (value,), NONE, value.shape.with_element(element))


FORMS: Forms = {
    "batch-norm-training": LocalForm(training, _exchanged),
    "batch-norm-grad": LocalForm(gradient, _exchanged),
}
