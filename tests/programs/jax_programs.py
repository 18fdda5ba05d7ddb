"""Programs of many kinds as JAX lowers them: what a user's HLO looks like.

`PROGRAMS` maps a name to a function that makes a jax function and its arguments; nothing is imported or lowered before
it is called. Arguments are numpy arrays, small, and fixed.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Program = tuple[Any, tuple[Any, ...]]  # a jitted function and its arguments
PROGRAMS: dict[str, Callable[[], Program]] = {}


def text_of(program: Program) -> str:
    """The HLO that JAX hands to XLA, constants included."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    function, arguments = program
    return function.lower(*arguments).compiler_ir("hlo").as_hlo_module().to_string(options)


def normal(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def integers(*dims: int, high: int = 100, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, high, dims).astype(np.int32)


def positive(n: int) -> Array:
    """A symmetric positive definite matrix."""
    a = normal(n, n)
    return a @ a.T + n * np.eye(n, dtype=np.float32)


def program(make: Callable[[Any, Any, Any], Program]) -> Callable[[Any, Any, Any], Program]:
    """Registers a maker; it is given jax, jax.numpy and jax.lax."""

    def made() -> Program:
        jax: Any = importlib.import_module("jax")
        function, arguments = make(jax, jax.numpy, jax.lax)
        return function if hasattr(function, "lower") else jax.jit(function, keep_unused=True), arguments

    PROGRAMS[make.__name__] = made
    return make


# -- training


@program
def linear_regression_step(jax: Any, jnp: Any, lax: Any) -> Program:
    def step(w: Any, x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * gradient, loss

    return step, (normal(5, 1), normal(8, 5, seed=1), normal(8, 1, seed=2))


@program
def classifier_step_with_donation(jax: Any, jnp: Any, lax: Any) -> Program:
    def loss(parameters: Any, x: Any, labels: Any) -> Any:
        hidden = jax.nn.gelu(x @ parameters["w1"] + parameters["b1"])
        logits = jax.nn.log_softmax(hidden @ parameters["w2"])
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))

    def step(parameters: Any, x: Any, labels: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, jax.grad(loss)(parameters, x, labels))

    parameters = {"w1": normal(6, 8), "b1": normal(8), "w2": normal(8, 4)}
    return jax.jit(step, donate_argnums=0), (parameters, normal(5, 6, seed=3), integers(5, high=4))


@program
def mixed_precision_step(jax: Any, jnp: Any, lax: Any) -> Program:
    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.sum(jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32))

        return w - 0.01 * jax.grad(loss)(w)

    return step, (normal(4, 4), normal(3, 4, seed=1))


@program
def layer_norm_and_attention(jax: Any, jnp: Any, lax: Any) -> Program:
    def attention(x: Any) -> Any:
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        scores = jnp.einsum("bqd,bkd->bqk", x, x) / 2.0
        scores = jnp.where(jnp.tril(jnp.ones((4, 4), bool)), scores, -1e9)
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), x)

    return attention, (normal(2, 4, 4),)


# -- control flow


@program
def scan(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: lax.scan(lambda c, v: (jnp.tanh(c + v), c * 2), jnp.zeros(3), x), (normal(7, 3),)


@program
def scan_gradient(jax: Any, jnp: Any, lax: Any) -> Program:
    def total(w: Any, x: Any) -> Any:
        return lax.scan(lambda c, v: (jnp.sin(w * c + v), None), x[0], x)[0].sum()

    return jax.grad(total), (normal(3), normal(5, 3, seed=1))


@program
def while_loop(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2), (0, 1)), (np.int32(9),)


@program
def fori_loop_with_updates(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: lax.fori_loop(0, 5, lambda i, a: a.at[i].set(a[i - 1] + i), x), (normal(6),)


@program
def cond(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda p, x: lax.cond(p > 0, jnp.sin, lambda v: v * 2, x), (np.float32(1), normal(4))


@program
def switch(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda i, x: lax.switch(i, [jnp.sin, jnp.exp, lambda v: -v], x), (np.int32(7), normal(4))


@program
def associative_scan(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: lax.associative_scan(jnp.multiply, x), (1 + 0.1 * normal(9),)


# -- sorting and searching


@program
def sort(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: (jnp.sort(x, axis=0), jnp.argsort(x, axis=1)), (integers(6, 5, high=9),)


@program
def sort_of_floats_with_nan(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: jnp.sort(x), (np.array([1, np.nan, -0.0, 0.0, -np.inf, 3], np.float32),)


@program
def sort_by_key(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda k, v: lax.sort((k, v), num_keys=1), (integers(10, high=4), normal(10))


@program
def top_k(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: lax.top_k(x, 3), (normal(4, 9),)


@program
def search_sorted(jax: Any, jnp: Any, lax: Any) -> Program:
    return jax.numpy.searchsorted, (np.sort(normal(20)), normal(7, seed=1))


@program
def unique_and_histogram(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: (jnp.unique(x, size=6), jnp.bincount(x, length=9)), (integers(15, high=9),)


@program
def argmax_and_median(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: (jnp.argmax(x, axis=1), jnp.median(x), jnp.max(x)), (normal(5, 6),)


# -- indexing, windows, sums


@program
def cumulative_sums(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: (jnp.cumsum(x, axis=0), lax.cummax(x, axis=1), jnp.cumprod(x, axis=1)), (normal(5, 4),)


@program
def gather_and_scatter(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x, i: (x[i], x.at[i].add(1.0), x.at[:, 1].max(0.0)), (normal(6, 3), np.array([0, 2, 2, 5], np.int32))


@program
def segment_sum(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x, s: jax.ops.segment_sum(x, s, num_segments=4), (normal(8, 2), integers(8, high=4))


@program
def pooling(jax: Any, jnp: Any, lax: Any) -> Program:
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    return pooled, (normal(1, 6, 6, 2),)


@program
def pooling_gradient(jax: Any, jnp: Any, lax: Any) -> Program:
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "SAME").sum()

    return jax.grad(pooled), (normal(5, 5),)


@program
def rolling_and_padding(jax: Any, jnp: Any, lax: Any) -> Program:
    def moved(x: Any) -> Any:
        return jnp.roll(x, 2, axis=0), jnp.pad(x, ((1, 2), (0, 1)), mode="reflect"), x[::-1, ::2]

    return moved, (normal(5, 4),)


# -- signals and linear algebra


@program
def fft(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: (jnp.fft.fft(x), jnp.fft.rfft2(x), jnp.fft.irfft(jnp.fft.rfft(x), n=8)), (normal(6, 8),)


@program
def cholesky_and_solve(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda a, b: (jnp.linalg.cholesky(a), jax.scipy.linalg.cho_solve((a, True), b)), (positive(4), normal(4, 2))


@program
def triangular_solve(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), (np.tril(positive(4)), normal(4, 3))


@program
def solve_with_lu(jax: Any, jnp: Any, lax: Any) -> Program:
    return jax.numpy.linalg.solve, (positive(4), normal(4, 2))


@program
def qr(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda a: jnp.abs(jnp.linalg.qr(a)[1]), (normal(5, 3),)


@program
def symmetric_eigenvalues(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda a: jnp.linalg.eigh(a)[0], (positive(4),)


@program
def convolution(jax: Any, jnp: Any, lax: Any) -> Program:
    def convolved(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (2, 1), [(1, 2), (0, 1)], lhs_dilation=(1, 2), rhs_dilation=(2, 1),
                                        feature_group_count=2, dimension_numbers=("NHWC", "HWIO", "NHWC"))  # fmt: skip

    return convolved, (normal(2, 7, 6, 4), normal(3, 2, 2, 6, seed=1))


@program
def convolution_gradient(jax: Any, jnp: Any, lax: Any) -> Program:
    def loss(k: Any, x: Any) -> Any:
        return lax.conv(x, k, (1, 1), "SAME").sum()

    return jax.grad(loss), (normal(3, 2, 3, 3), normal(1, 2, 5, 5, seed=1))


# -- random numbers


@program
def threefry(jax: Any, jnp: Any, lax: Any) -> Program:
    def drawn(seed: Any) -> Any:
        key = jax.random.split(jax.random.key(seed, impl="threefry2x32"))[0]
        return jax.random.normal(key, (5,)), jax.random.uniform(key, (3,)), jax.random.permutation(key, 7)

    return drawn, (np.int32(42),)


@program
def random_bit_generator(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda seed: jax.random.uniform(jax.random.key(seed, impl="rbg"), (6,)), (np.int32(42),)


@program
def categorical_and_dropout(jax: Any, jnp: Any, lax: Any) -> Program:
    def drawn(logits: Any) -> Any:
        key = jax.random.key(3)
        return jax.random.categorical(key, logits), jnp.where(jax.random.bernoulli(key, 0.5, logits.shape), logits, 0)

    return drawn, (normal(4, 6),)


# -- types


@program
def fp8_converts(jax: Any, jnp: Any, lax: Any) -> Program:
    def converted(x: Any) -> Any:
        small = x.astype(ml_dtypes.float8_e4m3fn)
        return small, small.astype(jnp.float32), x.astype(ml_dtypes.float8_e5m2), lax.reduce_precision(x, 5, 10)

    return converted, (100 * normal(8),)


@program
def int4_converts(jax: Any, jnp: Any, lax: Any) -> Program:
    def converted(x: Any) -> Any:
        small = x.astype(jnp.int4)
        return small.astype(jnp.int32) * 3, (x & 15).astype(jnp.uint4).astype(jnp.float32)

    return converted, (integers(9, high=8),)


@program
def bits_and_shifts(jax: Any, jnp: Any, lax: Any) -> Program:
    def mixed(x: Any) -> Any:
        return x << 33, lax.shift_right_logical(x, 3), lax.population_count(x), lax.clz(x), x // -7, x % -7, ~x ^ 5

    return mixed, (integers(8) - 50,)


@program
def bitcasts(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: lax.bitcast_convert_type(x, jnp.uint8), (normal(3),)


@program
def special_functions(jax: Any, jnp: Any, lax: Any) -> Program:
    def special(x: Any) -> Any:
        return jax.scipy.special.erf(x), jnp.cbrt(x), jnp.log1p(x * x), jnp.expm1(x), jnp.arctan2(x, x + 1), jnp.sinh(x)

    return special, (normal(6),)


@program
def complex_numbers(jax: Any, jnp: Any, lax: Any) -> Program:
    return lambda x: (jnp.exp(1j * x), jnp.abs(x + 2j), (x * (1 + 1j)).conj() @ x), (normal(4),)


# -- several devices


def _mesh(jax: Any) -> Any:
    return jax.sharding.Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("x", "y"))


@program
def annotated_matmul(jax: Any, jnp: Any, lax: Any) -> Program:
    mesh, spec = _mesh(jax), jax.sharding.PartitionSpec
    rows = jax.sharding.NamedSharding(mesh, spec("x", None))
    columns = jax.sharding.NamedSharding(mesh, spec(None, "y"))
    return jax.jit(lambda a, b: jnp.tanh(a @ b), in_shardings=(rows, columns)), (normal(4, 6), normal(6, 8))


@program
def shard_map_collectives(jax: Any, jnp: Any, lax: Any) -> Program:
    spec = jax.sharding.PartitionSpec

    def local(x: Any) -> Any:
        total = lax.psum(x, "x") + lax.pmax(x, "y")
        moved = lax.ppermute(total, "y", [(0, 1), (1, 2), (2, 3), (3, 0)])
        swapped = lax.all_to_all(moved, "y", 0, 1, tiled=True)
        return lax.psum_scatter(lax.all_gather(swapped, "x", tiled=True), "x", tiled=True).sum()[None]

    mapped = jax.shard_map(local, mesh=_mesh(jax), in_specs=spec("x", "y"), out_specs=spec(("x", "y")), check_vma=False)
    return mapped, (normal(8, 16),)
