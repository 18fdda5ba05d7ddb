"""Random numbers: `rng-bit-generator` with an explicit state, and ops with a hidden state.

HLO does not define the numbers of `rng`. Hloom uses a fixed stream: the n-th `rng` that a device executes in a run (n
from 0) draws from numpy's generator Philox with key SEED and n in the highest word of its counter, floats of less than
64 bits in f32. Runs are reproducible, and devices that run the same program agree. No op here is divided among devices,
so the numbers do not depend on the mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import numpy as np

from ..graph.attributes import Attributes
from ..graph.interfaces import Draws, FloatTypes, Ranges, TextForm
from ..graph.op import Algebra, Compile, Kernel, NotEvaluable, Op, OpCall, RandomState, ShapeError, register
from ..graph.value_range import Demand, Fact, Visitor, full_range
from ..types.element_type import ELEMENT_TYPES, ElementType, Kind
from ..types.shape import Shape, array, tuple_shape
from .checks import require_array, require_declared, require_kind, require_same_element, require_static, text
from .computations import accumulator, rounded
from .numerics import numpy_type
from .random_bits import philox_bits, threefry_bits

SEED = 0x9E3779B97F4A7C15
U64 = ELEMENT_TYPES["u64"]


class Algorithm(Enum):
    DEFAULT = "rng_default"
    THREE_FRY = "rng_three_fry"
    PHILOX = "rng_philox"


@dataclass(frozen=True, slots=True)
class RngBitGeneratorAttributes(Attributes):
    algorithm: Algorithm


@register
class RngBitGenerator(Op[RngBitGeneratorAttributes], TextForm, Ranges):
    """State u64[2] (or u64[3] for Philox) -> the next state and random integers. The default is Philox.

    If the declared result is an array, it holds only the integers.
    """

    opcode = "rng-bit-generator"
    attributes = RngBitGeneratorAttributes

    def infer_shape(
        self, operands: Sequence[Shape], attributes: RngBitGeneratorAttributes, declared: Shape | None
    ) -> Shape:
        (state,) = operands
        sizes = (2,) if attributes.algorithm is Algorithm.THREE_FRY else (2, 3)
        if state.element is not U64 or state.rank != 1 or state.dims[0] not in sizes:
            wanted = " or ".join(f"u64[{n}]" for n in sizes)
            algorithm = attributes.algorithm.value
            raise ShapeError(f"rng-bit-generator: the state of {algorithm} must be {wanted}, it is {text(state)}")
        if declared is None or not (declared.is_array or len(declared.elements) == 2):
            raise ShapeError("rng-bit-generator: the result shape must be given as (state, numbers)")
        numbers = _numbers(declared)
        require_kind("rng-bit-generator", numbers, (Kind.SIGNED, Kind.UNSIGNED), "the numbers")
        require_static("rng-bit-generator", numbers)
        return numbers if declared.is_array else tuple_shape((state, numbers))

    def demands(
        self,
        call: OpCall[RngBitGeneratorAttributes],
        operands: Sequence[Fact],
        results: Sequence[Demand],
        visitor: Visitor,
    ) -> list[Demand]:
        return [full_range(U64)]

    def kernel(self, call: OpCall[RngBitGeneratorAttributes], compile: Compile) -> Kernel:
        numbers, has_state = _numbers(call.shape), call.shape.is_tuple
        if numbers.element.numpy is None:
            raise NotEvaluable(f"numpy has no type for {numbers.element}")
        bits = threefry_bits if call.attributes.algorithm is Algorithm.THREE_FRY else philox_bits

        def run(state: Any) -> Any:
            both = bits(state, numbers.element, numbers.dims)
            return both if has_state else both[1]

        return run


def _numbers(shape: Shape) -> Shape:
    return shape if shape.is_array else shape.elements[1]


class RngDistribution(Enum):
    UNIFORM = "rng_uniform"
    NORMAL = "rng_normal"


class _HiddenState(Op[Any], Draws, FloatTypes):
    """An op that draws from the hidden state. It is never removed, because later draws depend on it."""

    side_effect = True

    def reads_format(self, call: OpCall[Any]) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class RngAttributes(Attributes):
    distribution: RngDistribution


@register
class Rng(_HiddenState, TextForm):
    """Draws random numbers, given two scalars: their bounds (uniform), or mean and standard deviation (normal).

    In old programs the sizes of the result follow as a vector, which is ignored in favour of the result's shape.
    """

    opcode = "rng"
    algebra = Algebra.OPAQUE
    attributes = RngAttributes
    arity = (2, 3)

    def infer_shape(self, operands: Sequence[Shape], attributes: RngAttributes, declared: Shape | None) -> Shape:
        first, second, *sizes = operands
        kinds = (Kind.FLOAT,) if attributes.distribution is RngDistribution.NORMAL else tuple(_NUMBERS)
        for number, operand in enumerate((first, second)):
            require_kind("rng", operand, kinds, f"operand {number}")
            if operand.rank:
                raise ShapeError(f"rng: operand {number} must be a scalar, it is {text(operand)}")
        require_same_element("rng", first, second)
        result = require_declared("rng", declared)
        for vector in sizes:
            if not vector.element.is_integer or vector.dims != (result.rank,):
                raise ShapeError(f"rng: operand 2 must be the {result.rank} sizes of the result, it is {text(vector)}")
        return array(first.element, result.dims)

    def kernel(self, call: OpCall[RngAttributes], compile: Compile) -> Kernel:
        element, dims = call.shape.element, call.shape.dims
        numpy_type(element)
        draw = _uniform if call.attributes.distribution is RngDistribution.UNIFORM else _normal

        def run(state: RandomState, first: Any, second: Any, *sizes: Any) -> Any:
            generator = np.random.Generator(np.random.Philox(key=SEED, counter=state.draws << 192))
            state.draws += 1
            return np.asarray(draw(generator, first, second, dims, element))

        return run


def _uniform(generator: Any, low: Any, high: Any, dims: tuple[int, ...], element: ElementType) -> Any:
    """Draws numbers in [low, high); integers are all `low` where `high` is not above it."""
    if element.kind is Kind.PRED:
        return cast(Any, np.where(generator.integers(0, 2, dims) == 0, low, high))
    if element.is_integer:
        span = int(high) - int(low)
        if span <= 0:
            return np.full(dims, low)
        offsets = generator.integers(0, span, dims, np.uint64)
        wide = np.asarray(int(low) % 2**64, np.uint64) + offsets  # wraps to the bits of negative numbers
        return np.asarray(wide.view(np.int64) if element.kind is Kind.SIGNED else wide).astype(low.dtype)
    dtype = accumulator(element)
    wide, end = low.astype(dtype), high.astype(dtype)
    values: Any = rounded(wide + generator.random(dims, dtype) * (end - wide), element)
    # Numbers rounded up to `high` become the number just below it.
    return cast(Any, np.where(values.astype(dtype) < end, values, np.nextafter(high, low)))


def _normal(generator: Any, mean: Any, deviation: Any, dims: tuple[int, ...], element: ElementType
            ) -> Any:  # fmt: skip
    dtype = accumulator(element)
    values = generator.standard_normal(dims, dtype)
    return rounded(mean.astype(dtype) + values * deviation.astype(dtype), element)


_NUMBERS = (Kind.PRED, Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT)


@dataclass(frozen=True, slots=True)
class RngGetAndUpdateStateAttributes(Attributes):
    delta: int


@register
class RngGetAndUpdateState(_HiddenState, TextForm):
    """Returns the 128 bits of the device's hidden state, low half first, and advances the state by `delta`."""

    opcode = "rng-get-and-update-state"
    attributes = RngGetAndUpdateStateAttributes
    arity = (0, 0)

    def infer_shape(
        self, operands: Sequence[Shape], attributes: RngGetAndUpdateStateAttributes, declared: Shape | None
    ) -> Shape:
        result = require_declared("rng-get-and-update-state", declared)
        require_array("rng-get-and-update-state", result)
        if result.element is not U64 or result.dims != (2,):
            raise ShapeError(f"rng-get-and-update-state: the state is u64[2], not {text(result)}")
        return array(U64, (2,))

    def kernel(self, call: OpCall[RngGetAndUpdateStateAttributes], compile: Compile) -> Kernel:
        delta = call.attributes.delta

        def run(state: RandomState) -> Any:
            bits, state.bits = state.bits, (state.bits + delta) % 2**128
            return np.array([bits % 2**64, bits >> 64], np.uint64)

        return run
