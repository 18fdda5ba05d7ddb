"""Batch normalization: training, inference and gradient. Statistics are over all dimensions but the feature's.

With x the activations, m and v their mean and variance per feature: y = (x - m) / sqrt(v + epsilon) * scale + offset
("Batch normalization", Ioffe and Szegedy, 2015). Small floats are computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes
from ..graph.interfaces import FloatTypes, Ranges
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.value_range import NOT_NEGATIVE, Demand, Fact, Visitor
from ..types.element_type import Kind
from ..types.shape import Shape, tuple_shape
from .checks import require_kind, require_same_element, require_static, text
from .computations import accumulator
from .numerics import numpy_type


@dataclass(frozen=True, slots=True)
class BatchNormAttributes(Attributes):
    """`epsilon` is rounded to f32, whatever the element type."""

    epsilon: float
    feature_index: int


class _BatchNorm(Op[BatchNormAttributes], FloatTypes, Ranges):
    """Base of batch normalizations: activations, then `per_feature` vectors, then `activations` more of their shape.

    `statistics` means that the op sums over the batch; `variance` is the number of the variance operand.
    """

    attributes = BatchNormAttributes
    typed_by = 0
    algebra = Algebra.FORMULA
    per_feature: ClassVar[int] = 2
    activations: ClassVar[int] = 0
    statistics: ClassVar[bool] = True
    variance: ClassVar[int | None] = None

    def infer_shape(self, operands: Sequence[Shape], attributes: BatchNormAttributes, declared: Shape | None) -> Shape:
        require_static(self.opcode, *operands)
        x, feature = operands[0], attributes.feature_index
        require_kind(self.opcode, x, (Kind.FLOAT,))
        if not 0 <= feature < x.rank:
            raise ShapeError(f"{self.opcode}: feature_index {feature} is out of range for {text(x)}")
        for number, operand in enumerate(operands):
            require_same_element(self.opcode, x, operand)
            wanted = (x.dims[feature],) if 1 <= number <= self.per_feature else x.dims
            if operand.dims != wanted:
                have, want = list(operand.dims), list(wanted)
                raise ShapeError(f"{self.opcode}: operand {number} must have dimensions {want}, it has {have}")
        vector = x.with_dims((x.dims[feature],))
        return tuple_shape((x, vector, vector)) if self.statistics else x

    def sharding_rule(self, call: OpCall[BatchNormAttributes]) -> ShardingRule:
        feature = call.attributes.feature_index
        others = FactorKind.REDUCTION if self.statistics else FactorKind.PASS
        b = RuleBuilder()
        dims = [
            b.factor(n, FactorKind.PASS if d == feature else others) for d, n in enumerate(call.operands[0].dims)
        ]
        vector = [dims[feature]]
        operands = [dims, *[vector] * self.per_feature, *[dims] * self.activations]
        return b.rule(operands, [dims, vector, vector] if self.statistics else [dims])

    def demands(
        self, call: OpCall[BatchNormAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        return [NOT_NEGATIVE if n == self.variance else None for n in range(len(operands))]

    def kernel(self, call: OpCall[BatchNormAttributes], compile: Compile) -> Kernel:
        x, feature = call.operands[0], call.attributes.feature_index
        compute, final = accumulator(x.element), numpy_type(x.element)
        along = tuple(n if d == feature else 1 for d, n in enumerate(x.dims))
        batch = Batch(
            tuple(d for d in range(x.rank) if d != feature),
            math.prod(n for d, n in enumerate(x.dims) if d != feature),
            compute.type(np.float32(call.attributes.epsilon)),
        )

        def run(*operands: Any) -> Any:
            wide = [o.astype(compute, copy=False) for o in operands]
            wide = [o.reshape(along) if 1 <= n <= self.per_feature else o for n, o in enumerate(wide)]
            results = [r.astype(final) for r in self.compute(batch, *wide)]
            if not self.statistics:
                return results[0]
            return (results[0], *(r.reshape(-1) for r in results[1:]))

        return run

    def compute(self, batch: Batch, *operands: Any) -> tuple[Any, ...]:
        """Computes the results. Vectors have a shape that broadcasts along the activations."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Batch:
    """The dimensions of the statistics, how many elements they have, and epsilon."""

    axes: tuple[int, ...]
    count: int
    epsilon: Any

    def sum(self, x: Any) -> Any:
        return np.sum(x, self.axes, keepdims=True)

    def mean(self, x: Any) -> Any:
        return self.sum(x) / x.dtype.type(self.count)


@register
class BatchNormTraining(_BatchNorm):
    """Activations, scale, offset -> normalized activations, mean, variance."""

    opcode = "batch-norm-training"
    arity = (3, 3)

    def compute(self, batch: Batch, *operands: Any) -> tuple[Any, ...]:
        x, scale, offset = operands
        mean = batch.mean(x)
        variance = batch.mean(np.square(x - mean))
        return (x - mean) / np.sqrt(variance + batch.epsilon) * scale + offset, mean, variance


@register
class BatchNormInference(_BatchNorm):
    """Activations, scale, offset, mean, variance -> normalized activations."""

    opcode = "batch-norm-inference"
    arity = (5, 5)
    per_feature = 4
    variance = 4
    statistics = False

    def compute(self, batch: Batch, *operands: Any) -> tuple[Any, ...]:
        x, scale, offset, mean, variance = operands
        return ((x - mean) / np.sqrt(variance + batch.epsilon) * scale + offset,)


@register
class BatchNormGrad(_BatchNorm):
    """Activations, scale, mean, variance, gradient of the output -> gradients of activations, scale and offset."""

    opcode = "batch-norm-grad"
    arity = (5, 5)
    per_feature = 3
    variance = 3
    activations = 1

    def compute(self, batch: Batch, *operands: Any) -> tuple[Any, ...]:
        x, scale, mean, variance, gradient = operands
        centred, inverse = x - mean, 1 / np.sqrt(variance + batch.epsilon)
        along = batch.mean(gradient * centred)
        of_x = scale * inverse * (gradient - batch.mean(gradient) - centred * along * inverse * inverse)
        return of_x, batch.sum(gradient * centred) * inverse, batch.sum(gradient)
