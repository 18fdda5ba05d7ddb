"""Annotated JAX programs at sizes that people run on eight devices: used by comm_vs_xla.py, which only compiles them.

Each is a model or a kernel on its own, annotated as its users do: where parameters and inputs lie, and little else.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from sharded_programs.networks import mixture, residual_network
from sharded_programs.registry import Kit, Made, lower, parse_axes
from sharded_programs.transformers import BOTH, DATA, FSDP, TENSOR, Transformer, normalize

PROGRAMS: dict[str, Callable[[], str]] = {}
# Why Hloom sends more than XLA in some program without a machine.
REASONS: dict[str, str] = {
    "llm_tensor_forward": "keys and values are computed divided and gathered: nearly the same time, for less work",
    "experts_by_sorting": "JAX writes the grouped products for CPU as products with masks of all experts; the expanded "
    "rows stay divided, so that weights are gathered, where gathering the rows before they expand sends less",
}
_LARGE = Transformer(
    layers=4, batch=16, sequence=1024, width=2048, heads=16, kv_heads=16, head=128, hidden=8192, vocabulary=32000
)


def program(mesh: str = "data=2,model=4") -> Callable[[Callable[[Kit], Made]], Callable[[Kit], Made]]:
    """Registers a maker under its name, for a mesh."""

    def register(make: Callable[[Kit], Made]) -> Callable[[Kit], Made]:
        def text() -> str:
            kit = Kit(parse_axes(mesh))
            return lower(kit, *make(kit))

        PROGRAMS[make.__name__] = text
        return make

    return register


@program()
def llm_tensor_step(kit: Kit) -> Made:
    return replace(_LARGE, specs={**DATA, **TENSOR}).made(kit, train=True)


@program()
def llm_sequence_step(kit: Kit) -> Made:
    return replace(_LARGE, specs={**DATA, **TENSOR}, activations=("data", "model", None)).made(kit, train=True)


@program("data=8")
def llm_fsdp_step(kit: Kit) -> Made:
    return replace(_LARGE, specs={**DATA, **FSDP}, activations=("data", None, None)).made(kit, train=True)


@program()
def llm_fsdp_tensor_step(kit: Kit) -> Made:
    return replace(_LARGE, specs={**DATA, **BOTH}, activations=("data", None, None)).made(kit, train=True)


@program()
def llm_tensor_forward(kit: Kit) -> Made:
    """Two prompts of 4,096 tokens; eight query heads share a key head, and all devices have all keys."""
    return replace(_LARGE, batch=2, sequence=4096, kv_heads=2, specs={**DATA, **TENSOR, "wk": (), "wv": ()}).made(kit)


@program()
def gpt_scan_adam_step(kit: Kit) -> Made:
    """Stacked layers in a scan, heads and query, key and value in one weight, Adam with a clipped global norm."""
    jax, jnp = kit.jax, kit.jnp
    layers, width, heads, head, vocabulary = 6, 1536, 12, 128, 50304
    blocks = {
        "qkv": ((layers, width, 3, heads, head), (None, None, None, "model", None)),
        "out": ((layers, heads, head, width), (None, "model", None, None)),
        "up": ((layers, width, 4 * width), (None, None, "model")),
        "down": ((layers, 4 * width, width), (None, "model", None)),
        "scale": ((layers, 2, width), (None,)),
    }

    def block(x: Any, w: Any) -> tuple[Any, None]:
        q, k, v = jnp.einsum("bsd,dchk->cbshk", normalize(kit, x, w["scale"][0]), w["qkv"])
        scores = jnp.einsum("bqhk,bshk->bhqs", q, k) / head**0.5
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        mixed = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)
        x = x + jnp.einsum("bqhk,hkd->bqd", mixed, w["out"])
        return x + jax.nn.gelu(normalize(kit, x, w["scale"][1]) @ w["up"]) @ w["down"], None

    def loss(weights: Any, tokens: Any) -> Any:
        x, _ = kit.lax.scan(block, weights["embedding"][tokens[:, :-1]], weights["blocks"])
        logits = jax.nn.log_softmax(x @ weights["embedding"].T)
        return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()

    def step(weights: Any, first: Any, second: Any, tokens: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, tokens)
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradients)))
        gradients = jax.tree.map(lambda g: g / jnp.maximum(1.0, norm), gradients)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
        update = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
        return value, update, first, second

    def state() -> Any:
        parts = {name: kit.array(dims, *spec) for name, (dims, spec) in blocks.items()}
        return {"blocks": parts, "embedding": kit.array((vocabulary, width), "model", None)}

    return step, (state(), state(), state(), kit.array((16, 1025), "data", dtype="int32"))


@program()
def lstm_language_model_step(kit: Kit) -> Made:
    """Gates are divided over the model axis, the output by its rows."""
    jax, jnp = kit.jax, kit.jnp

    def loss(weights: Any, tokens: Any) -> Any:
        embedding, wx, wh, bias, output = weights

        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, o, g = jnp.split(x @ wx + h @ wh + bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((tokens.shape[0], 2048))
        _, hidden = kit.lax.scan(cell, (zero, zero), embedding[tokens].swapaxes(0, 1))
        logits = jax.nn.log_softmax(hidden[:-1] @ output)
        return -jnp.take_along_axis(logits, tokens.T[1:, :, None], -1).mean()

    def step(weights: Any, tokens: Any) -> Any:
        return kit.jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, tokens))

    gates = [kit.array((rows, 8192), None, "model") for rows in (1024, 2048)]
    bias = kit.array((8192,), "model")
    return step, ((kit.array((32000, 1024)), *gates, bias, kit.array((2048, 32000), "model", None)),
                  kit.array((256, 64), "data", dtype="int32"))  # fmt: skip


@program("model=8")
def beam_search_step(kit: Kit) -> Made:
    """Four beams of 64 sentences continue by the best of 128,256 divided words each."""
    jax, jnp = kit.jax, kit.jnp

    def step(logits: Any, scores: Any, words: Any, at: Any) -> Any:
        sentences, beams, vocabulary = logits.shape
        total = (scores[..., None] + jax.nn.log_softmax(logits)).reshape(sentences, beams * vocabulary)
        scores, best = kit.lax.top_k(total, beams)
        words = jnp.take_along_axis(words, (best // vocabulary)[..., None], axis=1)
        return scores, words.at[:, :, at].set(best % vocabulary)

    return step, (kit.array((64, 4, 128256), None, None, "model"), kit.array((64, 4)),
                  kit.array((64, 4, 512), dtype="int32"), kit.array((), dtype="int32"))  # fmt: skip


@program("model=8")
def top_k_of_merged_dimensions(kit: Kit) -> Made:
    return lambda x: kit.lax.top_k((-x).reshape(256, -1), 8), (kit.array((256, 16, 8192), None, None, "model"),)


@program("model=8")
def merged_dimensions(kit: Kit) -> Made:
    """The inner of two merged dimensions is divided, and the result is wanted whole."""
    return lambda x: kit.constrain(kit.jnp.cos((-x).reshape(2048, -1)), None, None), (
        kit.array((2048, 16, 1024), None, None, "model"),)


@program("data=8")
def experts_by_sorting(kit: Kit) -> Made:
    """Tokens sorted by expert, grouped products, and back; hidden units are divided."""
    jax, jnp = kit.jax, kit.jnp

    def run(x: Any, router: Any, up: Any, down: Any) -> Any:
        gates, experts = kit.lax.top_k(jax.nn.softmax(x @ router), 2)
        order = jnp.argsort(experts.reshape(-1))
        sizes = jnp.bincount(experts.reshape(-1), length=router.shape[1]).astype(jnp.int32)
        rows = x[order // 2]
        rows = kit.lax.ragged_dot(jax.nn.gelu(kit.lax.ragged_dot(rows, up, sizes)), down, sizes)
        rows = rows * gates.reshape(-1)[order][:, None]
        return jnp.zeros_like(x).at[order // 2].add(rows)

    return run, (kit.array((8192, 1024), "data"), kit.array((1024, 8)), kit.array((8, 1024, 4096), None, None, "data"),
                 kit.array((8, 4096, 1024), None, "data", None))  # fmt: skip


@program()
def experts_by_dispatch_step(kit: Kit) -> Made:
    """Top-2 dispatch by products with masks, experts divided over the model axis."""

    def step(x: Any, *weights: Any) -> Any:
        loss = lambda weights: (mixture(kit, x, *weights, capacity=256) ** 2).mean()  # noqa: E731
        return kit.jax.tree.map(lambda p, g: p - 0.1 * g, weights, kit.jax.grad(loss)(weights))

    return step, (kit.array((16, 1024, 1024), "data"), kit.array((1024, 16)), kit.array((16, 1024, 4096), "model"),
                  kit.array((16, 4096, 1024), "model"))  # fmt: skip


@program("data=8")
def bodies_under_gravity(kit: Kit) -> Made:
    """Leapfrog steps of all pairs of 16,384 bodies."""

    def force(x: Any, mass: Any) -> Any:
        apart = x[None] - x[:, None]
        weight = mass[None] * ((apart**2).sum(-1) + 1e-4) ** -1.5
        return (apart * weight[..., None]).sum(1)

    def run(x: Any, v: Any, mass: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, v = state
            v = v + 0.005 * force(x, mass)
            x = x + 0.01 * v
            return x, v + 0.005 * force(x, mass)

        return kit.lax.fori_loop(0, 10, step, (x, v))

    return run, (kit.array((16384, 3), "data"), kit.array((16384, 3), "data"), kit.array((16384,), "data"))


@program("data=8")
def equalized_histogram(kit: Kit) -> Made:
    """Counts values in bins, and replaces each by its share of smaller ones."""
    jnp = kit.jnp

    def run(image: Any) -> Any:
        level = jnp.clip((image * 256).astype(jnp.int32), 0, 255)
        counts = jnp.zeros((256,)).at[level.reshape(-1)].add(1.0)
        share = jnp.cumsum(counts) / image.size
        return share[level], counts

    return run, (kit.array((8192, 8192), "data"),)


@program()
def orthogonalized_momentum_step(kit: Kit) -> Made:
    """Newton-Schulz steps on the momentum of divided weights."""
    jnp = kit.jnp

    def orthogonal(g: Any) -> Any:
        x = g / jnp.sqrt((g**2).sum() + 1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        return x

    def step(weights: Any, momentum: Any, gradients: Any) -> Any:
        momentum = kit.jax.tree.map(lambda m, g: 0.95 * m + g, momentum, gradients)
        return kit.jax.tree.map(lambda w, m: w - 0.02 * orthogonal(m), weights, momentum), momentum

    def state() -> tuple[Any, ...]:
        return kit.array((2048, 8192), "data", "model"), kit.array((2048, 2048), "model", "data")

    return step, (state(), state(), state())


@program()
def residual_network_step(kit: Kit) -> Made:
    def step(x: Any, *parameters: Any) -> Any:
        gradients = kit.jax.grad(lambda p: (residual_network(kit, x, *p) ** 2).mean())(parameters)
        return kit.jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)

    blocks = [(kit.array((3, 3, 256, 512), None, None, None, "model"), kit.array((3, 3, 512, 256), None, None, "model"),
               kit.array((256,))) for _ in range(3)]  # fmt: skip
    return step, (kit.array((64, 56, 56, 4), "data"), kit.array((3, 3, 4, 256)), blocks, kit.array((256, 1000)))


@program("data=8")
def residual_network_data_step(kit: Kit) -> Made:
    blocks = [(kit.array((3, 3, 256, 512)), kit.array((3, 3, 512, 256)), kit.array((256,))) for _ in range(3)]
    loss = partial(residual_network, kit)

    def step(x: Any, *parameters: Any) -> Any:
        gradients = kit.jax.grad(lambda p: (loss(x, *p) ** 2).mean())(parameters)
        return kit.jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)

    return step, (kit.array((64, 56, 56, 4), "data"), kit.array((3, 3, 4, 256)), blocks, kit.array((256, 1000)))
