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


def test_too_few_devices_are_an_error() -> None:
    found = hloom.jax.plan(jax.numpy.negative, jax.ShapeDtypeStruct((64,), "float32"), machine="h100", mesh="64")
    with pytest.raises(hloom.CompileError, match="the plan is for 64 devices"):
        found.mesh()
