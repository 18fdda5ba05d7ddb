"""Programs of which memory.py compares the peak: models between the small ones and the papers', and functions of JAX.

All take at least a megabyte: below that, XLA's alignment of buffers and its constants decide.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from models import decode, dense, experts, images, pipeline, ring
from models.conformer import Conformer, conformer
from models.dense import FINALIZED, FSDP, FSDP_SEQUENCE, FSDP_TENSOR, MEGATRON, SEQUENCE, Transformer
from models.registry import EIGHT, STAGES
from models.training import Program

BASE = Transformer(width=256, hidden=1024, heads=8, head=32, vocabulary=2048, sequence=128, batch=16)
LLAMA = replace(BASE, kv_heads=8, positions="rotary", tied=False, remat=True)
NARROW = Transformer(layers=4, width=128, hidden=512, heads=4, head=32, batch=16, sequence=64, vocabulary=1024,
                     remat=True)  # fmt: skip

MODELS: dict[str, Callable[[], Program]] = {
    "dense_finalized": lambda: dense.dense(BASE, EIGHT, FINALIZED),
    "dense_megatron": lambda: dense.dense(replace(BASE, scan=False), EIGHT, MEGATRON),
    "dense_sequence": lambda: dense.dense(BASE, EIGHT, SEQUENCE),
    "dense_fsdp": lambda: dense.dense(replace(BASE, remat=True), {"data": 8}, FSDP),
    "llama_fsdp": lambda: dense.dense(LLAMA, {"data": 8}, FSDP),
    "llama_fsdp_tensor": lambda: dense.dense(LLAMA, EIGHT, FSDP_SEQUENCE),
    "llama_pipeline": lambda: pipeline.pipeline(
        pipeline.Pipeline(replace(NARROW, kv_heads=2, positions="rotary", tied=False), stages=2, microbatches=4),
        STAGES, FSDP_TENSOR),
    "experts": lambda: experts.experts(experts.SMALL, {"data": 8}),
    "pipeline_gpipe": lambda: pipeline.pipeline(pipeline.Pipeline(NARROW, stages=2, microbatches=4), STAGES, MEGATRON),
    "pipeline_circular": lambda: pipeline.pipeline(
        pipeline.Pipeline(NARROW, stages=2, microbatches=4, rounds=2), STAGES, MEGATRON),
    "conformer": lambda: conformer(Conformer(width=128, hidden=512), EIGHT),
    "unet": lambda: images.images(images.UNet(), {"data": 2, "z": 2, "y": 2}, ("z", "y", None)),
    "resnet": lambda: images.images(images.ResNet(8, 128, 16), EIGHT, ("model", None)),
    "decode": lambda: decode.decoding(replace(BASE, positions="", sequence=512), EIGHT, decode.HEADS, 4),
    "decode_context": lambda: decode.decoding(replace(BASE, positions="", batch=2, sequence=2048), {"data": 8},
                                              decode.CONTEXT, 4),
    "ring": lambda: ring.ring(ring.Ring(2, 1024, 64, 4, 32), {"data": 2, "ring": 4}),
}  # fmt: skip

Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: list[Callable[[], Case]] = []


def _case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Adds a function to the cases."""
    CASES.append(make)
    return make


def _like(*dims: int, kind: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(dims, kind)


def _summed(function: Callable[..., Any], place: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    def total(*arguments: Any) -> Any:
        return function(*arguments).sum()

    return jax.grad(total, place)


# -- transforms and windows


@_case
def _convolution_by_fft() -> Case:
    def run(x: Any, k: Any) -> Any:
        n = x.shape[-1] + k.shape[-1]
        return jnp.fft.irfft(jnp.fft.rfft(x, n) * jnp.fft.rfft(k, n), n)[..., : x.shape[-1]]

    return run, (_like(64, 16384), _like(64, 128))


@_case
def _filter_in_the_frequencies() -> Case:
    return lambda x: jnp.fft.ifft2(jnp.fft.fft2(x) * (jnp.abs(jnp.fft.fftfreq(1024)) < 0.1)).real, (_like(1024, 1024),)


@_case
def _spectrogram() -> Case:
    def run(x: Any, window: Any) -> Any:
        frames = x[jnp.arange(0, x.shape[0] - 1024, 256)[:, None] + jnp.arange(1024)] * window
        return jnp.log1p(jnp.abs(jnp.fft.rfft(frames)))

    return run, (_like(1 << 18), _like(1024))


@_case
def _poisson_by_fft() -> Case:
    def run(f: Any) -> Any:
        k = jnp.fft.fftfreq(512) ** 2
        return jnp.fft.irfft2(jnp.fft.rfft2(f) / (k[:, None] + k[: 512 // 2 + 1] + 1e-6), s=f.shape)

    return run, (_like(512, 512),)


@_case
def _attention_in_windows() -> Case:
    def run(q: Any, k: Any, v: Any) -> Any:
        near = jnp.arange(1024)[:, None] - jnp.arange(1024)
        s = jnp.einsum("hqd,hkd->hqk", q, k) / 8
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where((near >= 0) & (near < 128), s, -1e9)), v)

    return run, (_like(8, 1024, 64),) * 3


@_case
def _largest_of_windows() -> Case:
    return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), (
        _like(8, 128, 128, 32),)


@_case
def _largest_of_windows_gradient() -> Case:
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2

    return _summed(pooled), (_like(8, 128, 128, 32),)


@_case
def _means_of_windows() -> Case:
    return lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 5, 5, 1), (1, 1, 1, 1), "SAME") / 25, (
        _like(8, 128, 128, 16),)


@_case
def _convolutions() -> Case:
    def run(x: Any, first: Any, second: Any) -> Any:
        order = "NHWC", "HWIO", "NHWC"
        x = jax.nn.relu(lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=order))
        return lax.conv_general_dilated(x, second, (2, 2), "SAME", dimension_numbers=order).mean((1, 2))

    return run, (_like(8, 64, 64, 16), _like(3, 3, 16, 64), _like(3, 3, 64, 64))


@_case
def _convolution_gradient() -> Case:
    def run(k: Any, x: Any) -> Any:
        order = "NHWC", "HWIO", "NHWC"
        return jax.nn.relu(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=order)) ** 2

    return _summed(run, (0, 1)), (_like(3, 3, 32, 32), _like(8, 64, 64, 32))


# -- caches, scans, loops


@_case
def _word_by_word() -> Case:
    def run(cache: Any, w: Any, x: Any, at: Any) -> Any:
        q, k, v = (jnp.einsum("bm,mhd->bhd", x, w[n]) for n in range(3))
        keys, values = (lax.dynamic_update_slice_in_dim(old, new[:, None], at, 1)
                        for old, new in zip(cache, (k, v), strict=True))  # fmt: skip
        s = jnp.einsum("bhd,bthd->bht", q, keys) / 8
        p = jax.nn.softmax(jnp.where(jnp.arange(s.shape[-1]) <= at, s, -1e9))
        return (keys, values), jnp.einsum("bht,bthd->bhd", p, values)

    cache = _like(8, 1024, 8, 64)
    return jax.jit(run, donate_argnums=0), ((cache, cache), _like(3, 512, 8, 64), _like(8, 512), _like(kind="int32"))


@_case
def _cache_without_donation() -> Case:
    return lambda cache, new, at: lax.dynamic_update_slice(cache, new, (0, at, 0)), (
        _like(16, 2048, 128), _like(16, 1, 128), _like(kind="int32"))  # fmt: skip


@_case
def _recurrent() -> Case:
    def run(w: Any, x: Any) -> Any:
        return lax.scan(lambda h, t: ((h := jnp.tanh(h @ w + t)), h), x[0], x)[1]

    return run, (_like(256, 256), _like(128, 64, 256))


@_case
def _recurrent_gradient() -> Case:
    def run(w: Any, x: Any) -> Any:
        return lax.scan(lambda h, t: ((h := jnp.tanh(h @ w + t)), h), x[0], x)[1]

    return _summed(run), (_like(256, 256), _like(128, 64, 256))


@_case
def _gates_gradient() -> Case:
    def run(w: Any, x: Any) -> Any:
        def step(state: Any, t: Any) -> Any:
            h, c = state
            i, f, o, g = jnp.split(jnp.concatenate([h, t], -1) @ w, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(step, (x[0], x[0]), x)[1]

    return _summed(run), (_like(256, 512), _like(64, 64, 128))


@_case
def _layers_in_a_scan_step() -> Case:
    def loss(w: Any, x: Any, y: Any) -> Any:
        block = jax.checkpoint(lambda x, w: (x + jax.nn.gelu(x @ w[0]) @ w[1], None))
        return ((lax.scan(block, x, w)[0] - y) ** 2).mean()

    def step(w: Any, x: Any, y: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x, y))

    weights = (_like(8, 128, 512), _like(8, 512, 128))
    return jax.jit(step, donate_argnums=0), (weights, _like(1024, 128), _like(1024, 128))


@_case
def _linear_recurrence() -> Case:
    def both(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return lambda a, x: lax.associative_scan(both, (a, x))[1], (_like(1024, 256), _like(1024, 256))


@_case
def _stencil() -> Case:
    def step(_: Any, x: Any) -> Any:
        return 0.25 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1))

    return lambda x: lax.fori_loop(0, 50, step, x), (_like(1024, 1024),)


@_case
def _means_of_clusters() -> Case:
    def run(x: Any, centers: Any) -> Any:
        def step(_: Any, c: Any) -> Any:
            near = jnp.argmin((x**2).sum(1)[:, None] - 2 * x @ c.T + (c**2).sum(1), 1)
            count = jnp.zeros(c.shape[0]).at[near].add(1.0)
            return jnp.zeros_like(c).at[near].add(x) / jnp.maximum(count, 1)[:, None]

        return lax.fori_loop(0, 10, step, centers)

    return run, (_like(16384, 64), _like(64, 64))


@_case
def _transport() -> Case:
    def run(cost: Any) -> Any:
        def step(_: Any, uv: Any) -> Any:
            u, v = uv
            u = -jax.nn.logsumexp(v - cost, 1, keepdims=True)
            return u, -jax.nn.logsumexp(u - cost, 0, keepdims=True)

        u, v = lax.fori_loop(0, 20, step, (jnp.zeros((1024, 1)), jnp.zeros((1, 1024))))
        return jnp.exp(u + v - cost)

    return run, (_like(1024, 1024),)


# -- sorting, places, random numbers


@_case
def _sorted_rows() -> Case:
    return lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)), (_like(512, 2048),)


@_case
def _words_to_vectors_gradient() -> Case:
    return _summed(lambda table, words: jnp.tanh(table[words]).sum(1) ** 2), (
        _like(16384, 128), _like(64, 64, kind="int32"))  # fmt: skip


@_case
def _sums_of_segments() -> Case:
    def run(x: Any, w: Any, sender: Any, receiver: Any) -> Any:
        return jax.nn.relu(jax.ops.segment_sum((x @ w)[sender], receiver, x.shape[0])) + x

    return run, (_like(4096, 128), _like(128, 128), _like(16384, kind="int32"), _like(16384, kind="int32"))


@_case
def _cross_entropy_gradient() -> Case:
    def loss(logits: Any, labels: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    return jax.grad(loss), (_like(512, 8192), _like(512, kind="int32"))


@_case
def _dropout() -> Case:
    def run(x: Any, seed: Any) -> Any:
        return jnp.where(jax.random.bernoulli(jax.random.key(seed), 0.9, x.shape), x / 0.9, 0)

    return run, (_like(1024, 1024), _like(kind="int32"))


# -- algebra


@_case
def _whitening() -> Case:
    def run(x: Any) -> Any:
        x = x - x.mean(0)
        root = jnp.linalg.cholesky(x.T @ x / x.shape[0] + 1e-3 * jnp.eye(x.shape[1]))
        return jax.scipy.linalg.solve_triangular(root, x.T, lower=True).T

    return run, (_like(4096, 256),)


@_case
def _newton_schulz() -> Case:
    def run(g: Any) -> Any:
        x = g / jnp.sqrt((g**2).sum() + 1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        return x

    return run, (_like(512, 1024),)


@_case
def _distances() -> Case:
    return lambda x, y: jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1)), (_like(1024, 16), _like(1024, 16))


# -- steps


@_case
def _mlp_step() -> Case:
    def loss(w: Any, x: Any, y: Any) -> Any:
        for v in w:
            x = jnp.tanh(x @ v)
        return ((x - y) ** 2).mean()

    def step(w: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradients), value

    return jax.jit(step, donate_argnums=0), ((_like(512, 512),) * 4, _like(1024, 512), _like(1024, 512))


@_case
def _adam() -> Case:
    def run(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v

    return jax.jit(run, donate_argnums=(0, 1, 2)), (_like(1024, 1024),) * 4


@_case
def _norm_gradient() -> Case:
    def norm(x: Any, w: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * w

    return _summed(norm, (0, 1)), (_like(2048, 512), _like(512))


@_case
def _attention_gradient() -> Case:
    def run(x: Any, w: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bhsd", x, w[n]) for n in range(3))
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8), v)

    return _summed(run, (0, 1)), (_like(4, 256, 256), _like(3, 256, 4, 64))


@_case
def _autoencoder_step() -> Case:
    def loss(w: Any, x: Any, seed: Any) -> Any:
        mean, deviation = jnp.split(jax.nn.relu(x @ w["in"]) @ w["code"], 2, -1)
        z = mean + jnp.exp(deviation) * jax.random.normal(jax.random.key(seed), mean.shape)
        y = jax.nn.relu(z @ w["open"]) @ w["out"]
        return ((y - x) ** 2).sum(-1).mean() + 0.5 * (mean**2 + jnp.exp(2 * deviation) - 2 * deviation).sum(-1).mean()

    def step(w: Any, x: Any, seed: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 1e-3 * g, w, jax.grad(loss)(w, x, seed))

    weights = {"in": _like(784, 512), "code": _like(512, 64), "open": _like(32, 512), "out": _like(512, 784)}
    return jax.jit(step, donate_argnums=0), (weights, _like(1024, 784), _like(kind="int32"))
