"""Manual regions that take some of the axes and ask where they are: pipelines, rings, nested regions, in loops.

Each is a program of JAX: its numbers on eight virtual devices, those of the partitioned program, and the reference
meaning (every device computes whole arrays outside of regions) are the same.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.runtime.simulator import simulate

jax: Any = pytest.importorskip("jax")
lax, jnp = jax.lax, jax.numpy

Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def mesh(kind: str = "cube") -> Any:
    devices = np.array(jax.devices("cpu")[:8])
    if kind == "stages":
        return jax.sharding.Mesh(devices.reshape(4, 2), ("s", "t"))
    cube = devices.reshape(2, 2, 2)
    return jax.sharding.Mesh(cube.transpose(2, 0, 1) if kind == "turned" else cube, ("a", "b", "c"))


def spec(*axes: Any) -> Any:
    return jax.sharding.PartitionSpec(*axes)


def normal(*dims: int) -> Any:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def mapped(body: Callable[..., Any], axes: str, ins: Any, outs: Any, over: str | None = "cube") -> Callable[..., Any]:
    """`shard_map` by the axes named by these letters; a nested one takes the mesh around it (`over` is None)."""
    around = {} if over is None else {"mesh": mesh(over)}
    return jax.shard_map(body, in_specs=ins, out_specs=outs, axis_names=set(axes), check_vma=False, **around)


def ring(size: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % size) for i in range(size)]


@program
def one_axis() -> Program:
    return mapped(lambda x: x * lax.axis_index("b"), "b", spec("b"), spec("b")), (normal(8, 4),)


@program
def two_axes_minor_first() -> Program:
    both = spec(("c", "a"))
    return mapped(lambda x: x * (lax.axis_index(("c", "a")) + 1), "ac", both, both), (normal(8, 4),)


@program
def devices_in_another_order() -> Program:
    both = spec(None, ("c", "a"))
    return mapped(lambda x: x * (lax.axis_index(("a", "c")) + 1), "ac", both, both, "turned"), (normal(8, 8),)


@program
def every_collective() -> Program:
    def body(x: Any) -> Any:
        y = lax.psum(x, "a") + lax.axis_index("a")
        y = lax.all_gather(y, "c", axis=1, tiled=True)
        y = lax.all_to_all(y, ("a", "c"), 1, 0, tiled=True)
        y = lax.psum_scatter(y, "c", scatter_dimension=0, tiled=True)
        return lax.ppermute(y, ("c", "a"), ring(4)) * lax.axis_index(("c", "a"))

    return mapped(body, "ac", spec("a", "c"), spec(("a", "c"))), (normal(16, 16),)


@program
def scan_inside() -> Program:
    def body(x: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            y = y + lax.ppermute(y, "a", ring(2)) * lax.axis_index("a")
            return y, lax.psum(y, "a").sum()

        return lax.scan(step, x, None, length=3)

    return mapped(body, "a", spec("a"), (spec("a"), spec())), (normal(8, 4),)


@program
def while_inside() -> Program:
    def body(x: Any) -> Any:
        def step(state: Any) -> Any:
            return state[0] + 1, state[1] * (1 + lax.axis_index("c"))

        return lax.while_loop(lambda state: state[0] < 3, step, (0, x))[1]

    return mapped(body, "c", spec("c"), spec("c")), (normal(8, 4),)


@program
def branches_by_place() -> Program:
    def body(x: Any) -> Any:
        first = lax.axis_index("b") == 0
        return lax.cond(first, lambda x: x * 2 + lax.axis_index("b"), lambda x: x - lax.axis_index("b"), x)

    return mapped(body, "b", spec("b"), spec("b")), (normal(8, 4),)


@program
def region_in_a_scan() -> Program:
    inner = mapped(lambda x, k: x * (lax.axis_index("a") + k), "a", (spec("a"), spec()), spec("a"))
    return lambda x: lax.scan(lambda y, k: (inner(y, k), y.sum()), x, jnp.arange(1.0, 4.0)), (normal(8, 4),)


@program
def nested() -> Program:
    def inner(x: Any) -> Any:
        return x + lax.axis_index("b") * 10 + lax.axis_index("a")

    def outer(x: Any) -> Any:
        y = mapped(inner, "b", spec(None, "b"), spec(None, "b"), None)(x)
        return y * lax.psum(lax.axis_index("a") + 1, "a")

    return mapped(outer, "a", spec("a"), spec("a")), (normal(8, 4),)


@program
def nested_major_axis_inside() -> Program:
    def inner(x: Any) -> Any:
        return lax.psum(x, "a") * lax.axis_index("c") + lax.axis_index("a")

    def outer(x: Any) -> Any:
        return mapped(inner, "a", spec("a"), spec("a"), None)(x) + lax.axis_index("c")

    return mapped(outer, "c", spec(None, "c"), spec(None, "c")), (normal(8, 4),)


@program
def nested_thrice() -> Program:
    def third(x: Any) -> Any:
        return x * (1 + lax.axis_index("c")) + lax.axis_index("b") - lax.axis_index("a")

    def second(x: Any) -> Any:
        return mapped(third, "c", spec(None, None, "c"), spec(None, None, "c"), None)(x)

    def first(x: Any) -> Any:
        return mapped(second, "b", spec(None, "b"), spec(None, "b"), None)(x)

    return mapped(first, "a", spec("a"), spec("a")), (normal(4, 4, 4),)


@program
def nested_in_a_scan() -> Program:
    def inner(x: Any) -> Any:
        return lax.ppermute(x, "b", ring(2)) + lax.axis_index("b")

    def outer(x: Any) -> Any:
        def step(y: Any, k: Any) -> Any:
            z = mapped(inner, "b", spec(None, "b"), spec(None, "b"), None)(y)
            return z * (lax.axis_index("a") + k), lax.psum(y, "a").sum()

        return lax.scan(step, x, jnp.arange(3.0))

    return mapped(outer, "a", spec("a"), (spec("a"), spec())), (normal(8, 4),)


@program
def two_regions_in_turn() -> Program:
    f = mapped(lambda x: x + lax.axis_index("b"), "b", spec("b"), spec("b"))
    g = mapped(lambda x: x * lax.axis_index("a"), "a", spec("a"), spec("a"))
    return lambda x: g(f(g(x))), (normal(8, 4),)


@program
def nothing_goes_in() -> Program:
    part = mapped(lambda: jnp.ones((2, 4)) * lax.axis_index("b"), "b", (), spec("b"))
    return lambda x: x + part(), (normal(4, 4),)


@program
def uneven_along_a_free_axis() -> Program:
    def body(x: Any) -> Any:
        return jnp.cumsum(lax.with_sharding_constraint(x, spec(None, "c")), 1) + lax.axis_index("a")

    return mapped(body, "a", spec("a"), spec("a")), (normal(8, 5),)


def gpipe(w: Any, x: Any) -> Any:
    """Six microbatches through four stages; each stage hands its activations to the next one."""
    stages, batches, place = 4, x.shape[0], lax.axis_index("s")

    def tick(state: Any, t: Any) -> Any:
        buffer, out = state
        y = jnp.tanh(jnp.where(place == 0, x[jnp.minimum(t, batches - 1)], buffer) @ w[0])
        done = t - (stages - 1)
        written = lax.dynamic_update_index_in_dim(out, y, jnp.maximum(done, 0), 0)
        out = jnp.where((place == stages - 1) & (done >= 0), written, out)
        return (lax.ppermute(y, "s", ring(stages)), out), None

    (_, out), _ = lax.scan(tick, (jnp.zeros_like(x[0]), jnp.zeros_like(x)), jnp.arange(batches + stages - 1))
    return lax.psum(jnp.where(place == stages - 1, out, 0), "s")


@program
def pipeline() -> Program:
    return mapped(gpipe, "s", (spec("s"), spec()), spec(), "stages"), (normal(4, 8, 8), normal(6, 4, 8))


@program
def pipeline_gradient() -> Program:
    inner, arguments = pipeline()
    return jax.grad(lambda w, x: (inner(w, x) ** 2).sum(), argnums=(0, 1)), arguments


@program
def ring_all_gather_matmul() -> Program:
    def body(x: Any, w: Any) -> Any:
        place, rows = lax.axis_index("s"), x.shape[0]

        def step(t: Any, state: Any) -> Any:
            found, x = state
            found = lax.dynamic_update_slice_in_dim(found, x @ w, (place - t) % 4 * rows, 0)
            return found, lax.ppermute(x, "s", ring(4))

        return lax.fori_loop(0, 4, step, (jnp.zeros((rows * 4, w.shape[1])), x))[0]

    return mapped(body, "s", (spec("s"), spec(None, "s")), spec(None, "s"), "stages"), (normal(8, 6), normal(6, 8))


@program
def ring_matmul_reduce_scatter() -> Program:
    def body(x: Any, w: Any) -> Any:
        place, rows = lax.axis_index("s"), x.shape[0] // 4

        def step(t: Any, total: Any) -> Any:
            part = lax.dynamic_slice_in_dim(x, (place - t - 1) % 4 * rows, rows, 0)
            return lax.ppermute(total, "s", ring(4)) + part @ w

        return lax.fori_loop(0, 4, step, jnp.zeros((rows, w.shape[1])))

    return mapped(body, "s", (spec(None, "s"), spec("s")), spec("s"), "stages"), (normal(8, 8), normal(8, 6))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_region(name: str) -> None:
    function, arguments = PROGRAMS[name]()
    compiled = jax.jit(function)
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*arguments))]
    module = hloom.parse(compiled.lower(*arguments).as_text(dialect="hlo"))
    local = hloom.partition(module)
    assert local.num_partitions == 8
    for found in (simulate(local, list(arguments), poison=True), hloom.evaluate(module, list(arguments))):
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
