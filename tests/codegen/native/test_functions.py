"""The functions of the loop IR: their errors, which docs/native.md lists, and their special values.

References are numpy's functions in the next wider type, and for erf the definition of the op; `-m slow` takes all
numbers of f32.
"""

from __future__ import annotations

import ctypes
import math
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hloom.codegen.native.functions import EXPANSIONS, coefficients
from hloom.codegen.native.loops import FLOATS, Function, Lane
from support.loop_kernels import called, needs_llvm, run_by_llvm
from support.numpy_run import DTYPES

pytestmark = needs_llvm
Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[3]

BINARY = (Function.ATAN2, Function.POW)
# Greatest errors in units in the last place of the result, in f32 (over all numbers, for functions of one) and f64.
ULPS = {
    Function.EXP: (1.1, 1.2), Function.EXPM1: (1.5, 2.0), Function.LOG: (1.0, 1.0), Function.LOG1P: (0.6, 1.0),
    Function.TANH: (1.8, 1.6), Function.LOGISTIC: (1.6, 1.6), Function.ERF: (1.3, 1.5), Function.SIN: (0.6, 1.0),
    Function.COS: (0.6, 1.0), Function.TAN: (0.6, 1.2), Function.CBRT: (0.6, 0.6), Function.ATAN2: (0.6, 1.6),
    Function.POW: (0.6, 1.4), Function.SINH: (0.6, 2.0), Function.COSH: (0.6, 1.8), Function.ASINH: (0.6, 1.8),
    Function.ACOSH: (0.6, 2.0), Function.ATANH: (0.6, 2.0), Function.ASIN: (0.6, 2.2), Function.ACOS: (0.6, 2.2),
}  # fmt: skip

_scalar_erf: Any = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return _scalar_erf(x).astype(x.dtype)


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _is_negative(x: Array) -> Array:
    return np.signbit(x) & ~np.isnan(x)


REFERENCES: dict[Function, Callable[..., Any]] = {
    Function.EXP: np.exp, Function.EXPM1: np.expm1, Function.LOG: np.log, Function.LOG1P: np.log1p,
    Function.TANH: np.tanh, Function.LOGISTIC: _logistic, Function.ERF: _erf,
    Function.SIN: np.sin, Function.COS: np.cos, Function.TAN: np.tan,
    Function.CBRT: np.cbrt, Function.ATAN2: np.arctan2, Function.POW: np.power,
    Function.SINH: np.sinh, Function.COSH: np.cosh, Function.ASINH: np.arcsinh, Function.ACOSH: np.arccosh,
    Function.ATANH: np.arctanh, Function.ASIN: np.arcsin, Function.ACOS: np.arccos,
}  # fmt: skip
INF = math.inf
SPECIAL = [0, -0.0, INF, -INF, math.nan, 1, -1, 2, -2, 3, -3, 0.5, -1.5, 1e-40, -1e-40, 1e30, -1e30, 9.01, 88.8, -103.5]


def check(function: Function, lane: Lane, inputs: list[Array]) -> float:
    """Compares with the reference; returns the greatest error, and fails for a wrong NaN, infinity or sign."""
    size, dtype = len(inputs[0]), DTYPES[lane]
    found = np.zeros(size, dtype)
    run_by_llvm(called(function, lane, len(inputs), size), [*inputs, found])
    wide = np.float64 if lane is Lane.F32 else np.longdouble
    with np.errstate(all="ignore"):
        exact = REFERENCES[function](*[x.astype(wide) for x in inputs])
        wanted = exact.astype(dtype)
        tests: list[Any] = [np.isnan, np.isinf, _is_negative]
        for test in tests:
            wrong = np.flatnonzero(test(found) != test(wanted))
            assert [[x[n] for x in inputs] for n in wrong[:5]] == []
        error = np.abs(found.astype(wide) - exact) / np.spacing(np.abs(wanted)).astype(wide)
        return float(error[np.isfinite(wanted)].max(initial=0.0))


def samples(lane: Lane, arity: int, size: int = 1 << 17) -> list[Array]:
    """Random bits, numbers around 1, and all combinations of special values."""
    rng, dtype = np.random.default_rng(0), DTYPES[lane]
    found: list[Array] = []
    for _ in range(arity):
        bits = rng.integers(0, 256, size * dtype.itemsize, dtype=np.uint8).view(dtype)
        small = np.exp(rng.standard_normal(size) * 3) * rng.choice([-1, 1], size)
        found.append(np.concatenate([bits, small, rng.standard_normal(size) * 5]).astype(dtype))
    for x, values in zip(found, np.meshgrid(*[np.array(SPECIAL, dtype)] * arity), strict=True):
        x[: values.size] = values.reshape(-1)
    return found


@pytest.mark.share(2)
@pytest.mark.parametrize(("function", "lane"), EXPANSIONS, ids=lambda v: v.name)
def test_errors_are_as_documented(function: Function, lane: Lane) -> None:
    arity = 2 if function in BINARY else 1
    size = 1 << (12 if function is Function.ERF else 17)
    inputs = samples(lane, arity, size)
    if (function, lane) == (Function.LOGISTIC, Lane.F64):
        inputs = [np.where(inputs[0] < -700, 0, inputs[0])]  # the reference overflows
    assert 0 < check(function, lane, inputs) <= ULPS[function][lane is Lane.F64]


@pytest.mark.slow
@pytest.mark.parametrize("function", [f for f in ULPS if f not in BINARY])
def test_all_numbers_of_f32(function: Function) -> None:
    step = 1 << (18 if function is Function.ERF else 25)
    starts = range(0, 1 << 32, 1 << (26 if function is Function.ERF else 25))
    bits = np.arange(step, dtype=np.uint32)
    worst = max(check(function, Lane.F32, [(bits + np.uint32(first)).view(np.float32)]) for first in starts)
    print(f"{function.value}: {worst:.3f}")
    assert worst <= ULPS[function][0]


@pytest.mark.parametrize(("lane", "edge"), [(Lane.F32, -104.0), (Lane.F64, -745.2)], ids=["f32", "f64"])
def test_exp_is_zero_without_underflow(lane: Lane, edge: float) -> None:
    """Around the edge results are as documented. Far below, as for masked scores, no product is 0 by underflow, which
    the processor would note, and which it computes slowly.
    """
    assert check(Function.EXP, lane, [np.linspace(edge - 10, edge + 10, 1 << 12).astype(DTYPES[lane])]) <= 1.2
    library, flag = ctypes.CDLL(None), 8 if platform.machine() == "aarch64" else 16  # FE_UNDERFLOW
    below = np.array([edge - 10, -1e9, -INF] * 16, DTYPES[lane])
    found = np.ones_like(below)
    kernel = called(Function.EXP, lane, 1, below.size)
    run_by_llvm(kernel, [below, found])
    library.feclearexcept(flag)
    run_by_llvm(kernel, [below, found])
    assert not library.fetestexcept(flag)
    assert not found.any()


def test_arguments_near_multiples_of_a_right_angle_are_reduced() -> None:
    """Of all numbers 6381956970095103 2^797 is the nearest to one; others are the nearest to random multiples."""
    rng = np.random.default_rng(0)
    bits = 64 * len(coefficients.TWO_OVER_PI)
    inverse = sum(word << shift for word, shift in zip(coefficients.TWO_OVER_PI, range(bits - 64, -1, -64)))
    multiples = [int(rng.integers(1, 1 << 62)) << int(n) for n in rng.integers(0, 950, 1000)]
    x = np.array([6381956970095103.0 * 2.0**797, *(float((n << bits) // inverse) for n in multiples)])
    for function in (Function.SIN, Function.COS, Function.TAN):
        assert 0 < check(function, Lane.F64, [np.concatenate([x, -x])]) <= ULPS[function][1]


def test_the_table_of_errors_is_that_of_the_tests() -> None:
    page = (ROOT / "docs" / "native.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert {Function(name): (float(a), float(b)) for name, a, b in rows} == ULPS
    assert {(function, lane) for function in ULPS for lane in FLOATS.values()} == set(EXPANSIONS)


def test_coefficients_are_those_of_the_script() -> None:
    scope: dict[str, Any] = {"__name__": "coefficients"}
    exec((ROOT / "bench" / "coefficients.py").read_text(), scope)
    assert coefficients.__file__ is not None
    assert scope["text"]() == Path(coefficients.__file__).read_text()
