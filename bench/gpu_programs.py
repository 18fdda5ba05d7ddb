"""Programs for one GPU: kernels by which rates can be fitted, small functions, and whole steps, which are held apart.

`gpu_forecasts.py` exports them for `gpu_measure.py`, and compares what was measured with forecasts.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from memory_programs import CASES
from models import decode, dense, experts, images
from models.conformer import Conformer, conformer
from models.dense import MEGATRON, Transformer
from models.training import Program

ONE = {"data": 1, "model": 1}
BF16, F32, F64, S32 = "bfloat16", "float32", "float64", "int32"


@dataclass(frozen=True)
class GpuProgram:
    """A function and the shapes of its arguments, of which those in `donated` give their memory to results.

    Those of the table `kernels` may be fitted; all others are held apart.
    """

    table: str
    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def like(*dims: int, kind: str = BF16) -> Any:
    """Returns the shape of an argument."""
    return jax.ShapeDtypeStruct(dims, kind)


def programs() -> Iterator[GpuProgram]:
    """Yields all programs, those that are fitted first."""
    yield from kernels()
    yield from small()
    yield from steps()


def kernels() -> Iterator[GpuProgram]:
    """Yields products, and functions that memory bounds."""
    for kind, rows, columns, depth in PRODUCTS:
        name = f"product {kind} {rows} x {columns} x {depth}"
        yield GpuProgram("kernels", name, jnp.matmul, (like(rows, depth, kind=kind), like(depth, columns, kind=kind)))
    for batch, rows, columns, depth in BATCHED:
        name = f"products {batch} x {rows} x {columns} x {depth}"
        yield GpuProgram("kernels", name, jnp.matmul, (like(batch, rows, depth), like(batch, depth, columns)))
    for name, function, *arguments in functions():
        yield GpuProgram("kernels", name, function, tuple(arguments))


PRODUCTS = [
    (BF16, 16384, 8192, 8192), (BF16, 8192, 8192, 8192), (BF16, 4096, 4096, 4096), (BF16, 2048, 2048, 2048),
    (BF16, 1024, 1024, 1024), (BF16, 512, 512, 512), (BF16, 16, 8192, 8192), (BF16, 128, 8192, 8192),
    (BF16, 512, 8192, 8192), (BF16, 8192, 8192, 128), (BF16, 8192, 128, 8192), (BF16, 8192, 2048, 2048),
    (BF16, 8192, 5632, 2048), (BF16, 4096, 28672, 8192), (BF16, 8192, 32000, 2048), (BF16, 3000, 3000, 3000),
    (BF16, 2048, 2048, 32768), (BF16, 256, 256, 65536), (F32, 8192, 8192, 8192), (F32, 4096, 4096, 4096),
    (F32, 2048, 2048, 2048), (F32, 512, 512, 512),
]  # fmt: skip
"""Types, rows, columns and depths."""
BATCHED = [
    (64, 2048, 2048, 128), (64, 2048, 128, 2048), (512, 512, 512, 64), (32, 4096, 4096, 64), (8, 2048, 8192, 2048),
]  # fmt: skip


def functions() -> Iterator[tuple[Any, ...]]:
    """Yields names, functions and the shapes of their arguments."""
    large = like(8192, 8192, kind=F32)
    yield "add, f32", lambda x, y: x + y, large, large
    yield "add, bf16", lambda x, y: x + y, like(16384, 8192), like(16384, 8192)
    yield "add, small", lambda x, y: x + y, like(64, 64, kind=F32), like(64, 64, kind=F32)
    yield "add, 4 MB", lambda x, y: x + y, like(1024, 1024, kind=F32), like(1024, 1024, kind=F32)
    yield "gelu", jax.nn.gelu, like(16384, 8192)
    yield "sum of rows", lambda x: x.sum(1), large
    yield "sum of columns", lambda x: x.sum(0), large
    yield "sum of all", lambda x: x.sum(), large
    yield "softmax", jax.nn.softmax, like(16384, 4096, kind=F32)
    yield "softmax, long", jax.nn.softmax, like(2048, 32000, kind=F32)
    yield "transpose", lambda x: x.T + 1, large
    yield "conversion", lambda x: x.astype(BF16), large
    yield "rows of a table", lambda table, rows: table[rows], like(128256, 4096), like(16384, kind=S32)
    yield ("sums into a table", lambda rows, x: jnp.zeros((32000, 4096), F32).at[rows].add(x), like(16384, kind=S32),
           like(16384, 4096, kind=F32))  # fmt: skip
    yield "cumulative sum", lambda x: jnp.cumsum(x, 1), like(4096, 4096, kind=F32)
    yield "sort", lambda x: jnp.sort(x, 1), like(256, 65536, kind=F32)
    yield "random bits", lambda key: jax.random.bernoulli(jax.random.key(key), 0.9, (8192, 8192)), like(kind=S32)
    yield "fft", lambda x: jnp.abs(jnp.fft.rfft(x)), like(4096, 8192, kind=F32)
    yield "norm", norm, like(16384, 4096), like(4096)
    yield "chain of ten sums", chain, like(1024, 1024, kind=F32)
    image, order = like(64, 56, 56, 256), ("NHWC", "HWIO", "NHWC")
    yield ("convolution", lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=order), image,
           like(3, 3, 256, 256))  # fmt: skip
    yield "loop of small sums", lambda x: lax.fori_loop(0, 1000, lambda _, x: x * 0.5 + 1, x), like(64, 64, kind=F32)


def norm(x: Any, scale: Any) -> Any:
    """Divides rows by their root mean squares, in f32."""
    y = x.astype(F32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def chain(x: Any) -> Any:
    """Sums rows and columns in turns; each sum waits for the one before."""
    for n in range(10):
        x = x - x.mean(n % 2, keepdims=True)
    return x


def small() -> Iterator[GpuProgram]:
    """Yields the functions of `memory_programs`, whose kernels take microseconds: of gradients what they derive, and of
    steps that take over memory what they compute.
    """
    for make in CASES:
        function, arguments = make()
        name = make.__name__.strip("_").replace("_", " ").replace("gradient", "without gradient")
        yield GpuProgram("small", name, getattr(function, "__wrapped__", function), arguments)


def case(name: str) -> Callable[..., Any]:
    """Returns a function of `memory_programs`."""
    function, _ = next(make for make in CASES if make.__name__ == name)()
    return getattr(function, "__wrapped__", function)


def steps() -> Iterator[GpuProgram]:
    """Yields whole steps: transformers, experts, images, speech, decoding, recurrence."""
    base = Transformer(layers=4, width=2048, hidden=8192, heads=16, head=128, vocabulary=32000, batch=4, sequence=2048,
                       positions="learned", gated=False)  # fmt: skip
    llama = replace(base, hidden=5632, kv_heads=4, positions="rotary", gated=True, tied=False)
    wide = replace(llama, layers=2, width=4096, hidden=14336, heads=32, kv_heads=8, batch=2)
    for name, model in {
        "gpt": base, "gpt, remat": replace(base, remat=True), "gpt, unrolled": replace(base, scan=False),
        "gpt, short": replace(base, sequence=256, batch=32), "gpt, f32": replace(base, dtype=F32, layers=2),
        "gpt, narrow": replace(base, layers=12, width=768, hidden=3072, heads=12, head=64, sequence=1024, batch=8),
        "llama": llama, "llama, wide": wide, "llama, long": replace(llama, batch=1, sequence=8192, remat=True),
    }.items():  # fmt: skip
        yield of_model(name, dense.dense(model, ONE, MEGATRON))
    mixture = replace(base, hidden=2048, batch=8, sequence=1024, positions="distance")
    yield of_model("experts", experts.experts(experts.Experts(mixture, 8, 8, 256), {"data": 1}))
    yield of_model("conformer", conformer(Conformer(8, 512, 2048, 8, 64, 32, 16, 1024), ONE))
    one = {"data": 1, "z": 1, "y": 1}
    yield of_model("unet", images.images(images.UNet(2, 64, 32, 3), one, ("z", "y", None)))
    yield of_model("resnet", images.images(images.ResNet(64, 224, 64, (3, 4, 6, 3), 1000), ONE, ("model", None)))
    large = replace(base, layers=8, width=4096, hidden=14336, heads=32, gated=True, positions="", batch=16)
    yield of_model("decode", decode.decoding(large, ONE, decode.HEADS, 8))
    yield of_model("decode, one sequence", decode.decoding(replace(large, batch=1), ONE, decode.HEADS, 8))
    yield GpuProgram("steps", "mlp", mlp_step, ((like(8192, 8192),) * 4, like(8192, 8192), like(8192, 8192)), (0,))
    yield GpuProgram("steps", "adam", case("_adam"), (like(16384, 8192, kind=F32),) * 4, (0, 1, 2))
    yield GpuProgram("steps", "lstm", jax.grad(lstm), (like(2048, 4096, kind=F32), like(256, 64, 1024, kind=F32)))
    yield GpuProgram("steps", "newton schulz", newton_schulz, (like(4096, 8192),))
    yield GpuProgram("steps", "attention", jax.grad(attention), (like(4, 2048, 2048), like(3, 2048, 16, 128)))
    words = (like(8192, 32000, kind=F32), like(8192, kind=S32))
    yield GpuProgram("steps", "cross entropy", jax.grad(case("_cross_entropy_gradient")), words)
    graph = (like(65536, 256, kind=F32), like(256, 256, kind=F32), *(like(1 << 20, kind=S32),) * 2)
    yield GpuProgram("steps", "graph", case("_sums_of_segments"), graph)
    yield GpuProgram("steps", "stencil", stencil, (like(4096, 4096, kind=F32),))
    yield GpuProgram("steps", "linear recurrence", case("_linear_recurrence"), (like(4096, 4096, kind=F32),) * 2)
    points = (like(1 << 20, 64, kind=F32), like(256, 64, kind=F32))
    yield GpuProgram("steps", "clusters", case("_means_of_clusters"), points)


def of_model(name: str, program: Program) -> GpuProgram:
    """Returns a model's program."""
    return GpuProgram("steps", name, program.function, program.arguments, program.donated)


def mlp_step(weights: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        h = x
        for w in weights:
            h = jax.nn.relu(h @ w)
        return ((h - y).astype(F32) ** 2).mean()

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def lstm(w: Any, x: Any) -> Any:
    def step(state: Any, t: Any) -> Any:
        h, c = state
        i, f, o, g = jnp.split(jnp.concatenate([h, t], -1) @ w, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (x[0], x[0]), x)[1].sum()


def newton_schulz(g: Any) -> Any:
    x = g / jnp.sqrt((g.astype(F32) ** 2).sum() + 1e-7).astype(g.dtype)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


def attention(x: Any, w: Any) -> Any:
    q, k, v = (jnp.einsum("bsm,mhd->bhsd", x, w[n]) for n in range(3))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(F32) / 11
    scores = jnp.where(jnp.tri(scores.shape[-1], dtype=bool), scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores).astype(x.dtype), v).astype(F32).sum()


def stencil(x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        return 0.25 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1))

    return lax.fori_loop(0, 100, step, x)
