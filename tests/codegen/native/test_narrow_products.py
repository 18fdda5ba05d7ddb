"""Products that read an operand in its narrow type: integers by pairs, floats as if they were converted before."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen.native.compile_llvm import Loaded, host, is_available, object_code
from hloom.codegen.native.native_steps import widened, widened_bytes
from hloom.codegen.native.products.arithmetic import Arithmetic
from hloom.codegen.native.products.blas import blas
from hloom.codegen.native.products.narrow import is_widened
from hloom.codegen.native.products.plan import MOST_ROWS, narrow_plan, plan
from hloom.codegen.native.products.product import product_plan, step_of
from hloom.codegen.native.products.stages import Method, Multiply, NarrowOperand, ProductPlan
from hloom.codegen.native.products.terms import Term
from hloom.codegen.native.products.text import entry, products_text
from hloom.codegen.native.products.tiles import tile_of
from hloom.codegen.native.step import StridedLayout
from hloom.ir.types.element_type import ELEMENT_TYPES, F32, S32, from_numpy
from hloom.runtime.native.kernels import NativeKernels
from support.loop_kernels import needs_llvm

Array = np.ndarray[Any, Any]
pytestmark = [needs_llvm, pytest.mark.skipif(blas() is None, reason="needs a BLAS library")]
FLOATS = ("bf16", "f16", "f8e5m2", "f8e4m3fn")
FEATURES = host()[1] if is_available() else ""
SIZES = [(1, 4, 16), (7, 1023, 130), (6, 1024, 64), (8, 1025, 70), (50, 5000, 33), (3, 1, 5), (13, 2, 200), (2, 64, 1)]


def numbers(name: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Returns integers of all sizes, of which half are extreme, or floats of any codes but NaN and infinities."""
    dtype, rng = np.dtype(ELEMENT_TYPES[name].numpy), np.random.default_rng(seed)
    if dtype.kind in "iu":
        signed = dtype.kind == "i"
        bits = 8 * dtype.itemsize
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        x = rng.integers(least, most + 1, shape)
        where = rng.random(shape)
        return np.where(where < 0.3, least, np.where(where < 0.5, most, x)).astype(dtype)
    codes = rng.integers(0, 1 << 8 * dtype.itemsize, shape).astype(f"u{dtype.itemsize}").view(dtype)
    return np.where(np.isfinite(codes.astype(np.float32)), codes, rng.standard_normal(shape).astype(dtype))


def dot(types: tuple[str, str, str], m: int, k: int, n: int, turned: tuple[bool, bool] = (False, False)) -> str:
    left, right = ((b, a) if t else (a, b) for t, (a, b) in zip(turned, ((m, k), (k, n)), strict=True))
    dims = f"lhs_contracting_dims={{{int(not turned[0])}}}, rhs_contracting_dims={{{int(turned[1])}}}"
    return f"""HloModule m
ENTRY e {{
  x = {types[0]}[{left[0]},{left[1]}] parameter(0)
  y = {types[1]}[{right[0]},{right[1]}] parameter(1)
  ROOT z = {types[2]}[{m},{n}] dot(x, y), {dims}
}}"""


def exact(x: Array, y: Array, dtype: Any) -> Array:
    """Returns a product of integers modulo the range of their type."""
    return np.asarray(np.matmul(x.astype(np.int64), y.astype(np.int64))).astype(dtype)


@pytest.mark.parametrize("types", [
    ("s8", "s8", "s32"), ("u8", "u8", "s32"), ("u8", "s8", "s32"), ("s8", "u8", "u32"), ("s16", "s8", "s32"),
    ("s16", "s16", "s32"), ("u16", "s8", "s32"), ("s32", "s8", "s32"), ("s32", "u32", "s32"), ("s8", "s8", "s8"),
    ("s8", "s8", "s64"),
])  # fmt: skip
def test_integers_are_exact(types: tuple[str, str, str]) -> None:
    for m, k, n in SIZES:
        for turned in ((False, False), (False, True), (True, False), (True, True)):
            x = numbers(types[0], (k, m) if turned[0] else (m, k))
            y = numbers(types[1], (n, k) if turned[1] else (k, n))
            module = hloom.parse(dot(types, m, k, n, turned))
            (z,) = hloom.evaluate(module, [x, y], kernels=NativeKernels())
            want = exact(x.T if turned[0] else x, y.T if turned[1] else y, z.dtype)
            np.testing.assert_array_equal(z, want, f"{m} {k} {n} {turned}")


def test_sums_of_integers_wrap_around() -> None:
    k = 2 * (1 << 17) + 2  # of 2^14 each, together 2^32 and more
    x, y = np.full((2, k), -128, np.int8), np.full((k, 3), -128, np.int8)
    (z,) = hloom.evaluate(hloom.parse(dot(("s8", "s8", "s32"), 2, k, 3)), [x, y], kernels=NativeKernels())
    np.testing.assert_array_equal(z, np.full((2, 3), 2 << 14))
    x, y = np.full((2, 4), -(1 << 15), np.int16), np.full((4, 3), -(1 << 15), np.int16)  # the sum of a pair is 2^31
    (z,) = hloom.evaluate(hloom.parse(dot(("s16", "s16", "s32"), 2, 4, 3)), [x, y], kernels=NativeKernels())
    np.testing.assert_array_equal(z, np.zeros((2, 3)))


def test_batches_vectors_and_several_inner_indices() -> None:
    text = """HloModule m
ENTRY e {
  x = s8[3,5,4,6] parameter(0)
  y = s8[3,4,6,70] parameter(1)
  w = u8[40,64] parameter(2)
  v = s8[64] parameter(3)
  z = s32[3,5,70] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},
      lhs_contracting_dims={2,3}, rhs_contracting_dims={1,2}
  r = s32[40] dot(w, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[3,5,70], s32[40]) tuple(z, r)
}"""
    x, y, w, v = (numbers(*a) for a in (("s8", (3, 5, 4, 6)), ("s8", (3, 4, 6, 70)), ("u8", (40, 64)), ("s8", (64,))))
    z, r = hloom.evaluate(hloom.parse(text), [x, y, w, v], kernels=NativeKernels())
    np.testing.assert_array_equal(z, exact(x.reshape(3, 5, 24), y.reshape(3, 24, 70), np.int32))
    np.testing.assert_array_equal(r, exact(w, v, np.int32))


def run(found: ProductPlan, x: Array, y: Array, out: Any, features: str = "") -> Array:
    """Runs a plan of x and y, on a processor with these features; scratch and the result hold NaN before."""
    shape = x.shape[0], y.shape[1]
    z = np.full(math.prod(shape), -1, f"i{np.dtype(out).itemsize}").view(out).reshape(shape)
    step = step_of(found, from_numpy(z.dtype))
    scratch = [np.full(n, 0xFF, np.uint8) for n in step.scratch]
    words = (*(a.ctypes.data for a in (x, y, z, *scratch)), *step.words)
    block, function = (ctypes.c_int64 * len(words))(*words), step.function
    if features:
        library, narrow = blas(), found.narrow
        assert library is not None
        assert narrow is not None
        text = products_text(narrow.arithmetic, library.integer, tile_of(features), narrow.element)
        code = Loaded(object_code(text, host()[0], features), entry(3 + len(scratch)))
        function = code.address
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(ctypes.addressof(block))
    return z


def terms(x: Array, y: Array) -> tuple[Term, ...]:
    (x0, x1), (y0, y1) = ([s // a.itemsize for s in a.strides] for a in (x, y))
    (m, k), n = x.shape, y.shape[1]
    return Term(m, x0, 0, n), Term(n, 0, y1, 1), Term(k, x1, y0, 0)


def arranged(y: Array, way: str) -> Array:
    """Returns a matrix with rows or columns of neighbours, or with neither."""
    if way == "rows":
        return np.ascontiguousarray(y)
    return np.asfortranarray(y) if way == "columns" else np.asarray(np.repeat(y, 2, 1)[:, ::2])


@pytest.mark.parametrize("way", ["rows", "columns", "single"])
@pytest.mark.parametrize("name", FLOATS)
def test_every_float_is_widened(name: str, way: str) -> None:
    """The codes stand in the columns of a matrix that a unit vector picks them from, NaN and infinities in a row."""
    element = ELEMENT_TYPES[name]
    bits, dtype = 8 * element.byte_size, np.dtype(element.numpy)
    every = np.arange(1 << bits, dtype=f"u{element.byte_size}").view(dtype)
    finite = every[np.isfinite(every.astype(np.float32))]
    for x, y in (
        (np.eye(16, dtype=np.float32), np.resize(finite, 16 * (len(finite) // 16 + 1)).reshape(16, -1)),
        (np.ones((2, 1), np.float32), every.reshape(1, -1)),
    ):
        y = arranged(y, way)
        found = narrow_plan(terms(x, y), NarrowOperand(1, element, Arithmetic.F32))
        assert found is not None
        z = run(found, x, y, np.float32)
        wide = y.astype(np.float32)
        np.testing.assert_array_equal(z, x @ wide if len(x) == 16 else np.repeat(wide, 2, 0))


@pytest.mark.parametrize("way", ["rows", "columns", "single"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_have_the_bits_of_a_conversion_before(name: str, way: str) -> None:
    element = ELEMENT_TYPES[name]
    for m, k, n, seed in ((2, 16, 16, 0), (6, 511, 100, 1), (17, 1100, 33, 2), (MOST_ROWS, 40, 130, 3)):
        y = arranged(numbers(name, (k, n), seed), way)
        wide = y.astype(np.float32)
        x = (np.random.default_rng(seed).standard_normal((m, k)) * 2.0**-20).astype(np.float32)
        x[0, :2] = 2.0**-149, -(2.0**-130)  # subnormal, as sums are of them
        narrow = narrow_plan(terms(x, y), NarrowOperand(1, element, Arithmetic.F32))
        old = plan(terms(x, wide), by_blas=False)
        assert narrow is not None
        assert [s.method for p in (narrow, old) for s in p.stages if isinstance(s, Multiply)] == [Method.TILES] * 2
        assert run(narrow, x, y, np.float32).tobytes() == run(old, x, wide, np.float32).tobytes()


@pytest.mark.parametrize("name", ["s8", "f8e4m3fn"])
def test_smaller_vectors_give_the_same_bits(name: str) -> None:
    if "+avx512f" not in FEATURES:
        pytest.skip("needs a processor with larger vectors")
    element, is_integer = ELEMENT_TYPES[name], ELEMENT_TYPES[name].is_integer
    narrow = NarrowOperand(1, element, Arithmetic.PAIRS if is_integer else Arithmetic.F32)
    for way in ("rows", "columns", "single"):
        x, y = numbers("s16" if is_integer else "bf16", (9, 1026)), arranged(numbers(name, (1026, 75)), way)
        x = x if is_integer else np.clip(x.astype(np.float32), -1e9, 1e9)
        found, out = narrow_plan(terms(x, y), narrow), np.int32 if is_integer else np.float32
        assert found is not None
        assert run(found, x, y, out).tobytes() == run(found, x, y, out, FEATURES + ",-avx512f").tobytes()


@pytest.mark.skipif(sys.platform != "linux", reason="protects memory as Linux does")
def test_nothing_behind_an_operand_is_read() -> None:
    """The page after the operand may not be read."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    memory = np.frombuffer(pages, np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    for name, k, n in (("s8", 6, 5), ("s8", 34, 33), ("u8", 36, 17), ("bf16", 5, 17), ("f8e5m2", 33, 7)):
        is_integer, element = name in ("s8", "u8"), ELEMENT_TYPES[name]
        narrow = NarrowOperand(1, element, Arithmetic.PAIRS if is_integer else Arithmetic.F32)
        out, x = (np.int32 if is_integer else np.float32), np.ones((3, k), np.int16 if is_integer else np.float32)
        for order in ("C", "F"):
            given = np.array(numbers(name, (k, n)), order=order)
            place = memory[mmap.PAGESIZE - given.nbytes : mmap.PAGESIZE].view(given.dtype)
            y = place.reshape(k, n) if order == "C" else place.reshape(n, k).T
            y[...] = given
            found = narrow_plan(terms(x, y), narrow)
            assert found is not None
            assert run(found, x, y, out).tobytes() == run(found, x, given, out).tobytes()


def test_elements_behind_a_row_do_not_count() -> None:
    for name, k, n in (("s8", 6, 5), ("bf16", 5, 17), ("s8", 34, 3)):
        is_integer = name == "s8"
        narrow = NarrowOperand(1, ELEMENT_TYPES[name], Arithmetic.PAIRS if is_integer else Arithmetic.F32)
        x, whole = np.ones((3, k), np.int16 if is_integer else np.float32), numbers(name, (k + 2, n + 40))
        for y in (whole[:k, :n], np.asfortranarray(whole)[:k, :n]):
            found, alone = (narrow_plan(terms(x, b), narrow) for b in (y, y.copy()))
            assert found is not None
            assert alone is not None
            out = np.int32 if is_integer else np.float32
            assert run(found, x, y, out).tobytes() == run(alone, x, y.copy(), out).tobytes()


def test_which_operands_stay_narrow() -> None:
    cases = [
        (("s8", "s8", "s32"), 1024, 1024, 64, ["s16", "s8"], Arithmetic.PAIRS),
        (("u8", "s8", "s32"), 4, 1023, 64, ["s32", "s8"], Arithmetic.S32),  # no pairs
        (("u16", "s8", "s32"), 4, 1024, 64, ["s32", "s8"], Arithmetic.S32),  # s16 has no such numbers
        (("s8", "s8", "s32"), 64, 64, 1, ["s8", "s16"], Arithmetic.PAIRS),  # the transposed product
        (("bf16", "bf16", "bf16"), MOST_ROWS, 64, 64, ["f32", "bf16"], Arithmetic.F32),
        (("bf16", "bf16", "bf16"), MOST_ROWS + 1, 64, 64, ["f32", "f32"], None),  # BLAS may have several threads
        (("f32", "bf16", "f32"), 3, 64, 64, ["f32", "bf16"], Arithmetic.F32),
        (("f8e4m3fnuz", "f8e4m3fnuz", "f32"), 3, 64, 64, ["f32", "f32"], None),
        (("f32", "f32", "f32"), 3, 64, 64, ["f32", "f32"], None),
    ]
    if "+neon" in FEATURES:
        pytest.skip("has no instruction for pairs")
    for types, m, k, n, read, arithmetic in cases:
        product = hloom.parse(dot(types, m, k, n)).entry.root
        wide = widened(product.op, product.call)
        assert wide is not None
        assert [operand.element.name for operand in wide.operands] == read, types
        layouts = [StridedLayout.dense(shape.dims) for shape in (*wide.operands, wide.shape)]
        found = product_plan(product.op, wide, layouts[:2], layouts[2])
        assert found is not None
        assert (None if found.narrow is None else found.narrow.arithmetic) is arithmetic


def test_a_narrow_operand_has_no_temporary() -> None:
    product = hloom.parse(dot(("bf16", "bf16", "bf16"), 8, 64, 96)).entry.root
    assert widened_bytes(product.op, product.call) == [4 * 8 * 64, 4 * 8 * 96]
    product = hloom.parse(dot(("s8", "s8", "s32"), 8, 64, 96)).entry.root
    assert widened_bytes(product.op, product.call) == [2 * 8 * 64]


def test_halves_need_an_instruction() -> None:
    half, integer = ELEMENT_TYPES["f16"], ELEMENT_TYPES["s4"]
    assert is_widened(half, F32, "+fma,+f16c")
    assert not is_widened(half, F32, "+fma,+f16c,-f16c")
    assert is_widened(ELEMENT_TYPES["bf16"], F32, "+fma")
    assert not is_widened(integer, S32, "+fma")
