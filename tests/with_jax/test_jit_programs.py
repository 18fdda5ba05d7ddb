"""`hloom.jax.jit` on all JAX programs of the tests, their arguments constrained at random, unevenly too."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloom.jax
import numpy as np
import pytest
from programs.jax_programs import PROGRAMS
from support.sharded_jax import jax_program_names

jax: Any = pytest.importorskip("jax")
NAMES = jax_program_names()


def constrained(function: Callable[..., Any], mesh: Any, seed: int) -> Callable[..., Any]:
    """The function, its arguments divided by random axes of the mesh."""

    def run(*args: Any) -> Any:
        rng = np.random.default_rng(seed)

        def constrain(value: Any) -> Any:
            if value.ndim == 0 or jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
                return value
            spec: list[tuple[str, ...]] = [()] * value.ndim
            for axis in (("x",), ("y",), ("x", "y"), ())[rng.integers(4)]:
                dim = int(rng.integers(value.ndim))
                spec[dim] = (*spec[dim], axis)
            sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
            return jax.lax.with_sharding_constraint(value, sharding)

        return function(*jax.tree.map(constrain, args))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_same_numbers(name: str) -> None:
    if len(jax.devices()) < 8:
        pytest.skip("XLA has fewer than eight devices")
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    function, args = PROGRAMS[name]()
    wanted = function(*jax.tree.map(jax.numpy.array, args))
    found = hloom.jax.jit(constrained(function, mesh, NAMES.index(name)), mesh=mesh)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
        largest = np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * largest)
