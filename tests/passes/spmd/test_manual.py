"""Manual regions: shard_map programs of JAX, partitioned and run on eight simulated devices, give JAX's numbers."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.frontends.proto import read_module
from hloom.runtime.simulator import simulate
from support.partition_check import difference

jax: Any = pytest.importorskip("jax")

Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("x", "y"))


def spec(*axes: Any) -> Any:
    return jax.sharding.PartitionSpec(*axes)


def normal(*dims: int) -> Any:
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def mapped(body: Callable[..., Any], in_specs: Any, out_specs: Any, **options: Any) -> Callable[..., Any]:
    return jax.shard_map(body, mesh=mesh(), in_specs=in_specs, out_specs=out_specs, check_vma=False, **options)


@program
def every_collective() -> Program:
    lax = jax.lax

    def body(x: Any) -> Any:
        total = lax.psum(x, "x") + lax.pmax(x, "y") + lax.axis_index("y")
        moved = lax.ppermute(total, "y", [(0, 1), (1, 2), (2, 3), (3, 0)])
        swapped = lax.all_to_all(moved, "y", 0, 1, tiled=True)
        return lax.psum_scatter(lax.all_gather(swapped, "x", tiled=True), "x", tiled=True).sum()[None]

    return mapped(body, spec("x", "y"), spec(("x", "y"))), (normal(8, 16),)


@program
def matmul_and_outside() -> Program:
    inner = mapped(lambda a, b: jax.lax.psum(a @ b, "y"), (spec("x", "y"), spec("y", None)), spec("x", None))
    return lambda a, b: jax.numpy.tanh(inner(a * 2, b).T @ a), (normal(16, 32), normal(32, 8))


@program
def one_axis_of_two() -> Program:
    """The other axis is the partitioner's: it divides the batch inside."""
    place = jax.sharding.NamedSharding(mesh(), spec("x", "y"))

    def body(a: Any, b: Any) -> Any:
        return jax.lax.psum(jax.numpy.sin(a) @ b, "y")

    inner = mapped(body, (spec(None, "y"), spec("y", None)), spec(None, None), axis_names={"y"})
    return lambda a, b: inner(jax.lax.with_sharding_constraint(a, place), b) + 1, (normal(16, 32), normal(32, 8))


@program
def loop_inside() -> Program:
    def body(x: Any) -> Any:
        def step(_: Any, y: Any) -> Any:
            return y + jax.lax.ppermute(y, "y", [(i, (i + 1) % 4) for i in range(4)])

        return jax.lax.fori_loop(0, 3, step, x)

    return mapped(body, spec("x", "y"), spec("x", "y")), (normal(4, 8),)


@program
def region_in_a_loop() -> Program:
    inner = mapped(lambda x: jax.lax.psum(x, "x") * 0.25, spec("x", "y"), spec(None, "y"))

    def step(x: Any, _: Any) -> Any:
        y = inner(x)
        return jax.numpy.concatenate([y, y], 0), y.sum()

    return lambda x: jax.lax.scan(step, x, None, length=3), (normal(4, 8),)


@program
def nested() -> Program:
    def inner(x: Any) -> Any:
        return x - jax.lax.psum(x, "y")

    def outer(x: Any) -> Any:
        y = jax.lax.psum(x, "x")
        return jax.shard_map(inner, in_specs=spec(None, "y"), out_specs=spec(None, "y"), axis_names={"y"},
                             check_vma=False)(y)

    return mapped(outer, spec("x", None), spec(None, None), axis_names={"x"}), (normal(4, 8),)


@program
def gradient() -> Program:
    def loss(a: Any, b: Any) -> Any:
        inner = mapped(lambda a, b: jax.lax.psum(a @ b, "y"), (spec("x", "y"), spec("y", None)), spec("x", None))
        return (inner(a, b) ** 2).sum()

    return jax.grad(loss, argnums=(0, 1)), (normal(8, 16), normal(16, 4))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_manual(name: str) -> None:
    function, arguments = PROGRAMS[name]()
    lowered = jax.jit(function).lower(*arguments)
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*arguments))]
    module = hloom.parse(lowered.as_text(dialect="hlo"))
    local = hloom.partition(module)
    assert local.num_partitions == 8
    found = simulate(local, list(arguments), poison=True)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def without_metadata(module: hloom.Module) -> str:
    return re.sub(r", metadata=\{[^}]*\}", "", module.to_text())


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_serialized_regions_are_those_of_the_text(name: str) -> None:
    """XLA's serialized module and ours give the same program per device as the text."""
    function, arguments = PROGRAMS[name]()
    text: str = jax.jit(function).lower(*arguments).as_text(dialect="hlo")
    module = hloom.parse(text)
    expected = without_metadata(hloom.partition(module))
    theirs: bytes = importlib.import_module("jaxlib._hlo").hlo_module_from_text(text).as_serialized_hlo_module_proto()
    for data in (theirs, module.to_proto()):
        assert without_metadata(hloom.partition(read_module(data))) == expected


def test_the_program_has_the_device_order_of_its_regions() -> None:
    """Though more annotations are in another, and nothing inside of the region names a mesh."""
    module = hloom.parse("""HloModule m, num_partitions=4
ENTRY e {
  x = f32[4,8] parameter(0), sharding={devices=[1,4]<=[4]}
  y = f32[4,8] negate(x), sharding={devices=[1,4]<=[4]}
  z = f32[4,8] negate(y), sharding={devices=[1,4]<=[4]}
  s = f32[4,8] custom-call(z), custom_call_target="Sharding", sharding={devices=[4,1]0,3,1,2}
  i = f32[1,8] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}
  t = f32[1,8] tanh(i)
  c = f32[1,8] custom-call(t), custom_call_target="Sharding", sharding={manual}
  ROOT r = f32[4,8] custom-call(c), custom_call_target="SPMDShardToFullShape", sharding={devices=[4,1]0,3,1,2}
}
""")
    assert difference(module, [np.arange(32, dtype=np.float32).reshape(4, 8)]) is None
