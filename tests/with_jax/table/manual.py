"""Manual regions inside of a compiled function, after JAX's page on manual parallelism."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.jax_rows import auto_mesh, explicit_mesh, put, row

P = jax.sharding.PartitionSpec
lax = jax.lax
X = np.arange(64, dtype=np.float32).reshape(8, 8) / 9


def divided(jit: Any, body: Any, outside: Any, inside: Any = None, mesh: Any = None, **options: Any) -> Any:
    """Runs a manual region on X, with something before and after it."""
    mesh = auto_mesh() if mesh is None else mesh
    inside = P("x", "y") if inside is None else inside
    region = jax.shard_map(body, mesh=mesh, in_specs=inside, out_specs=outside, **options)
    return jit(lambda x: region(x * 2) + 1)(put(mesh, X, *inside))


@row("manual: a sum over one axis")
def psum(jit: Any) -> Any:
    return divided(jit, lambda x: lax.psum(x, "x"), P(None, "y"))


@row("manual: a sum over both axes")
def psum_both(jit: Any) -> Any:
    return divided(jit, lambda x: lax.psum(x, ("x", "y")), P())


@row("manual: largest and smallest values, and means")
def pmax(jit: Any) -> Any:
    return divided(jit, lambda x: lax.pmax(x, "x") + lax.pmin(x, "x") + lax.pmean(x, "x"), P(None, "y"))


@row("manual: gathers, tiled and stacked")
def all_gather(jit: Any) -> Any:
    return divided(jit, lambda x: lax.all_gather(x, "y", axis=1, tiled=True).sum() + lax.all_gather(x, "x")[0],
                   P("x", "y"))  # fmt: skip


@row("manual: scattered sums")
def psum_scatter(jit: Any) -> Any:
    return divided(jit, lambda x: lax.psum_scatter(x, "x", scatter_dimension=0, tiled=True), P("x", "y"))


@row("manual: permutations and shifts")
def ppermute(jit: Any) -> Any:
    return divided(jit, lambda x: lax.ppermute(x, "y", [(n, (n + 1) % 4) for n in range(4)]), P("x", "y"))


@row("manual: all to all")
def all_to_all(jit: Any) -> Any:
    return divided(jit, lambda x: lax.all_to_all(x, "y", 0, 1, tiled=True), P(("x", "y")), inside=P("x", None))


@row("manual: the number of the device")
def axis_index(jit: Any) -> Any:
    return divided(jit, lambda x: x + 10 * lax.axis_index("x") + lax.axis_index(("x", "y")) + lax.axis_size("y"),
                   P("x", "y"))  # fmt: skip


@row("manual: one axis manual, one automatic")
def partial(jit: Any) -> Any:
    return divided(jit, lambda x: lax.psum(jnp.tanh(x @ x.T), "x"), P(), inside=P("x", None), axis_names={"x"})


@row("manual: loops with communication")
def ring(jit: Any) -> Any:
    def body(x: Any) -> Any:
        def shift(_: Any, carry: Any) -> Any:
            total, moving = carry
            moving = lax.ppermute(moving, "y", [(n, (n + 1) % 4) for n in range(4)])
            return total + moving, moving

        return lax.fori_loop(0, 3, shift, (x, x))[0]

    return divided(jit, body, P("x", None), check_vma=False)


@row("manual: a product with overlapped gathers")
def overlapped(jit: Any) -> Any:
    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("i", None), P(None, None)), out_specs=P("i", None))
    def multiply(a: Any, b: Any) -> Any:
        return lax.psum_scatter(jnp.ones((8, 1)) @ a @ b / 8, "i", scatter_dimension=0, tiled=True)

    return jit(multiply)(put(mesh, X, "i"), X)


@row("manual: gradients through a region")
def gradients(jit: Any) -> Any:
    mesh = auto_mesh()
    region = jax.shard_map(lambda x: lax.psum(jnp.sin(x), "x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y"))
    return jit(jax.grad(lambda x: region(x).sum() ** 2))(put(mesh, X, "x", "y"))


@row("manual: regions mapped by jax.vmap", slow=True)
def vmapped(jit: Any) -> Any:
    mesh = auto_mesh()
    region = jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    return jit(jax.vmap(region, in_axes=1))(put(mesh, X, "x"))


@row("manual: a decorated region under jax.set_mesh")
def decorated(jit: Any) -> Any:
    with jax.set_mesh(auto_mesh()):
        @jax.shard_map(in_specs=P("x", "y"), out_specs=P("x"))
        def region(x: Any) -> Any:
            return lax.psum(x.sum(1), "y")

        return jit(lambda x: region(x + 1))(jax.device_put(X, P("x", "y")))


@row("manual: in an explicit mesh")
def explicit(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        region = jax.shard_map(lambda x: lax.psum(jnp.cos(x), "y"), in_specs=P("x", "y"), out_specs=P("x", None))
        return jit(lambda x: region(x * 2) + 1)(jax.device_put(X, P("x", "y")))


@row("manual: a mesh that only the region names")
def only_region(jit: Any) -> Any:
    region = jax.shard_map(lambda x: lax.psum(x, "x"), mesh=auto_mesh(), in_specs=P("x"), out_specs=P())
    found = jit(lambda x: region(x) * 2)(jnp.asarray(X))
    return found, found.sharding.device_set


@row("manual: two regions, and constraints between", slow=True)
def two_regions(jit: Any) -> Any:
    mesh = auto_mesh()
    one = jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y"))
    two = jax.shard_map(lambda x: x - lax.pmax(x, "y"), mesh=mesh, in_specs=P(None, "y"), out_specs=P(None, "y"),
                        check_vma=False)  # fmt: skip
    on = jax.sharding.NamedSharding(mesh, P("y"))
    return jit(lambda x: two(lax.with_sharding_constraint(jnp.tanh(one(x)), on) @ x[:, :4].repeat(2, 1)))(
        put(mesh, X, "x", "y"))


@row("manual: random numbers, different on each device", slow=True)
def random(jit: Any) -> Any:
    def body(x: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(0), lax.axis_index("x"))
        return x + jax.random.uniform(key, x.shape)

    return divided(jit, body, P("x", None), inside=P("x", None))


@row("manual: sizes that the axes do not divide", fails=True)
def uneven(jit: Any) -> Any:
    region = jax.shard_map(lambda x: x, mesh=auto_mesh(), in_specs=P("y"), out_specs=P("y"))
    return jit(region)(X[:7])


@row("manual: results that differ between devices, said to be equal", fails=True)
def unequal(jit: Any) -> Any:
    return divided(jit, lambda x: x, P(None, None))


@row("manual: an axis that is not there", fails=True)
def unknown_axis(jit: Any) -> Any:
    return divided(jit, lambda x: lax.psum(x, "z"), P(None, "y"))


@row("manual: pipelined stages", slow=True)
def pipeline(jit: Any) -> Any:
    mesh = jax.make_mesh((4,), ("stage",), axis_types=(jax.sharding.AxisType.Auto,))

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P("stage"), check_vma=False)
    def run(w: Any, x: Any) -> Any:
        def tick(carry: Any, n: Any) -> Any:
            fresh = jnp.where(lax.axis_index("stage") == 0, x[n % 4], carry)
            done = jnp.tanh(fresh @ w[0])
            return lax.ppermute(done, "stage", [(k, (k + 1) % 4) for k in range(4)]), done

        return lax.scan(tick, jnp.zeros(2), jnp.arange(7))[1][None]

    return jit(run)(np.stack([np.eye(2, dtype=np.float32)] * 4), X[:4, :2])
