"""fft: against the sum written out, the rule, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.fft import FftType
from ops.build import rule, run, use


def test_equals_the_sum() -> None:
    n = 6
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(2, n)) + 1j * rng.normal(size=(2, n))).astype(np.complex64)
    turns = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    call = use("fft", "c64[2,6]", fft_type=FftType.FFT, fft_length=(n,))
    result = run("fft", call, x)
    assert result.dtype == np.complex64
    np.testing.assert_allclose(result, x @ turns, rtol=1e-5)
    inverse = use("fft", "c64[2,6]", fft_type=FftType.IFFT, fft_length=(n,))
    np.testing.assert_allclose(run("fft", inverse, result), x, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_reals_come_back(n: int) -> None:
    x = np.random.default_rng(n).normal(size=(3, n))
    spectrum = run("fft", use("fft", f"f64[3,{n}]", fft_type=FftType.RFFT, fft_length=(3, n)), x)
    call = use("fft", f"c128[3,{n // 2 + 1}]", fft_type=FftType.IRFFT, fft_length=(3, n))
    np.testing.assert_allclose(run("fft", call, spectrum), x, atol=1e-12)


def test_rules() -> None:
    call = use("fft", "c64[2,3,8]", fft_type=FftType.FFT, fft_length=(3, 8))
    assert rule("fft", call) == "([i j k]) -> [i j k] {i=2, j=3, k=8} permutation={j, k}"
    call = use("fft", "f32[2,3,8]", fft_type=FftType.RFFT, fft_length=(8,))
    assert rule("fft", call) == "([i j k]) -> [i j k] {i=2, j=3, k=8} permutation={k}"


@pytest.mark.parametrize(
    ("operand", "kind", "length", "message"),
    [
        ("c64[3,8]", FftType.FFT, (7,), "FFT with fft_length [7] needs last dimensions [7], they are [8]"),
        ("c64[3,8]", FftType.IRFFT, (8,), "IRFFT with fft_length [8] needs last dimensions [5], they are [8]"),
        ("f32[3,8]", FftType.FFT, (8,), "operand must have complex elements"),
        ("c64[3,8]", FftType.RFFT, (8,), "operand must have float elements"),
        ("bf16[3,8]", FftType.RFFT, (8,), "RFFT needs f32 or f64 elements, not bf16"),
        ("c64[8]", FftType.FFT, (1, 8), "2 dimensions are to be transformed, the operand is c64[8]"),
        ("c64[8]", FftType.FFT, (), "fft_length must have 1 to 3 entries, it has 0"),
    ],
)
def test_refuses(operand: str, kind: FftType, length: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("fft", operand, fft_type=kind, fft_length=length)
    assert message in error.value.message
