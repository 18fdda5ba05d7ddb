"""Meshes with explicit axes: shardings are part of types, after JAX's page on explicit sharding."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.jax_rows import explicit_mesh, put, row

P = jax.sharding.PartitionSpec
AxisType = jax.sharding.AxisType
X = np.arange(64, dtype=np.float32).reshape(8, 8) / 9


def under(jit: Any, function: Any, *specs: Any, mesh: Any = None, **options: Any) -> Any:
    """Calls a function under jax.set_mesh, and returns the result with the types of all values that it notes."""
    noted: list[str] = []

    def run(*args: Any) -> Any:
        return function(lambda value: noted.append(str(jax.typeof(value))) or value, *args)

    with jax.set_mesh(explicit_mesh() if mesh is None else mesh):
        found = jit(run, **options)(*(jax.device_put(X, P(*spec)) for spec in specs))
        return found, jax.tree.map(lambda v: v.sharding, found), noted


@row("explicit: element-wise ops keep shardings")
def elementwise(jit: Any) -> Any:
    return under(jit, lambda note, x, y: note(jnp.sin(x) * 2 + y), ("x", "y"), ("x", "y"))


@row("explicit: operands that disagree", fails=True)
def disagree(jit: Any) -> Any:
    return under(jit, lambda note, x, y: x + y, ("x",), ("y",))


@row("explicit: sums")
def sums(jit: Any) -> Any:
    return under(jit, lambda note, x: (note(x.sum(0)), note(x.sum(1)), note(x.sum())), ("x", "y"))


@row("explicit: products without a choice")
def product(jit: Any) -> Any:
    return under(jit, lambda note, x, w: note(x @ w), ("x", None), (None, "y"))


@row("explicit: an ambiguous product is an error", fails=True)
def ambiguous(jit: Any) -> Any:
    return under(jit, lambda note, x, w: x @ w, ("x", "y"), ("y", None))


@row("explicit: out_sharding of a product")
def out_sharding(jit: Any) -> Any:
    return under(jit, lambda note, x, w: note(jnp.einsum("ij,jk->ik", x, w, out_sharding=P("x", None))),
                 ("x", "y"), ("y", None))  # fmt: skip


@row("explicit: partial sums that stay unreduced")
def unreduced(jit: Any) -> Any:
    def f(note: Any, x: Any, w: Any) -> Any:
        partial = note(jnp.einsum("ij,jk->ik", x, w, out_sharding=P("x", None, unreduced=frozenset({"y"}))))
        return jax.sharding.reshard(partial, P("x", None))

    return under(jit, f, ("x", "y"), ("y", None))


@row("explicit: reshard")
def reshard(jit: Any) -> Any:
    return under(jit, lambda note, x: note(jax.sharding.reshard(x * 2, P("y", None))) + 1, ("x", None))


@row("explicit: transposes, reshapes and broadcasts")
def shapes(jit: Any) -> Any:
    return under(jit, lambda note, x: (note(x.T), note(x.reshape(8, 2, 4)), note(jnp.broadcast_to(x, (3, 8, 8)))),
                 ("x", None))  # fmt: skip


@row("explicit: a reshape that needs out_sharding")
def ambiguous_reshape(jit: Any) -> Any:
    return under(jit, lambda note, x: x.reshape(64), ("x", "y"))


@row("explicit: a reshape with out_sharding")
def reshape(jit: Any) -> Any:
    return under(jit, lambda note, x: note(jax.lax.reshape(x, (64,), out_sharding=P(("x", "y")))), ("x", "y"))


@row("explicit: slices, gathers and scatters")
def indexing(jit: Any) -> Any:
    columns = jnp.array([1, 2])
    return under(jit, lambda note, x: (note(x[:, 2:6]), note(x.at[:, columns].get(out_sharding=P("x", None)))),
                 ("x", None))  # fmt: skip


@row("explicit: concatenation and padding")
def concatenation(jit: Any) -> Any:
    return under(jit, lambda note, x, y: note(jnp.concatenate([x, y], 1)), ("x", None), ("x", None))


@row("explicit: constants and iota with out_sharding")
def constants(jit: Any) -> Any:
    return under(jit, lambda note, x: x + note(jnp.arange(8, dtype=jnp.float32, out_sharding=P("y")))
                 + note(jnp.zeros((8, 8), out_sharding=P("x", "y"))), ("x", "y"))  # fmt: skip


@row("explicit: random numbers with out_sharding", slow=True)
def random(jit: Any) -> Any:
    return under(jit, lambda note, x: x + note(jax.random.normal(jax.random.key(0), (8, 8), out_sharding=P("x", None))),
                 ("x", None))  # fmt: skip


@row("explicit: sorting, cumulative sums and softmax", slow=True)
def sorting(jit: Any) -> Any:
    return under(jit, lambda note, x: (note(jnp.sort(x, 1)), note(jnp.cumsum(x, 1)), note(jax.nn.softmax(x, 1))),
                 ("x", None))  # fmt: skip


@row("explicit: loops, branches and scans", slow=True)
def control_flow(jit: Any) -> Any:
    def f(note: Any, x: Any) -> Any:
        x = jax.lax.fori_loop(0, 3, lambda _, v: jnp.sin(note(v)) + 1, x)
        x = jax.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v, x)
        return jax.lax.scan(lambda c, v: (c + v, note(v * c)), x[0], x)

    return under(jit, f, (None, "y"), mesh=jax.make_mesh((8,), ("y",)))


@row("explicit: gradients")
def gradients(jit: Any) -> Any:
    def f(note: Any, x: Any, w: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(note(jnp.tanh(x @ w))))(w)

    return under(jit, f, ("x", None), (None, "y"))


@row("explicit: jax.vmap")
def vmap(jit: Any) -> Any:
    return under(jit, lambda note, x: jax.vmap(lambda row: row / row.sum())(x), ("x", None))


@row("explicit: out_shardings of specifications")
def out_shardings(jit: Any) -> Any:
    return under(jit, lambda note, x: x * 2, ("x", None), out_shardings=P("x", None))


@row("explicit: out_shardings that differ from the type")
def other_out_shardings(jit: Any) -> Any:
    return under(jit, lambda note, x: x * 2, ("x", None), out_shardings=P(None, "y"))


@row("explicit: in_shardings of specifications")
def in_shardings(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        found = jit(lambda x: x * 2, in_shardings=P("x", "y"))(X)
        return found, found.sharding


@row("explicit: arguments without jax.set_mesh")
def without_context(jit: Any) -> Any:
    found = jit(lambda x: jnp.sin(x).sum(0))(put(explicit_mesh(), X, "x", "y"))
    return found, found.sharding


@row("explicit: auto_axes")
def auto_axes(jit: Any) -> Any:
    def f(note: Any, x: Any, w: Any) -> Any:
        inner: Any = jax.sharding.auto_axes(lambda a, b: a @ b, axes=("x", "y"))
        return note(inner(x, w, out_sharding=P("x", "y")))

    return under(jit, f, ("x", "y"), ("y", None))


@row("explicit: explicit_axes in an automatic mesh")
def explicit_axes(jit: Any) -> Any:
    def f(note: Any, x: Any) -> Any:
        sine: Any = jax.sharding.explicit_axes(lambda a: note(jnp.sin(a)), axes=("x", "y"), in_sharding=P("x", "y"))
        return sine(x) * 2

    return under(jit, f, ("x",), mesh=jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2))


@row("explicit: one axis explicit, one automatic")
def mixed(jit: Any) -> Any:
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))

    def f(note: Any, x: Any, w: Any) -> Any:
        return note(jax.lax.with_sharding_constraint(note(x @ w), P(None, "y")))

    with jax.set_mesh(mesh):
        return jit(lambda x, w: f(lambda v: v, x, w))(jax.device_put(X, P("x")), jax.device_put(X, P(None, "y")))


@row("explicit: sharding of a scalar and of a small array")
def small(jit: Any) -> Any:
    return under(jit, lambda note, x: (note(x.max()), note(x[:, 0].min()), note(jnp.ones(3) * x.sum())), ("x", None))


@row("explicit: weak types")
def weak(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        return jit(lambda x, k: (x * k, k + 1, jnp.asarray(2.0)))(jax.device_put(X, P("x")), 3)


@row("explicit: random keys that are divided", slow=True)
def keys(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        keys = jax.device_put(jax.random.split(jax.random.key(0), 8), P("x"))
        return jit(jax.vmap(lambda k: jax.random.uniform(k, (2,))))(keys)


@row("explicit: donation")
def donation(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        x = jax.device_put(X, P("x"))
        return jit(lambda x: x + 1, donate_argnums=0)(x), x.is_deleted()


@row("explicit: inside of jax.jit")
def inside(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        inner = jit(lambda x: jnp.tanh(x).sum(1))
        return jax.jit(lambda x: inner(x * 2) + 1)(jax.device_put(X, P("x", "y")))


@row("explicit: uneven dimensions are an error", fails=True)
def uneven(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        return jit(lambda x: jnp.zeros((7, 8), out_sharding=P("y")) + x.sum())(jax.device_put(X, P("x")))


@row("explicit: a training step, its optimizer and its types", slow=True)
def training(jit: Any) -> Any:
    def step(params: Any, x: Any) -> Any:
        def loss(p: Any) -> Any:
            return jnp.mean(jnp.dot(jnp.tanh(x @ p["a"]), p["b"], out_sharding=P("x", None)) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    with jax.set_mesh(explicit_mesh()):
        params = {"a": jax.device_put(X, P(None, "y")), "b": jax.device_put(X / 9, P("y", None))}
        found = jit(step, donate_argnums=0)(params, jax.device_put(X, P("x", None)))
        return found, jax.tree.map(lambda v: v.sharding, found)
