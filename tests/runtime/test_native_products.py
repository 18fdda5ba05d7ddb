"""Dots and convolutions by native products against numpy's kernels."""

from __future__ import annotations

import random
from typing import Any

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom.codegen.native.products import product
from hloom.codegen.native.products.product import is_provided
from hloom.frontends import parse
from hloom.ir.graph.attributes import DimLabels, Window, WindowDim
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import Compile, ShapeError
from hloom.ir.ops.convolution import ConvolutionAttributes
from hloom.ir.ops.dot import DotAttributes
from hloom.ir.types.element_type import ELEMENT_TYPES, ElementType, Kind, from_numpy
from hloom.ir.types.shape import array
from ops import typed_programs
from ops.oracle import random_inputs
from support.loop_kernels import needs_llvm
from support.op_samples import all_samples
from support.recorded_kernels import RecordedKernels, by_machine_code

Array = np.ndarray[Any, Any]
pytestmark = [needs_llvm, pytest.mark.skipif(not is_provided(), reason="needs a BLAS library")]
TYPES = [ELEMENT_TYPES[name] for name in ("f32", "f32", "f64", "bf16", "f16", "s8", "u8", "s16", "s32", "u32", "s64")]


def no_calls(callee: Any) -> Any:
    raise AssertionError("a product calls nothing")


COMPILE: Compile = no_calls


def near(have: Array, want: Array, sizes: Array | None = None) -> bool:
    """Whether a result has the type and shape of another, and its numbers: integers to the bit, floats within the
    rounding of sums whose terms add up to `sizes`, by default ten times the greatest result, and of the result itself.
    """
    if (have.dtype, have.shape) != (want.dtype, want.shape):
        return False
    if not from_numpy(want.dtype).is_float:
        return have.tobytes() == want.tobytes()
    own = float(ml_dtypes.finfo(want.dtype).eps)  # pyright: ignore
    summed = min(own, float(np.finfo(np.float32).eps))
    x, y = have.astype(np.float64), want.astype(np.float64)
    terms = 10 * np.max(abs(y), initial=1, where=np.isfinite(y)) if sizes is None else sizes.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = abs(x - y) <= own * abs(y) * (own > summed) + 30 * summed * terms
    return bool(np.all((x == y) | (np.isnan(x) & np.isnan(y)) | close))


@pytest.mark.parametrize("opcode", ["dot", "convolution"])
def test_samples_agree_with_numpy(opcode: str) -> None:
    modules = [parse(text) for text in all_samples()[opcode]]
    modules += [p.module for programs in typed_programs.accepted(opcode).values() for p in programs]
    native: set[str] = set()
    for module in modules:
        inputs = random_inputs([p.shape for p in module.entry.parameters], 0)
        kernels = RecordedKernels()
        have = hloom.evaluate(module, inputs, kernels=kernels)
        native |= {str(i.shape.element) for i, taken in kernels.native.items() if taken and i.opcode == opcode}
        for x, y in zip(have, hloom.evaluate(module, inputs), strict=True):
            assert near(x, y), (str(module), x, y)
    assert {"f32", "f64", "bf16", "f16", "f8e5m2", "f8e4m3fn", "s8", "u8", "s16", "s32", "u32", "s64", "u64"} <= native


def instruction(opcode: str, attributes: Any, *dims: tuple[int, ...], element: ElementType) -> Instruction:
    """Returns an op of parameters. Raises ShapeError if these do not fit."""
    c = Computation("c")
    operands = [c.build("parameter", number=n, shape=array(element, size)) for n, size in enumerate(dims)]
    return c.add(opcode, operands, attributes)


def view(rng: random.Random, dims: tuple[int, ...], element: ElementType) -> Array:
    """Returns numbers whose dimensions lie in memory in any order; some are broadcast or reversed."""
    order = rng.sample(range(len(dims)), len(dims))
    x = np.random.default_rng(rng.randrange(99)).standard_normal([1 if rng.random() < 0.1 else dims[n] for n in order])
    x = x if element.is_float else abs(100 * x) * (rng.choice((-1, 1)) if element.kind is Kind.SIGNED else 1)
    x = np.broadcast_to(x.astype(element.numpy).transpose(np.argsort(order)), dims)
    return np.asarray(x[(..., *(slice(None, None, rng.choice((1, 1, 1, -1))) for _ in dims))])


def check(use: Instruction, rng: random.Random) -> bool:
    """Checks a product of random views against numpy's kernel. Returns whether it is native."""
    x, y = (view(rng, s.dims, s.element) for s in use.call.operands)
    found = by_machine_code(use, (x, y)), by_machine_code(use, (x, y))
    if found[0] is None or found[1] is None:
        return False
    reference = use.op.kernel(use.call, COMPILE)
    (have,), want, sizes = found[0], reference(x, y), reference(abs(x), abs(y))
    assert near(have, want, sizes), (use, x.strides, y.strides)
    assert have.tobytes() == found[1][0].tobytes()
    return True


def random_dot(rng: random.Random) -> Instruction:
    def sizes(most: int) -> list[int]:
        return [rng.choice((1, 2, 3, 5, rng.randint(0, 30))) for _ in range(rng.randint(0, most))]

    batch, inner, free = sizes(2), sizes(2), (sizes(2), sizes(2))
    places: list[list[int]] = []
    shapes: list[tuple[int, ...]] = []
    for own in free:
        dims = [*batch, *inner, *own]
        order = rng.sample(range(len(dims)), len(dims))
        places.append([order.index(n) for n in range(len(dims))])
        shapes.append(tuple(dims[n] for n in order))
    count, end = len(batch), len(batch) + len(inner)
    left, right = places
    (a, b), (c, d) = ((tuple(side[:count]), tuple(side[count:end])) for side in (left, right))
    attributes = DotAttributes(a, b, c, d)
    return instruction("dot", attributes, *shapes, element=rng.choice(TYPES))


def random_convolution(rng: random.Random) -> Instruction:
    """Returns a convolution with any labels, windows and groups. Raises ShapeError for some that do not fit."""
    rank, spatial = rng.randint(0, 3), "012"
    groups = rng.choice(("none", "none", "feature", "batch"))
    count, features, batch = rng.choice((1, 2, 3)), rng.randint(1, 6), rng.randint(1, 4)
    by_feature, by_batch = (count if groups == g else 1 for g in ("feature", "batch"))
    image = {"b": batch * by_batch, "f": features * by_feature}
    kernel = {"i": features, "o": rng.randint(1, 7) * by_feature * by_batch}
    window: list[WindowDim] = []
    for label in spatial[:rank]:
        image[label], kernel[label] = rng.randint(1, 9), rng.randint(1, 4)
        low, high = rng.choice(((0, 0), (1, 1), (rng.randint(-2, 3), rng.randint(-2, 3))))
        stride, left, right = (rng.choice((1, 1, 2, 3)) for _ in range(3))
        window.append(WindowDim(kernel[label], stride, low, high, left, right, rng.random() < 0.3))
    labels = ["".join(rng.sample(roles + spatial[:rank], rank + 2)) for roles in ("bf", "io", "bf")]
    attributes = ConvolutionAttributes(
        window=Window(tuple(window)), dim_labels=DimLabels(*labels), feature_group_count=by_feature,
        batch_group_count=by_batch,
    )  # fmt: skip
    shapes = (tuple(image[n] for n in labels[0]), tuple(kernel[n] for n in labels[1]))
    return instruction("convolution", attributes, *shapes, element=rng.choice(TYPES))


def count_native(make: Any, seeds: range) -> int:
    native = 0
    for seed in seeds:
        rng = random.Random(seed)
        try:
            use = make(rng)
        except ShapeError:
            continue
        native += check(use, rng)
    return native


@pytest.mark.parametrize("make", [random_dot, random_convolution])
def test_random_products_agree_with_numpy(make: Any) -> None:
    assert count_native(make, range(30)) > 15


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_dot, random_convolution])
def test_many_random_products_agree_with_numpy(make: Any) -> None:
    count_native(make, range(30, 5000))


def test_infinities_and_nan_are_those_of_the_operands() -> None:
    use = instruction("dot", DotAttributes((), (1,), (), (0,)), (40, 30), (30, 20), element=TYPES[0])
    x, y = np.ones((40, 30), np.float32), np.ones((30, 20), np.float32)
    x[3, 4], y[5, 6], x[7, 5] = np.inf, np.nan, -np.inf
    found = by_machine_code(use, (x, y))
    assert found is not None
    np.testing.assert_array_equal(found[0], x @ y)


def test_operands_between_elements_are_copied() -> None:
    module = parse("""HloModule m
ENTRY e { x = f32[4,3] parameter(0)  y = f32[3,5] parameter(1)
  ROOT d = f32[4,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }""")
    kernels = RecordedKernels()
    records = np.zeros(12, np.dtype([("tag", np.uint8), ("x", np.float32)], align=False))
    records["x"] = np.arange(12)
    x, y = records["x"].reshape(4, 3), np.ones((3, 5), np.float32)
    (found,) = hloom.evaluate(module, [x, y], kernels=kernels)
    assert kernels.native[module.entry.root]
    np.testing.assert_array_equal(found, np.ascontiguousarray(x) @ y)


def test_without_a_library_numpy_computes_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "blas", lambda: None)
    use = instruction("dot", DotAttributes((), (1,), (), (0,)), (4, 3), (3, 5), element=TYPES[0])
    assert not is_provided()
    assert by_machine_code(use, (np.ones((4, 3), np.float32), np.ones((3, 5), np.float32))) is None
