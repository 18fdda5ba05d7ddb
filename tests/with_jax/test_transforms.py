"""What JAX's transformations make of the equation of a compiled function. The table has their numbers."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import hloom.jax
import pytest

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy

calls: Any = hloom.jax.jit(lambda x, y: (jnp.sin(x) * x + y).sum())


def equations(function: Any, *args: Any) -> list[Any]:
    """Returns the equations of compiled functions in a function."""
    found = jax.make_jaxpr(function)(*args).eqns
    inner = [e.params["jaxpr"].eqns if e.primitive.name == "jit" else [e] for e in found]
    return [e for part in inner for e in part if e.primitive.name == "hloom_jit"]


def test_a_gradient_is_two_equations_that_hloom_compiles() -> None:
    forward, backward = equations(jax.grad(calls), jnp.ones(3), jnp.ones(3))
    assert "sin" in str(forward.params["jaxpr"])
    assert "sin" not in str(backward.params["jaxpr"])
    assert "compiled by Hloom" in str(forward.params["call"])


def test_residuals_that_are_arguments_are_not_results_as_well() -> None:
    forward, backward = equations(jax.grad(hloom.jax.jit(lambda x, y: (x * y).sum())), jnp.ones(3), jnp.ones(3))
    assert [v.aval.shape for v in forward.outvars] == [()]
    assert [v.aval.shape for v in backward.invars] == [(3,), ()]


def test_a_derivative_is_traced_once() -> None:
    first, second = (equations(jax.grad(calls), jnp.ones(3), jnp.ones(3)) for _ in range(2))
    assert all(a.params["jaxpr"] is b.params["jaxpr"] for a, b in zip(first, second, strict=True))


def test_results_that_do_not_depend_on_mapped_arguments_stay_as_they_are() -> None:
    f = hloom.jax.jit(lambda x, y: (x * 2, y * 2))
    (mapped,) = equations(jax.vmap(f, in_axes=(0, None), out_axes=(0, None)), jnp.ones((4, 3)), jnp.ones(3))
    assert [v.aval.shape for v in mapped.outvars] == [(4, 3), (3,)]


def test_manual_regions_are_left_as_they_are() -> None:
    if len(jax.devices()) < 8:
        pytest.skip("XLA has fewer than eight devices")
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("d")
    f = jax.shard_map(hloom.jax.jit(jnp.sin), mesh=mesh, in_specs=spec, out_specs=spec)
    assert jax.jit(f).lower(jnp.ones(8)).as_text().count("sdy.manual_computation") == 1
