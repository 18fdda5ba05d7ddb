"""`hloom.jax.plan`: shardings of a function's arguments and results."""

from __future__ import annotations

from typing import Any

import hloom
import hloom.jax
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster

jax: Any = pytest.importorskip("jax")
unsharded_step = pytest.importorskip("unsharded_step")
pytest.importorskip("highspy")


def test_shardings_have_the_trees_of_arguments_and_results() -> None:
    step, shapes = unsharded_step.program()
    found: Any = hloom.jax.plan(step, *shapes, machine="cpu-cluster", mesh="2x2", seconds=1, donate_argnums=0)
    weights, x, y = found.in_specs
    assert set(weights) == {"up", "down"}
    new, loss = found.out_specs
    assert new == weights  # a step takes its weights as it returns them
    assert loss == jax.sharding.PartitionSpec()
    assert len(x) == len(y) == 2
    assert any((*weights["up"], *x))
    mesh = jax.sharding.AbstractMesh((2, 2), ("data", "model"))
    inputs, outputs = found.shardings(mesh)
    jitted = jax.jit(step, in_shardings=inputs, out_shardings=outputs, donate_argnums=0)
    lowered = jitted.trace(*shapes).lower(lowering_platforms=("cpu",))
    module = hloom.jax.from_jax(lowered)
    assert str(module.entry.parameters[1].annotation) == str(found.plan.module.entry.parameters[1].sharding)


def test_arguments_are_divided_evenly() -> None:
    """`jax.jit` takes no others; values inside may be divided unevenly."""
    shapes = [jax.ShapeDtypeStruct(dims, "float32") for dims in ((18, 50), (50, 30), (30, 18))]
    machine = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)

    def function(x: Any, w: Any, v: Any) -> Any:
        return (jax.numpy.tanh(x @ w) @ v).sum()

    found: Any = hloom.jax.plan(function, *shapes, machine=machine, mesh="4", seconds=2)
    mesh = jax.sharding.AbstractMesh((4,), ("data",))
    inputs, outputs = found.shardings(mesh)
    jitted = jax.jit(function, in_shardings=inputs, out_shardings=outputs)
    jitted.trace(*shapes).lower(lowering_platforms=("cpu",))
    inside = [value for value in found.plan.module.entry if value.opcode == "tanh"]
    assert any(not one.sharding.tiling(2).is_even(one.shape.dims) for one in inside)
    module = hloom.jax.from_jax(function, *shapes)
    assert hloom.prove(module, hloom.partition(found.plan.module, machine=machine)).is_equal


def test_static_arguments_have_no_specs() -> None:
    def power(x: Any, count: int, y: Any) -> Any:
        return x**count + y

    shape = jax.ShapeDtypeStruct((64,), "float32")
    options: dict[str, Any] = {"machine": "h100", "mesh": "4", "seconds": 1}
    found: Any = hloom.jax.plan(power, shape, 2, shape, static_argnums=1, **options)
    again: Any = hloom.jax.plan(jax.jit(power, static_argnums=1).trace(shape, 2, shape), **options)
    assert len(found.in_specs) == 2
    assert (again.in_specs, again.out_specs) == (found.in_specs, found.out_specs)
    inputs, outputs = found.shardings(jax.sharding.AbstractMesh((4,), ("data",)))
    jax.jit(power, static_argnums=1, in_shardings=inputs, out_shardings=outputs).trace(shape, 2, shape)


def test_random_keys_have_the_specs_of_their_own_dimensions() -> None:
    def step(key: Any, keys: Any, x: Any) -> Any:
        return jax.random.fold_in(key, 1), keys, x + jax.vmap(jax.random.uniform)(keys)[:, None]

    arguments = jax.random.key(0), jax.random.split(jax.random.key(1), 8), jax.ShapeDtypeStruct((8, 4), "float32")
    found: Any = hloom.jax.plan(step, *arguments, machine="h100", mesh="4", seconds=1, keep=["keys=data,"])
    P = jax.sharding.PartitionSpec
    assert found.in_specs[:2] == (P(), P("data"))
    assert found.out_specs[0] == P()
    inputs, outputs = found.shardings(jax.sharding.AbstractMesh((4,), ("data",)))
    jax.jit(step, in_shardings=inputs, out_shardings=outputs).trace(*arguments)


def test_python_functions_are_called_on_one_device() -> None:
    def step(x: Any, w: Any) -> Any:
        y = jax.numpy.tanh(x @ w)
        jax.debug.print("{}", y.sum())
        return y

    shapes = jax.ShapeDtypeStruct((64, 32), "float32"), jax.ShapeDtypeStruct((32, 16), "float32")
    machine = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)
    found: Any = hloom.jax.plan(step, *shapes, machine=machine, mesh="4", seconds=1)
    assert found.in_specs[0] == jax.sharding.PartitionSpec("data", None)
    assert hloom.partition(found.plan.module).devices == 4


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"mesh": (2, 4)}, "plan: mesh must be Mapping, str or None, found tuple"),
        ({"keep": "x=data,"}, "plan: keep must be Sequence, found str"),
        ({"memory": "1GB"}, "plan: memory must be int, found str"),
    ],
)
def test_arguments_of_wrong_types(option: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        hloom.jax.plan(jax.numpy.negative, jax.ShapeDtypeStruct((64,), "float32"), machine="h100", **option)


def test_too_few_devices_are_an_error() -> None:
    found = hloom.jax.plan(jax.numpy.negative, jax.ShapeDtypeStruct((64,), "float32"), machine="h100", mesh="64")
    with pytest.raises(hloom.CompileError, match="the plan is for 64 devices"):
        found.mesh()
