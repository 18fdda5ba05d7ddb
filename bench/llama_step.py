"""Makes a Llama-like training step in JAX, its inputs, and its sharded forms, for the benches of step times.

Configuration A is bound by its matrix products (width 512, 8 layers, sequence 256, vocabulary 8192), B has many small
ops (width 128, 24 layers, sequence 64, vocabulary 1024); both have batch 8, grouped queries, f32 and plain gradient
descent.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import hloom
import numpy as np
from hloom.cost.work import is_contraction
from hloom.ir.factors.sharding_rule import FactorKind

Array = np.ndarray[Any, Any]
DATA, MODEL = "x", "y"  # axes of the mesh
RATE = 0.1  # of learning

Spec = tuple[str | None, ...]  # the mesh axis of each dimension


@dataclass(frozen=True)
class Configuration:
    width: int
    layers: int
    heads: int
    groups: int
    hidden: int
    vocabulary: int
    sequence: int
    batch: int


CONFIGURATIONS = {
    "A": Configuration(512, 8, 8, 4, 1408, 8192, 256, 8),
    "B": Configuration(128, 24, 4, 2, 384, 1024, 64, 8),
    "tiny": Configuration(32, 2, 4, 4, 64, 128, 16, 4),
}


def parameters(c: Configuration) -> dict[str, Array]:
    """Returns initial weights: by layer, and those of the embedding and the head."""
    rng = np.random.default_rng(0)
    size = c.width // c.heads * c.groups
    shapes = {"q": (c.width, c.width), "k": (c.width, size), "v": (c.width, size), "o": (c.width, c.width),
              "gate": (c.width, c.hidden), "up": (c.width, c.hidden), "down": (c.hidden, c.width)}  # fmt: skip
    found = {"embedding": (c.vocabulary, c.width), "head": (c.width, c.vocabulary)}
    found |= {f"{name}{n}": shape for n in range(c.layers) for name, shape in shapes.items()}
    weights = {name: (rng.standard_normal(shape) * 0.02).astype(np.float32) for name, shape in found.items()}
    norms = ["norm", *(f"{name}{n}" for n in range(c.layers) for name in ("before", "middle"))]
    return weights | {name: np.ones(c.width, np.float32) for name in norms}


def batch(c: Configuration) -> tuple[Array, Array]:
    """Returns tokens and targets."""
    rng = np.random.default_rng(1)
    tokens, targets = (rng.integers(0, c.vocabulary, (c.batch, c.sequence)).astype(np.int32) for _ in range(2))
    return tokens, targets


def rotation(c: Configuration) -> tuple[Array, Array]:
    """Returns cosines and sines of the rotary positions, [sequence, 1, half a head]."""
    size = c.width // c.heads
    angles = np.arange(c.sequence)[:, None] / 10000.0 ** (np.arange(0, size, 2) / size)
    return np.cos(angles).astype(np.float32)[:, None], np.sin(angles).astype(np.float32)[:, None]


def step_of(c: Configuration, constrain: Callable[[Any], Any] = lambda x: x) -> Callable[..., Any]:
    """Returns the training step as a JAX function of weights, tokens and targets. `constrain` places the activations
    between blocks.
    """
    jax: Any = importlib.import_module("jax")
    jnp = jax.numpy
    size, per_group = c.width // c.heads, c.heads // c.groups
    cosine, sine = rotation(c)

    def norm(x, weight):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight

    def rotate(x):
        left, right = jnp.split(x, 2, -1)
        return jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1)

    def attention(w, n, x):
        q, k, v = (jnp.dot(x, w[f"{m}{n}"]).reshape(*x.shape[:2], -1, size) for m in "qkv")
        q, k = rotate(q).reshape(*x.shape[:2], c.groups, per_group, size), rotate(k)
        scores = jnp.einsum("bqghd,bkgd->bghqk", q, k) * size**-0.5
        scores = jnp.where(np.tri(c.sequence, dtype=bool), scores, -1e30)
        mixed = jnp.einsum("bghqk,bkgd->bqghd", jax.nn.softmax(scores, -1), v)
        return mixed.reshape(x.shape) @ w[f"o{n}"]

    def loss(w, tokens, targets):
        x = constrain(w["embedding"][tokens])
        for n in range(c.layers):
            x = constrain(x + attention(w, n, norm(x, w[f"before{n}"])))
            h = norm(x, w[f"middle{n}"])
            x = constrain(x + (jax.nn.silu(h @ w[f"gate{n}"]) * (h @ w[f"up{n}"])) @ w[f"down{n}"])
        logits = norm(x, w["norm"]) @ w["head"]
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    def step(w, tokens, targets):
        value, gradients = jax.value_and_grad(loss)(w, tokens, targets)
        return {name: w[name] - RATE * gradients[name] for name in w}, value

    return step


KINDS = ("dp", "fsdp", "tp", "fsdp_tp")
_ACROSS = 2  # devices of the second axis
_COLUMNS, _ROWS = ("q", "k", "v", "gate", "up", "head"), ("o", "down", "embedding")  # of weights, for `tp`


def weight_spec(kind: str, name: str) -> Spec:
    """Returns how a weight is divided: not at all (dp), on its first dimension (fsdp), or as in Megatron-LM (tp):
    columns of the first product of a block and rows of the second, the vocabulary of embedding and head. With
    `fsdp_tp` what Megatron-LM divides over the second axis is divided over the first on its other dimension.
    """
    role = name.rstrip("0123456789")
    along = MODEL if kind == "fsdp_tp" else DATA
    other = DATA if kind == "fsdp_tp" else None
    if kind in ("tp", "fsdp_tp") and role in _ROWS:
        return (along, other)
    if kind in ("tp", "fsdp_tp") and role in _COLUMNS:
        return (other, along)
    return (DATA,) if kind in ("fsdp", "fsdp_tp") else ()


def batch_spec(kind: str) -> Spec:
    """Returns how tokens, targets and activations are divided: by batch, unless a kind divides the products alone."""
    return () if kind == "tp" else (DATA,)


def least_devices(kind: str) -> int:
    """Returns the number of devices from which on a kind is one of its own."""
    return 2 * _ACROSS if kind == "fsdp_tp" else 1


def mesh_axes(kind: str, devices: int) -> dict[str, int]:
    """Returns the axes of the mesh: one, or for `fsdp_tp` two, of which the second has two devices."""
    if kind != "fsdp_tp":
        return {DATA: devices}
    return {DATA: devices // _ACROSS, MODEL: _ACROSS}


@dataclass(frozen=True)
class Sharded:
    """The training step in JAX over the mesh of its kind. `mesh` may be abstract, which suffices for the text."""

    configuration: Configuration
    kind: str
    mesh: Any

    def sharding(self, spec: Spec) -> Any:
        jax: Any = importlib.import_module("jax")
        return jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*spec))

    def arguments(self) -> tuple[dict[str, Any], Any, Any]:
        """Returns the shardings of weights, tokens and targets."""
        weights = {name: self.sharding(weight_spec(self.kind, name)) for name in parameters(self.configuration)}
        by_batch = self.sharding(batch_spec(self.kind))
        return weights, by_batch, by_batch

    def jitted(self) -> Any:
        jax: Any = importlib.import_module("jax")
        by_batch = self.sharding(batch_spec(self.kind))
        step = step_of(self.configuration, lambda x: jax.lax.with_sharding_constraint(x, by_batch))
        arguments = self.arguments()
        return jax.jit(step, in_shardings=arguments, out_shardings=(arguments[0], self.sharding(())))


def sharded_text(c: Configuration, kind: str, devices: int) -> str:
    """Returns the HLO of the step, with annotations for a mesh of these devices."""
    jax: Any = importlib.import_module("jax")
    axes = mesh_axes(kind, devices)
    sharded = Sharded(c, kind, jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes)))
    traced = sharded.jitted().trace(parameters(c), *batch(c))
    return hlo_text(traced.lower(lowering_platforms=("cpu",)))


def hlo_text(lowered: Any) -> str:
    """Returns the HLO of a lowered function, with all constants in full."""
    options: Any = importlib.import_module("jaxlib._hlo").HloPrintOptions()
    options.print_large_constants = True
    return lowered.compiler_ir("hlo").as_hlo_module().to_string(options)


def flat(weights: Mapping[str, Any], *rest: Any) -> list[Any]:
    """Returns the leaves of the step's arguments, in the order of the program's parameters."""
    return [weights[name] for name in sorted(weights)] + [*rest]


def matmuls(module: hloom.Module) -> Callable[[], None]:
    """Returns a function that computes products of the sizes of all contractions, contiguous ones."""
    sizes: Counter[tuple[int, int, int, int]] = Counter()
    for i in module.entry:
        if is_contraction(i):
            rule = i.op.sharding_rule(i.call)
            places = [{f for dim in value for f in dim} for value in rule.values()]
            product = [1, 1, 1, 1]
            for number, factor in enumerate(rule.factors):
                left, right = number in places[0], number in places[1]
                kind = 3 if factor.kind is FactorKind.REDUCTION else 0 if left and right else 1 if left else 2
                product[kind] *= factor.size
            sizes[product[0], product[1], product[2], product[3]] += 1
    rng = np.random.default_rng(0)
    work: list[tuple[int, Array, Array, Array]] = []
    for (count, rows, columns, inner), uses in sizes.items():
        left, right = (rng.standard_normal(s, np.float32) for s in ((count, rows, inner), (count, inner, columns)))
        work.append((uses, left, right, np.empty((count, rows, columns), np.float32)))

    def run() -> None:
        for uses, left, right, out in work:
            for _ in range(uses):
                np.matmul(left, right, out=out)

    return run
