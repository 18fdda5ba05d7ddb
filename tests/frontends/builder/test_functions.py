"""The functions of the builder give numpy's numbers: one table of functions of an array module and arrays."""

# The functions of the tables take numpy or the builder.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom import builder as hb
from hloom.frontends.builder.elementwise import OPCODES
from hloom.ir.graph.op import OPS
from support.xla_runner import compile_text

Array = np.ndarray[Any, Any]


def normal(*dims: int) -> Array:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def integers(*dims: int, low: int = -9, high: int = 10) -> Array:
    return np.random.default_rng(sum(dims)).integers(low, high, dims).astype(np.int32)


X, Y, V, N, M = normal(3, 4), normal(3, 4) + 2.5, normal(4), integers(3, 4), integers(3, 4, low=1, high=6)
S = normal(2, 3, 4)
WITH_NAN = np.where(X > 1, np.float32(np.nan), X)
P = X > 0

# Element-wise functions, by name: inputs, and what numpy has no function for.
UNARY = {
    "positive": "sqrt log rsqrt log1p cbrt", "unit": "arcsin arccos arctanh", "above": "arccosh",
    "any": "abs negative sign ceil floor rint exp expm1 logistic erf cos sin tan cosh sinh tanh arcsinh real imag "
           "isfinite isnan square round_half_away",
    "integer": "bitwise_not population_count count_leading_zeros abs negative sign square",
    "pred": "logical_not",
}  # fmt: skip
DOMAIN = {"positive": np.abs(X) + 0.1, "unit": np.tanh(X), "above": np.abs(X) + 1.1, "any": X, "integer": N, "pred": P}
BINARY = {
    "float": "add subtract multiply divide maximum minimum arctan2 fmod floor_divide remainder equal not_equal less "
             "less_equal greater greater_equal",
    "integer": "add subtract multiply floor_divide remainder fmod bitwise_and bitwise_or bitwise_xor left_shift "
               "right_shift maximum minimum power less",
    "pred": "logical_and logical_or logical_xor bitwise_and equal",
}  # fmt: skip


def erf(x: Array) -> Array:
    import math

    return np.vectorize(math.erf)(x)


NUMPY = SimpleNamespace(
    rsqrt=lambda x: 1 / np.sqrt(x), logistic=lambda x: 1 / (1 + np.exp(-x)), erf=erf,
    round_half_away=lambda x: np.trunc(x + np.copysign(0.5, x)),
    population_count=lambda x: np.bitwise_count(x.view(np.uint32)),
    count_leading_zeros=lambda x: np.vectorize(lambda n: 32 - int(n).bit_length())(x.view(np.uint32)),
)


def evaluated(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    module = hb.trace(function, *arrays)
    hloom.verify(module)
    assert hloom.parse(module.to_text()).to_text() == module.to_text()
    return hloom.evaluate(module, list(arrays))


def same(found: list[Array], expected: Any) -> None:
    wanted = [np.asarray(x) for x in hb.flatten(expected)]
    assert [f.shape for f in found] == [w.shape for w in wanted]
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f.astype(np.float64), w.astype(np.float64), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k, names in UNARY.items() for name in names.split()])
def test_unary(kind: str, name: str) -> None:
    expected = getattr(NUMPY, name, None) or getattr(np, name)
    same(evaluated(getattr(hb, name), DOMAIN[kind]), expected(DOMAIN[kind]))


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k, names in BINARY.items() for name in names.split()])
def test_binary(kind: str, name: str) -> None:
    pairs = {"float": (X, np.where(np.abs(Y) < 0.1, np.float32(1), Y)), "integer": (N, M), "pred": (P, np.roll(P, 1))}
    x, y = pairs[kind]
    if name in ("floor_divide", "remainder") and kind == "integer":
        y = np.where(M % 2, M, -M)
    same(evaluated(getattr(hb, name), x, y), getattr(np, name)(x, y))
    same(evaluated(getattr(hb, name), x, y[0]), getattr(np, name)(x, y[0]))


def test_every_elementwise_op_has_a_function() -> None:
    other = {"divide", "power", "compare", "select", "clamp"}  # functions of their own
    without = {"reduce-precision", "stochastic-convert", "copy", "convert", "bitcast-convert", "map"}
    known = {opcode for opcode, op in OPS.items() if op.is_elementwise and op.algebra is not None
             and type(op).__module__.endswith("elementwise")}
    assert len(known) > 40
    assert known - set(OPCODES.values()) - other - without == set()


TABLE: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "arithmetic": (lambda np, x, y: (x + 1) * y - 2 / y + (-x) ** 3 + 3 * x, (X, Y)),
    "reflected": (lambda np, x, n: (2 - x, 1 / (x + 9), 7 // n, 7 % n, 2 - n, n & 3, n | 8, n ^ 5, ~n), (X, M)),
    "division": (lambda np, n, m: (n // m, n % m, n // 3, n % -4), (N, M)),
    "float_division": (lambda np, x, y: (x // y, x % y, x // 0.7, x % -0.7), (X, Y)),
    "powers": (lambda np, x: (x**1, x**2, x**5, x**16, abs(x) ** 0.5), (X / 2,)),
    "comparisons": (lambda np, x, y: (x < y, x >= 0, x == x, x != y, x <= y, y > 2), (X, Y)),
    "shifts": (lambda np, n, m: (n << m, n >> m, n >> 1), (N, M)),
    "broadcast": (lambda np, x, v: (x + v, v * x[:, :1], x - x.mean(1, keepdims=True), v[:, None] * v), (X, V)),
    "scalars_of_numpy": (lambda np, x: x * 2.5 + np_float(3), (X,)),
    "constants": (lambda np, x: x + np.asarray(V) * 2, (X,)),
    "numpy_on_the_left": (lambda np, x: V + x * V - V / (abs(x) + 1), (X,)),
    "sums": (lambda np, x: (x.sum(), x.sum(0), np.sum(x, (0, 2)), np.sum(x, -1, keepdims=True)), (S,)),
    "extremes": (lambda np, x: (x.max(), np.max(x, 1), np.min(x, (1, 2), keepdims=True), x.min(0)), (S,)),
    "means": (lambda np, x: (x.mean(), np.mean(x, 1, keepdims=True), x.prod(0), np.prod(x, (0, 1))), (S,)),
    "truth": (lambda np, x: (np.any(x > 1), np.all(x > -1, 0), np.any(x, 1), np.all(x > -9, (0, 1))), (S,)),
    "argmax": (lambda np, x: (np.argmax(x, 1), np.argmin(x, 0), np.argmax(x, -1)), (S,)),
    "argmax_nan": (lambda np, x: (np.argmax(x, 1), np.argmin(x, 0), np.argmax(x, 0)), (WITH_NAN,)),
    "argmax_equal": (lambda np, n: (np.argmax(n % 2, 1), np.argmin(n * 0, 0)), (N,)),
    "index": (lambda np, x: (x[0], x[-1, 1], x[..., 2], x[:, None, 1], x[1:, ::2], x[::-1, 3:0:-2], x[:0]), (S,)),
    "index_of_slices": (lambda np, x: (x[:, -2:], x[5:2:-1], x[1][..., ::3], x[None, ..., None], x[()]), (S,)),
    "index_by_arrays": (lambda np, x, n: (x[:, np_array([2, 0, -1])], x[n], x[0, n[0]], x[:, n[:2] % 3, None]),
                        (S, np.abs(N) % 2)),
    "take": (lambda np, x, n: (np.take(x, n, 1), np.take(x, np_array([[1, -1]]), 2), np.take(x, 1, 0)),
             (S, np.abs(N) % 3)),
    "take_along_axis": (lambda np, x, n: np.take_along_axis(x, n, 1), (X, np.abs(N) % 4)),
    "where": (lambda np, x, y: (np.where(x > 0, x, y), np.where(x > 0, 0.0, y), np.where(x[:1] > 0, x, 1.5)), (X, Y)),
    "clip": (lambda np, x, y: (np.clip(x, -0.5, 0.5), np.clip(x, -1, abs(y))), (X, Y)),
    "joined": (lambda np, x, y: (np.concatenate([x, y]), np.concatenate([x, y[:, :1], x], 1), np.stack([x, y], 1),
                                 np.stack([x, y], -1)), (X, Y)),
    "moved": (lambda np, x: (x.T, np.transpose(x, (2, 0, 1)), x.transpose(1, 0, 2), np.moveaxis(x, 0, -1),
                             np.swapaxes(x, 0, 1), np.flip(x, 1), np.flip(x), np.roll(x, 1, 0), np.roll(x, -3, 2)),
              (S,)),
    "reshaped": (lambda np, x: (x.reshape(6, 4), np.reshape(x, (-1, 2)), np.expand_dims(x, 1), x.reshape(-1),
                                np.squeeze(x[:1]), np.squeeze(x[:1, :1], 1), np.broadcast_to(x[0], (5, 3, 4))), (S,)),
    "padded": (lambda np, x: (np.pad(x, 1), np.pad(x, ((0, 2), (1, 0))), np.pad(x, (1, 2), constant_values=7)), (X,)),
    "made": (lambda np, x: (np.arange(5), np.arange(2, 9, 3), np.arange(5, 0, -2), np.zeros((2, 3)), np.ones(2),
                            np.full((2,), 7), np.zeros_like(x), np.ones_like(x), np.full_like(x, 2)), (X,)),
    "cumulative": (lambda np, x: (np.cumsum(x, 0), np.cumsum(x, -1), np.cumprod(x, 1)), (S,)),
    "sorted": (lambda np, x: (np.sort(x), np.sort(x, 0), np.argsort(x, 1), np.sort(x[0, 0])), (S,)),
    "sorted_nan": (lambda np, x: np.sort(x, 1), (WITH_NAN,)),
    "products": (lambda np, x, s, v: (x @ v, s @ x.T, v @ v, v @ x.T, np.matmul(s, x.T), s[:1] @ s.transpose(0, 2, 1)),
                 (X, S, V)),
    "dot": (lambda np, x, s, v: (np.dot(x, v), np.dot(s, x.T), np.dot(x.T, x), np.dot(v, v), np.dot(x, s[0].T),
                                 np.dot(s, s.transpose(1, 2, 0))), (X, S, V)),
    "softmax": (lambda np, x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(
        -1, keepdims=True), (S,)),
    "iteration": (lambda np, x: [row * n for n, row in enumerate(x)], (X,)),
    "empty": (lambda np, x: (x[:0].sum(0), np.concatenate([x[:0], x])), (X,)),
}  # fmt: skip


def np_float(value: float) -> Any:
    return np.float32(value)


def np_array(values: Any) -> Array:
    return np.array(values)


@pytest.mark.parametrize("name", TABLE)
def test_numpy_numbers(name: str) -> None:
    function, arrays = TABLE[name]
    same(evaluated(lambda *given: function(hb, *given), *arrays), function(np, *arrays))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", TABLE)
def test_divided_among_devices(name: str) -> None:
    """Every argument is divided along its last dimensions, evenly or not; all devices give the numbers of one."""
    function, arrays = TABLE[name]
    axes = ("x", "y")

    def annotated(*given: hb.Array) -> Any:
        return function(hb, *(hb.shard(x, (None, *axes)[-x.ndim :] if x.ndim else ()) for x in given))

    with hb.use_mesh(hloom.Mesh.of(x=2, y=2)):
        module = hb.trace(annotated, *arrays)
    same(hloom.simulate(hloom.partition(module), list(arrays)), function(np, *arrays))


BY_DEFAULT = ("index_by_arrays", "argmax_nan")


@pytest.mark.parametrize(
    "name", [name if name in BY_DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in TABLE])
def test_xla_gives_the_same(name: str) -> None:
    """XLA reads the printed program, and computes numpy's numbers."""
    function, arrays = TABLE[name]
    program = compile_text(hb.trace(lambda *given: function(hb, *given), *arrays).to_text())
    same(program.run([list(arrays)])[0], function(np, *arrays))


EINSUMS = {
    "ij,jk->ik": ((3, 4), (4, 5)), "ij,jk": ((3, 4), (4, 5)), "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "ij->ji": ((3, 4),), "ij->": ((3, 4),), "ij->j": ((3, 4),), "i,j->ij": ((3,), (4,)), "ij,ij->": ((3, 4), (3, 4)),
    "GSEC,GSM->EGCM": ((2, 6, 4, 3), (2, 6, 5)), "GSEC,EGCM->GSM": ((2, 6, 4, 3), (4, 2, 3, 5)),
    "bsm,mhd->bshd": ((2, 3, 4), (4, 2, 5)), "...i,ij->...j": ((2, 3, 4), (4, 5)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "i...,i...->...": ((3, 4), (3, 4)), "ab,bc,cd->ad": ((2, 3), (3, 4), (4, 5)), "ij,k->j": ((3, 4), (5,)),
    "ab,ab,ab->ab": ((2, 3), (2, 3), (2, 3)), "ba,cb": ((2, 3), (4, 2)), "abc,cd,b->ad": ((2, 3, 4), (4, 5), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("subscripts", EINSUMS)
def test_einsum(subscripts: str) -> None:
    arrays = [normal(*dims) for dims in EINSUMS[subscripts]]
    same(evaluated(lambda *given: hb.einsum(subscripts, *given), *arrays), np.einsum(subscripts, *arrays))


def test_what_numpy_has_not() -> None:
    starts = np.array([1, 2], np.int32)
    def function(x: Any, s: Any, starts: Any) -> Any:
        values, places = hb.top_k(x, 2)
        return (values, places, hb.dynamic_slice(x, (starts[0], 0), (2, 3)), x[starts[0]], s[:, starts[1], 1:],
                hb.dynamic_update_slice(x, x[:2, :2] * 0, starts), hb.iota((2, 3), 1), hb.cummax(x, 1),
                hb.cumsum(x, 0, reverse=True), hb.reduce(lambda a, b: a * b, x, 1.0, axis=0), *hb.barrier(x, s))

    order = np.argsort(-X, 1)[:, :2]
    updated = X.copy()
    updated[1:3, 2:4] = 0
    same(evaluated(function, X, S, starts), (
        np.take_along_axis(X, order, 1), order, X[1:3, :3], X[1], S[:, 2, 1:], updated,
        np.broadcast_to(np.arange(3), (2, 3)), np.maximum.accumulate(X, 1), np.cumsum(X[::-1], 0)[::-1], X.prod(0),
        X, S,
    ))  # fmt: skip


def test_computed_indices_are_clamped() -> None:
    places = np.array([-5, 1, 99], np.int32)
    found = evaluated(lambda x, n: (x[n], x[n[2]], hb.take(x, n, 1)), X, places)
    same(found, (X[[0, 1, 2]], X[2], X[:, [0, 1, 3]]))


@pytest.mark.parametrize("dtype", ["f32", "bf16", np.float16, "float64", ml_dtypes.bfloat16, "s8", "pred", "c64", int])
def test_types_stay_as_given(dtype: Any) -> None:
    element = {int: "s32", "float64": "f64", np.float16: "f16", ml_dtypes.bfloat16: "bf16"}.get(dtype, dtype)
    module = hb.trace(lambda x: (x, x == x, hb.zeros_like(x), hb.ones((2,), dtype)), hb.Spec((2, 3), dtype))
    assert str(module.entry.root.shape) == f"({element}[2,3], pred[2,3], {element}[2,3], {element}[2])"
    converted = hb.trace(lambda x: x.astype(dtype), "f32[3]")
    assert str(converted.entry.root.shape) == f"{element}[3]"


def test_products_of_small_floats_may_be_summed_in_larger_ones() -> None:
    module = hb.trace(lambda x, y: (x @ y, hb.matmul(x, y, dtype="f32"), hb.einsum("ij,jk->i", x, y, dtype="f32")),
                      "bf16[4,8]", "bf16[8,3]")  # fmt: skip
    hloom.verify(module)
    assert str(module.entry.root.shape) == "(bf16[4,3], f32[4,3], f32[4])"
    x, y = normal(4, 8).astype(ml_dtypes.bfloat16), normal(8, 3).astype(ml_dtypes.bfloat16)
    _, exact, _ = hloom.evaluate(module, [x, y])
    np.testing.assert_allclose(exact, x.astype(np.float32) @ y.astype(np.float32), rtol=1e-5, atol=1e-6)


def test_python_numbers_take_the_type_of_arrays() -> None:
    module = hb.trace(lambda x, n, p: (x + 1, x * 2.5, n - 3, n * True, p & True, 2 * x, x + np.float64(1)),
                      "bf16[2]", "u8[2]", "pred[2]")  # fmt: skip
    assert str(module.entry.root.shape).replace("/*index=5*/", "") == (
        "(bf16[2], bf16[2], u8[2], u8[2], pred[2], bf16[2], bf16[2])")
