"""More functions of JAX for memory.py, written after the rules of XLA's memory were found."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Case = tuple[Callable[..., Any], tuple[Any, ...]]
NHWC = "NHWC", "HWIO", "NHWC"


def _like(*dims: int, kind: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(dims, kind)


def _stepped(loss: Callable[..., Any], rate: float = 0.1) -> Callable[..., Any]:
    """Returns a step of gradient descent on the first argument, which it gives away."""

    def step(w: Any, *arguments: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(w, *arguments)
        return jax.tree.map(lambda p, g: p - rate * g, w, gradients), value

    return jax.jit(step, donate_argnums=0)


def contrast() -> Case:
    def loss(w: Any, x: Any, y: Any) -> Any:
        a, b = (v / jnp.linalg.norm(v, axis=-1, keepdims=True) for v in (x @ w["x"], y @ w["y"]))
        s = a @ b.T * jnp.exp(w["scale"])
        return -(jnp.diag(jax.nn.log_softmax(s)) + jnp.diag(jax.nn.log_softmax(s.T))).mean()

    weights = {"x": _like(512, 256), "y": _like(768, 256), "scale": _like()}
    return _stepped(loss), (weights, _like(1024, 512), _like(1024, 768))


def gated_recurrent() -> Case:
    def loss(w: Any, x: Any) -> Any:
        def cell(h: Any, t: Any) -> Any:
            z, r = jnp.split(jax.nn.sigmoid(t @ w["x"] + h @ w["h"]), 2, -1)
            h = (1 - z) * h + z * jnp.tanh(t @ w["n"] + (r * h) @ w["m"])
            return h, h.mean()

        return lax.scan(cell, jnp.zeros((64, 256)), x)[1].sum()

    weights = {"x": _like(128, 512), "h": _like(256, 512), "n": _like(128, 256), "m": _like(256, 256)}
    return _stepped(loss), (weights, _like(64, 64, 128))


def normalized_convolutions() -> Case:
    def block(x: Any, k: Any) -> Any:
        y = lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NHWC)
        y = (y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5)
        return jax.nn.relu(x + y)

    def loss(w: Any, x: Any) -> Any:
        for k in w:
            x = block(x, k)
        return (x**2).mean()

    return _stepped(loss), ((_like(3, 3, 32, 32),) * 3, _like(16, 32, 32, 32))


def depthwise() -> Case:
    def run(x: Any, k: Any, p: Any) -> Any:
        y = lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=NHWC, feature_group_count=64)
        return jax.nn.silu(y) @ p

    return run, (_like(8, 64, 64, 64), _like(3, 3, 1, 64), _like(64, 128))


def enlarged() -> Case:
    def run(x: Any, k: Any) -> Any:
        return jnp.tanh(lax.conv_transpose(x, k, (2, 2), "SAME", dimension_numbers=NHWC))

    return run, (_like(8, 32, 32, 64), _like(4, 4, 64, 32))


def gaussian_process() -> Case:
    def loss(w: Any, x: Any, y: Any) -> Any:
        apart = ((x[:, None] - x[None]) ** 2 * jnp.exp(w)).sum(-1)
        k = jnp.exp(-0.5 * apart) + 1e-2 * jnp.eye(x.shape[0])
        root = jnp.linalg.cholesky(k)
        a = jax.scipy.linalg.cho_solve((root, True), y)
        return 0.5 * y @ a + jnp.log(jnp.diag(root)).sum()

    return jax.grad(loss), (_like(4), _like(512, 4), _like(512))


def filtered() -> Case:
    def run(y: Any, a: Any, q: Any) -> Any:
        def step(state: Any, y: Any) -> Any:
            m, p = state
            m, p = m @ a.T, a @ p @ a.T + q
            k = jnp.linalg.solve(p + jnp.eye(32), p)
            m = m + (y - m) @ k
            p = p - k @ p
            return (m, p), m

        return lax.scan(step, (jnp.zeros((256, 32)), jnp.eye(32)), y)[1]

    return run, (_like(64, 256, 32), _like(32, 32), _like(32, 32))


def flow() -> Case:
    def run(x: Any, w: Any) -> Any:
        def rate(x: Any) -> Any:
            return jnp.tanh(x @ w[0]) @ w[1]

        def step(x: Any, _: Any) -> Any:
            a = rate(x)
            b = rate(x + 0.05 * a)
            c = rate(x + 0.05 * b)
            d = rate(x + 0.1 * c)
            return x + 0.1 / 6 * (a + 2 * b + 2 * c + d), None

        return (lax.scan(step, x, None, 10)[0] ** 2).sum()

    return jax.grad(run, 1), (_like(512, 64), (_like(64, 256), _like(256, 64)))


def rotated_attention() -> Case:
    def loss(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[n]) for n in ("q", "k", "v"))
        angle = jnp.arange(256)[:, None, None] * 1e4 ** (-jnp.arange(16) / 16)

        def turned(y: Any) -> Any:
            a, b = jnp.split(y, 2, -1)
            one, other = jnp.cos(angle), jnp.sin(angle)
            return jnp.concatenate([a * one - b * other, a * other + b * one], -1)

        s = jnp.einsum("bqhd,bkhd->bhqk", turned(q), turned(k)) / 32**0.5
        s = jnp.where(jnp.tril(jnp.ones((256, 256), bool)), s, -1e9)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v)
        return (jnp.einsum("bshd,hdm->bsm", y, w["o"]) ** 2).mean()

    heads = _like(256, 8, 32)
    return _stepped(loss), ({"q": heads, "k": heads, "v": heads, "o": _like(8, 32, 256)}, _like(4, 256, 256))


def adapted() -> Case:
    def loss(w: Any, frozen: Any, x: Any, y: Any) -> Any:
        for n in range(4):
            x = jax.nn.gelu(x @ frozen[n] + x @ w["down"][n] @ w["up"][n])
        return jnp.abs(x - y).mean()

    weights = {"down": _like(4, 512, 8), "up": _like(4, 8, 512)}
    return _stepped(loss), (weights, _like(4, 512, 512), _like(1024, 512), _like(1024, 512))


def quantized() -> Case:
    def run(x: Any, w: Any, scale: Any) -> Any:
        size = jnp.abs(x).max(-1, keepdims=True) / 127
        rounded = jnp.round(x / size).astype(jnp.int8)
        y = lax.dot(rounded, w, preferred_element_type=jnp.int32)
        return y.astype(jnp.float32) * size * scale

    return run, (_like(1024, 1024), _like(1024, 1024, kind="int8"), _like(1024))


def policy() -> Case:
    def loss(w: Any, seen: Any, done: Any, rewards: Any) -> Any:
        logits = jnp.tanh(seen @ w["in"]) @ w["out"]
        values = jnp.tanh(seen @ w["in"]) @ w["value"]
        _, returns = lax.scan(lambda r, t: ((r := t[0] + 0.99 * (1 - t[1]) * r), r), rewards[0] * 0, (rewards, done),
                              reverse=True)  # fmt: skip
        better = lax.stop_gradient(returns - values[..., 0])
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), (seen[..., :1] > 0).astype(jnp.int32), -1)[..., 0]
        return -(chosen * better).mean() + ((returns - values[..., 0]) ** 2).mean()

    weights = {"in": _like(64, 256), "out": _like(256, 8), "value": _like(256, 1)}
    return _stepped(loss), (weights, _like(128, 64, 64), _like(128, 64), _like(128, 64))


def curvature() -> Case:
    def loss(w: Any, x: Any) -> Any:
        return (jnp.sin(jnp.tanh(x @ w[0]) @ w[1]) ** 2).mean()

    def run(w: Any, v: Any, x: Any) -> Any:
        return jax.jvp(jax.grad(lambda w: loss(w, x)), (w,), (v,))[1]

    weights = _like(256, 512), _like(512, 128)
    return run, (weights, weights, _like(1024, 256))


def bags() -> Case:
    def loss(table: Any, words: Any, bag: Any, y: Any) -> Any:
        means = jax.ops.segment_sum(table[words], bag, 512) / 16
        return ((means - y) ** 2).mean()

    kind = "int32"
    return _stepped(loss), (_like(32768, 64), _like(8192, kind=kind), _like(8192, kind=kind), _like(512, 64))


def routed() -> Case:
    def run(x: Any, router: Any, up: Any, down: Any) -> Any:
        gates, chosen = lax.top_k(jax.nn.softmax(x @ router), 2)
        weight = (jax.nn.one_hot(chosen, 8) * gates[..., None]).sum(1)
        hidden = jax.nn.relu(jnp.einsum("sm,emh->esh", x, up))
        return jnp.einsum("esh,ehm,se->sm", hidden, down, weight)

    return run, (_like(1024, 256), _like(256, 8), _like(8, 256, 512), _like(8, 512, 256))


def resized() -> Case:
    return lambda x: jax.image.resize(x, (4, 256, 256, 16), "bilinear"), (_like(4, 128, 128, 16),)


def running_sums() -> Case:
    def run(x: Any) -> Any:
        total = jnp.cumsum(x, 1)
        return (total[:, 64:] - total[:, :-64]) / 64, jnp.cumprod(1 + 0.01 * x, 1), lax.cummax(x, 1)

    return run, (_like(512, 2048),)


def tiles() -> Case:
    def run(x: Any) -> Any:
        n, h, w, c = x.shape
        patches = x.reshape(n, h // 16, 16, w // 16, 16, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, 256 * c)
        return (patches - patches.mean(-1, keepdims=True)) / (patches.std(-1, keepdims=True) + 1e-6)

    return run, (_like(16, 224, 224, 3),)


def jacobian() -> Case:
    def map(x: Any, w: Any) -> Any:
        return jnp.tanh(w @ x)

    return lambda x, w: jax.vmap(jax.jacrev(map), (0, None))(x, w), (_like(64, 128), _like(128, 128))


def spectral_layer() -> Case:
    def loss(w: Any, x: Any) -> Any:
        f = jnp.fft.rfft2(x, axes=(1, 2))
        low = jnp.einsum("bxyi,xyio->bxyo", f[:, :16, :16], w[0] + 1j * w[1])
        y = jnp.zeros((8, 64, 33, 32), jnp.complex64).at[:, :16, :16].set(low)
        return (jnp.fft.irfft2(y, s=(64, 64), axes=(1, 2)) ** 2).mean()

    return jax.grad(loss), ((_like(16, 16, 32, 32),) * 2, _like(8, 64, 64, 32))


def greedy_words() -> Case:
    def run(cache: Any, w: Any, table: Any, first: Any) -> Any:
        def step(state: Any, at: Any) -> Any:
            cache, word = state
            x = table[word]
            k, v = x @ w[0], x @ w[1]
            cache = cache.at[:, at, 0].set(k).at[:, at, 1].set(v)
            s = jnp.einsum("bd,btd->bt", x @ w[2], cache[:, :, 0]) / 16
            p = jax.nn.softmax(jnp.where(jnp.arange(512) <= at, s, -1e9))
            word = jnp.argmax(jnp.einsum("bt,btd->bd", p, cache[:, :, 1]) @ table.T, -1).astype(jnp.int32)
            return (cache, word), word

        return lax.scan(step, (cache, first), jnp.arange(512))

    return jax.jit(run, donate_argnums=0), (
        _like(16, 512, 2, 256), _like(3, 256, 256), _like(4096, 256), _like(16, kind="int32"))  # fmt: skip


def clipped_adam() -> Case:
    def step(state: Any, g: Any) -> Any:
        p, m, v = state
        norm = jnp.sqrt(sum((x**2).sum() for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1 / norm), g)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        return jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p), p, m, v), m, v

    tree = {"a": _like(1024, 512), "b": _like(512, 2048), "c": _like(2048)}
    return jax.jit(step, donate_argnums=0), ((tree, tree, tree), tree)


HELD_APART = (
    contrast, gated_recurrent, normalized_convolutions, depthwise, enlarged, gaussian_process, filtered, flow,
    rotated_attention, adapted, quantized, policy, curvature, bags, routed, resized, running_sums, tiles, jacobian,
    spectral_layer, greedy_words, clipped_adam,
)  # fmt: skip
