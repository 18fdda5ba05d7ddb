"""What all op tests share: random inputs with the awkward values, XLA's answer, and how closely ours must match it.

A sample is the text of a small HLO module. Comments in its first lines may say more. `// xla: no`: XLA does not run it
on one CPU device. `// inputs: KIND`:

- `plain` (the default): floats from a normal distribution, integers from -8 to 8;
- `special`: also zeros of both signs, infinities, NaN, the least and greatest numbers, halves and powers of two;
- `positive`: from 1 to 9.

`// as: OPCODE`: results are compared as closely as those of that op.

Denormal numbers are left out: XLA flushes them on CPU, numpy does not. f8e8m0fnu, which has neither zero nor sign, gets
positive numbers, and none so small or large that a product or quotient would be denormal in f32.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from hloom.ir.types.element_type import ElementType, Kind
from hloom.ir.types.shape import Shape
from support.xla_runner import Executable, compile_text

Array = np.ndarray[Any, Any]

# Greatest difference from XLA, in units in the last place of the result type, for ops that are not exact: by opcode, or
# by opcode and numpy type where one type is worse than the others. Both sides approximate; where the bound is large it
# is XLA that is off (log-plus-one in f64, complex powers).
ULPS: dict[str, float] = {
    **dict.fromkeys(("erf", "cbrt", "tan", "cosine", "sine", "exponential", "log", "logistic", "rsqrt", "tanh"), 3),
    **dict.fromkeys(("exponential-minus-one", "log-plus-one", "power", "atan2"), 3),
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"), 3),
    "erf float64": 128,
    "log-plus-one float64": 64,
    "tanh float64": 6,
    "sqrt float8_e3m4": 1,  # XLA rounds to f16 first
    **dict.fromkeys(("abs float32", "abs float64"), 2),  # of complex numbers: XLA may fuse the sum with a product
    "batch-norm-training float16": 16,
    "log complex128": 128,
    "log-plus-one complex64": 128,
    "log-plus-one complex128": 128,
    "atan2 complex64": 128,
    "atan2 complex128": 128,
    "power complex64": 128,
    "power complex128": 128,
    **dict.fromkeys(("dot", "reduce", "scatter", "call", "while", "conditional", "fusion", "custom-call"), 32),
    **dict.fromkeys(("convolution", "ragged-dot", "select-and-scatter"), 32),
    **dict.fromkeys(("fft", "cholesky", "triangular-solve"), 64),
    **dict.fromkeys(("batch-norm-training", "batch-norm-inference", "batch-norm-grad"), 64),
}
_COMPLEX_ULPS = 8
# The bound of sums of floats of these widths, and the greatest bound of other ops on them: XLA computes in f32 or f16,
# and rounds some sums at every step.
SMALL_ULPS = {16: 4, 8: 1, 4: 1}

# Ops that add many numbers: their error is measured against the largest element of the result.
SUMS = frozenset(
    {"dot", "reduce", "scatter", "call", "while", "conditional", "convolution", "ragged-dot", "fft", "cholesky",
     "triangular-solve", "select-and-scatter", "reduce-window", "batch-norm-training", "batch-norm-inference",
     "batch-norm-grad"}
)  # fmt: skip


def run_xla(text: str, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of an HLO module on one CPU device, in the order of its result's leaves."""
    return _compiled(text).run([inputs])[0]


@lru_cache(maxsize=4)
def _compiled(text: str) -> Executable:
    return compile_text(text)


def input_kind(text: str) -> str:
    """What the sample says about its inputs."""
    match = re.search(r"^// inputs: (\w+)", text, re.MULTILINE)
    return match[1] if match else "plain"


def compared_as(text: str, opcode: str) -> str:
    """The opcode whose bound a sample is held to."""
    match = re.search(r"^// as: (\S+)", text, re.MULTILINE)
    return match[1] if match else opcode


def runs_on_xla(text: str) -> bool:
    """Whether XLA can run the sample on one CPU device."""
    return "// xla: no" not in text


def random_inputs(shapes: Sequence[Shape], seed: int, kind: str = "plain") -> list[Array]:
    """One array per shape, the same for the same seed. `kind` as above."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        return [_random(rng, shape.element, shape.dims, kind) for shape in shapes]


def _random(rng: np.random.Generator, element: ElementType, dims: tuple[int, ...], kind: str) -> Array:
    assert element.numpy is not None
    if element.kind is Kind.PRED:
        return np.asarray(rng.integers(0, 2, dims) > 0)
    if element.is_complex:
        return np.asarray(rng.normal(size=dims) + 1j * rng.normal(size=dims)).astype(element.numpy)
    if kind == "positive":
        return np.asarray(rng.integers(1, 10, dims)).astype(element.numpy)
    if element.is_float:
        values = np.asarray(rng.normal(size=dims) * (10.0 ** rng.integers(-2, 3, dims) if kind == "special" else 1.0))
        special = _special_floats(element)
    else:
        values, special = _integers(rng, element, dims, kind), _special_integers(element)
    if element.name == "f8e8m0fnu":
        values = np.abs(values)
    values = values.astype(np.float32).astype(element.numpy) if element.bits < 32 else values.astype(element.numpy)
    if kind == "special":
        chosen = special[rng.integers(0, len(special), dims)]
        values = np.where(rng.integers(0, 2, dims) > 0, chosen, values)
    return np.asarray(values)


def _info(dtype: np.dtype[Any] | None) -> Any:
    """The limits of an integer or float type; ml_dtypes knows numpy's own types too, but has no types itself."""
    assert dtype is not None
    integer = dtype.kind in "iu" or dtype.name.startswith(("int", "uint"))
    limits: Any = getattr(ml_dtypes, "iinfo" if integer else "finfo")
    return limits(dtype)


def _integers(rng: np.random.Generator, element: ElementType, dims: tuple[int, ...], kind: str) -> Array:
    info = _info(element.numpy)
    least, greatest = int(info.min), int(info.max)
    if kind != "special":
        least, greatest = max(-8, least), min(8, greatest)
    wide = rng.integers(least, greatest, dims, np.int64 if least < 0 else np.uint64, endpoint=True)
    return np.asarray(wide)


def _special_integers(element: ElementType) -> Array:
    info = _info(element.numpy)
    wanted = [0, 1, 2, 3, 5, 7, element.bits - 1, element.bits, element.bits + 1, info.max, info.max - 1]
    wanted += [-1, -2, -3, info.min, info.min + 1] if element.kind is Kind.SIGNED else []
    wide = np.int64 if element.kind is Kind.SIGNED else np.uint64
    return np.array([int(v) for v in wanted if int(info.min) <= int(v) <= int(info.max)], wide).astype(element.numpy)


def _special_floats(element: ElementType) -> Array:
    info = _info(element.numpy)
    numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.49999997, 127.0, 128.5, 300.0, 65535.0, 2.0**31, 2.0**63, 1e10]
    numbers += [float(info.max), float(info.tiny), float(info.eps), np.inf]
    values = np.array([*numbers, *[-v for v in numbers], np.nan])
    if element.name == "f8e8m0fnu":
        values = np.clip(np.abs(values), 2.0**-40, 2.0**40)
    return values.astype(np.float32).astype(element.numpy) if element.bits < 32 else values.astype(element.numpy)


def mismatch(ours: Array, theirs: Array, opcode: str) -> str | None:
    """How our result differs from XLA's, or None: type, shape, exact values, or floats within the op's `ULPS`."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    if ours.dtype.kind in "biu" or ours.dtype in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2):
        wrong = np.asarray(ours != theirs)
    else:
        with np.errstate(all="ignore"):
            wrong = _far(ours, theirs, opcode)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ, first at {place}: {ours[place]!r} instead of {theirs[place]!r}"


def _far(ours: Array, theirs: Array, opcode: str) -> Array:
    ulps = ULPS.get(f"{opcode} {ours.dtype}", ULPS.get(opcode, 0))
    if ours.dtype.kind == "c":
        size = np.maximum(np.abs(theirs), np.abs(ours))
        if opcode in SUMS:
            size = np.full_like(size, np.max(size, initial=0))
        return np.asarray(np.abs(ours - theirs) > max(ulps, _COMPLEX_ULPS) * np.finfo(ours.dtype).eps * size)
    info = _info(ours.dtype)
    if info.bits in SMALL_ULPS and f"{opcode} {ours.dtype}" not in ULPS:
        ulps = SMALL_ULPS[info.bits] if opcode in SUMS else min(ulps, SMALL_ULPS[info.bits])
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    size = np.maximum(np.abs(a), np.abs(b))
    if opcode in SUMS:
        size = np.full_like(size, np.nanmax(np.where(np.isinf(size), 0, size), initial=0))
    # XLA flushes denormal results to zero, but not those of f16 and f8, which it computes in f32.
    flushed = float(info.tiny) if ulps or float(info.tiny) < 1e-30 else 0.0
    near = (np.abs(a - b) <= ulps * float(info.eps) * size) | (np.abs(a - b) < flushed)
    same = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
    return ~(same | near)
