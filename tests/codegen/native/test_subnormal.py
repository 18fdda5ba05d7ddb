"""Products of subnormal numbers: they are as exact as others, and change no control bits."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hloom.codegen.native.compile_llvm import Loaded, host, kept_code, object_code
from hloom.codegen.native.products.arithmetic import Arithmetic
from hloom.codegen.native.products.blas import blas
from hloom.codegen.native.products.plan import plan
from hloom.codegen.native.products.product import step_of
from hloom.codegen.native.products.terms import Term
from hloom.codegen.native.products.text import entry, products_text
from hloom.codegen.native.products.tiles import heights, tile_of
from hloom.ir.types.element_type import from_numpy
from support.loop_kernels import needs_llvm

from .test_products import multiplies, run_step

Array = np.ndarray[Any, Any]
pytestmark = [needs_llvm, pytest.mark.skipif(blas() is None, reason="needs a BLAS library")]
DTYPES = [np.float32, np.float64]
has_status = pytest.mark.skipif(not tile_of(host()[1]).has_status, reason="needs the flags of x86-64")


def multiplied(x: Array, y: Array, before: int = 0xFF, is_watched: bool = True) -> Array:
    """Returns a product of matrices by tiles, or by those for a processor without the register."""
    z = np.full((len(x), y.shape[1]), np.nan, x.dtype)
    (x0, x1), (y0, y1), (z0, z1) = ([s // a.itemsize for s in a.strides] for a in (x, y, z))
    found = plan((Term(len(x), x0, 0, z0), Term(len(y.T), 0, y1, z1), Term(len(y), x1, y0, 0)), by_blas=False)
    assert [s.method.value for s in multiplies(found)] == ["tiles"]
    step = step_of(found, from_numpy(x.dtype))
    if not is_watched:
        code = unwatched(Arithmetic.F32 if x.itemsize == 4 else Arithmetic.F64)
        step = replace(step, function=code.function(entry(3 + len(step.scratch))), owner=code)
    run_step(step, x, y, z, before)
    return z


@cache
def unwatched(arithmetic: Arithmetic) -> Loaded:
    library, tile = blas(), replace(tile_of(host()[1]), has_status=False)
    assert library is not None
    return Loaded(kept_code(products_text(arithmetic, library.integer, tile)), entry(3))


def spread(rng: np.random.Generator, shape: tuple[int, int], dtype: Any, share: float = 1.0) -> Array:
    """Returns numbers of both signs up to 2; this share is of all sizes down to the least."""
    limits = np.finfo(dtype)
    powers = rng.integers(limits.minexp - limits.nmant, 1, shape) * (rng.random(shape) < share)
    return np.ldexp(rng.uniform(-2, 2, shape), powers).astype(dtype)


def matrices(seed: int, dtype: Any, share: tuple[float, float]) -> tuple[Array, Array]:
    """Returns the operands of a product; lines lie in any way, so panels are copied in all ways."""
    rng = np.random.default_rng(seed)
    m, n, k = int(rng.integers(7, 60)), int(rng.integers(17, 140)), int(rng.choice((1, 2, 3, 40, 520, 1100)))
    x, y = spread(rng, (m, k), dtype, share[0]), spread(rng, (k, n), dtype, share[1])
    x = np.asfortranarray(x) if rng.random() < 0.4 else x
    return x, (y, np.asfortranarray(y), np.repeat(y, 2, 1)[:, ::2])[seed % 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiny_results_are_exact(dtype: Any) -> None:
    least, tiny = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny
    x, y = np.zeros((25, 40), dtype), np.ones((40, 70), dtype)
    x[:, 3] = [(-1) ** n * least * (1 + 3 * n) for n in range(25)]
    x[9, 3] = -tiny * dtype(0.75)
    x[10] = 0
    y[:, 1] = -0.0
    assert multiplied(x, y).tobytes() == (x[:, 3:4] * y[3] + dtype(0)).tobytes()
    assert multiplied(y.T.copy(), x.T.copy()).tobytes() == (x[:, 3:4] * y[3] + dtype(0)).T.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [(0.5, 0), (0, 0.5), (1, 1), (0.01, 0)])
def test_numbers_of_all_sizes(dtype: Any, share: tuple[float, float]) -> None:
    """Errors are those of rounding, and of one unit of the least number for each term."""
    for seed in range(12):
        x, y = matrices(seed, dtype, share)
        z, wide = multiplied(x, y), (x.astype(np.longdouble), y.astype(np.longdouble))
        error = abs(z - wide[0] @ wide[1])
        limits = np.finfo(dtype)
        allowed = 20 * np.longdouble(limits.eps) * (abs(wide[0]) @ abs(wide[1])) + len(y) * limits.smallest_subnormal
        assert np.all(error <= allowed), seed


@has_status
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "start"), [(50, 130, 1), (50, 130, 600), (10, 64, 1), (10, 64, 600)])
def test_scaling_shows_in_no_bit(dtype: Any, m: int, n: int, start: int) -> None:
    """Subnormal terms begin in either block of a sum, among others, which keep it normal."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((m, 700)).astype(dtype), rng.standard_normal((700, n)).astype(dtype)
    tiny = spread(rng, x.shape, dtype) * np.finfo(dtype).tiny
    x[:, start:] = np.where(rng.random(x.shape) < 0.7, tiny, x)[:, start:]
    x[:, 512] = 1
    for a, b in ((x, y), (y.T.copy(), x.T.copy())):
        assert multiplied(a, b).tobytes() == multiplied(a, b, is_watched=False).tobytes()


@has_status
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("large", ["operand", "other operand", "sum", "infinity", "NaN"])
@pytest.mark.parametrize("at", [40, 900])
def test_large_numbers_beside_subnormal_ones(dtype: Any, large: str, at: int) -> None:
    """What overflows only if it is scaled is computed without; infinities and NaN come through."""
    rng, limits = np.random.default_rng(1), np.finfo(dtype)
    x, y = (rng.uniform(1, 2, shape).astype(dtype) for shape in ((40, 1030), (1030, 100)))
    x[rng.random(x.shape) < 0.5] = limits.tiny / 4
    x[:, ::512] = 1
    if large == "sum":
        x[13, at] = y[at, 7] = limits.max ** dtype(0.4)
    else:
        value = {"infinity": np.inf, "NaN": np.nan}.get(large, limits.max / 8)
        if large == "other operand":
            y[at, 7] = value
        else:
            x[13, at] = value
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(multiplied(x, y), multiplied(x, y, is_watched=False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [(1, 0), (0, 1), (1, 1), (0.02, 0.02)])
def test_bits_depend_neither_on_tiles_nor_on_memory(
    dtype: Any, share: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(12):
        x, y = matrices(seed, dtype, share)
        x[::2] *= np.finfo(dtype).tiny ** dtype(0.6)  # now sums underflow in rows ..
        y[:, ::3] *= np.finfo(dtype).tiny ** dtype(0.4)  # .. and columns beside others that do not
        wanted = multiplied(x, y)
        assert multiplied(x, y, before=0x7F).tobytes() == wanted.tobytes()
        with monkeypatch.context() as patch:
            patch.setenv("HLOOM_CPU", "-avx512f")
            assert multiplied(x, y).tobytes() == wanted.tobytes(), seed


REGISTER = """declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @get(ptr %x) {
  call void @llvm.x86.sse.stmxcsr(ptr %x)
  ret void
}
define void @set(ptr %x) {
  call void @llvm.x86.sse.ldmxcsr(ptr %x)
  ret void
}
"""


@has_status
@pytest.mark.parametrize("control", [0x1F80, 0x3F80, 0x9FC0])
def test_control_bits_stay(control: int) -> None:
    """Rounding, flushing to zero and masks of exceptions are those of the caller, in its thread and in others."""
    code = Loaded(object_code(REGISTER), "get")
    get, set = (ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.function(name)) for name in ("get", "set"))
    x, y = (np.full(shape, 1e-40, np.float32) for shape in ((50, 600), (600, 70)))
    y[:, ::2] = 1e38
    multiplied(x, y)  # compiles
    found: list[int] = []

    def inside() -> None:
        word = ctypes.c_uint32()
        get(ctypes.addressof(word))
        before = ctypes.c_uint32(word.value)
        word.value = control
        set(ctypes.addressof(word))
        try:
            multiplied(x, y)
            get(ctypes.addressof(word))
        finally:
            set(ctypes.addressof(before))
        found.append(word.value & 0xFFC0)

    inside()
    thread = Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [control & 0xFFC0] * 2
    assert np.float32(1e-40) * np.float32(1) != 0


@has_status
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", ["left", "right", "none"])
def test_a_subnormal_number_changes_how_later_tiles_are_computed(dtype: Any, place: str) -> None:
    """Bits show it: the first tile has the number, so the second is scaled and overflows, so the third is plain, though
    its sums underflow, and loses bits. Without the number, the third is the first that is scaled, and loses none.
    """
    rows, limits = heights(tile_of(host()[1]))[0], np.finfo(dtype)
    small = limits.tiny ** dtype(0.5) / 32
    x, y = np.zeros((3 * rows, 40), dtype), np.ones((40, 16), dtype)
    x[:rows, 0] = 1
    x[rows : 2 * rows, 1] = limits.max / 4
    x[2 * rows :, 2:] = np.random.default_rng(0).uniform(1, 2, (rows, 38)).astype(dtype) * small
    y[2:] *= small
    if place == "left":
        x[:rows, 0] = limits.tiny / 4
    if place == "right":
        y[0] = limits.tiny / 4
    found, plain = multiplied(x, y), multiplied(x, y, is_watched=False)
    assert found[: 2 * rows].tobytes() == plain[: 2 * rows].tobytes()
    assert (found[2 * rows :].tobytes() == plain[2 * rows :].tobytes()) == (place != "none")


@has_status
@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_compute_what_threads_of_blas_would_if_many_numbers_are_subnormal(dtype: Any) -> None:
    library, rng = blas(), np.random.default_rng(8)
    assert library is not None
    if library.threads is None:
        pytest.skip("needs to set the threads of BLAS")
    get, set_to = library.threads
    some, ordinary = (spread(rng, (96, 2000), dtype, share) for share in (1, 0))
    weights = spread(rng, (2000, 64), dtype, 0)
    cases = [(x, weights) for x in (some, ordinary)] + [(weights.T, x.T) for x in (some, ordinary)]
    with library.single_threaded():
        by_tiles = [multiplied(x, y) for x, y in cases]
        set_to(2)
        if get() < 2:
            pytest.skip("BLAS has one thread")
        found = [multiplied(x, y) for x, y in cases]
    are_tiles = [a.tobytes() == b.tobytes() for a, b in zip(by_tiles, found, strict=True)]
    assert are_tiles == [True, False, True, False]
