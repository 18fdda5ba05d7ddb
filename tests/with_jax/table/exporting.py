"""Exported functions: those that compiled functions are in, and those that are in compiled functions."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from support.jax_arrays import P, data, line, on
from support.jax_rows import row

export: Any = importlib.import_module("jax.export")


def product(x: Any) -> Any:
    return jnp.tanh(x @ x.T)


def loss(x: Any) -> Any:
    return product(x).sum()


@row("jax.export of a compiled function")
def exported(jit: Any) -> Any:
    made = export.export(jit(product))(data())
    return made.call(data()), made.nr_devices, [aval.shape for aval in made.out_avals]


@row("jax.export of a function with a compiled one inside", slow=True)
def exported_outer(jit: Any) -> Any:
    inner = jit(product)
    return export.export(jax.jit(lambda x: inner(x) + x))(data()).call(data())


@row("jax.export on one device", devices=1)
def exported_on_one(jit: Any) -> Any:
    return export.export(jit(jnp.sin))(line()).call(line())


@row("serialized and read again", slow=True)
def serialized(jit: Any) -> Any:
    data_of = export.export(jit(product))(data()).serialize()
    return jax.jit(export.deserialize(data_of).call)(data())


@row("serialized with its gradient", slow=True)
def serialized_gradient(jit: Any) -> Any:
    data_of = export.export(jit(loss))(data()).serialize(vjp_order=1)
    return jax.grad(export.deserialize(data_of).call)(data())


@row("jax.export of a gradient", slow=True)
def exported_gradient(jit: Any) -> Any:
    return export.export(jax.jit(jax.grad(jit(loss))))(data()).call(data())


@row("jax.export of shapes with shardings", slow=True)
def exported_shapes(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=on("x"))
    return export.export(jit(product))(shape).call(data("x"))


@row("jax.export over an abstract mesh", slow=True)
def exported_abstract(jit: Any) -> Any:
    abstract = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(abstract, P("x")))
    with jax.sharding.use_abstract_mesh(abstract):
        made = export.export(jit(lambda x: jnp.sin(x) * 2), platforms=("cpu",))(shape)
    return made.call(data("x"))


@row("jax.export for two platforms", devices=1)
def exported_for_two(jit: Any) -> Any:
    made = export.export(jit(jnp.sin), platforms=("cpu", "cuda"))(line())
    return made.call(line()), made.platforms, [aval.shape for aval in made.out_avals]


@row("jax.export for two platforms, divided", slow=True)
def exported_for_two_divided(jit: Any) -> Any:
    inner = jit(product, out_shardings=on("y", "x"))
    made = export.export(jax.jit(lambda x: inner(x) + x), platforms=("cpu", "tpu"))(data())
    return export.deserialize(made.serialize()).call(data()), made.nr_devices


@row("jax.export with symbolic shapes", devices=1)
def exported_symbolic(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32)
    made = export.export(jit(lambda x: jnp.sin(x) * x.shape[0]))(shape)
    return made.call(line()), made.call(line()[:3]), str(made.out_avals)


@row("jax.export with symbolic shapes, divided", slow=True)
def exported_symbolic_divided(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n, 8"), jnp.float32, sharding=on(None, "y"))
    made = export.export(jit(product, out_shardings=on()))(shape)
    return made.call(data(None, "y")), made.nr_devices, str(made.out_avals)


@row("gradient of an exported function with symbolic shapes", devices=1, slow=True)
def exported_symbolic_gradient(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n, n"), jnp.float32)
    made = export.export(jax.jit(jax.grad(jit(loss))))(shape)
    return made.call(line()[:, None] + line())


@row("symbolic shapes, lowered", devices=1)
def lowered_symbolic(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32)
    return str(jit(jnp.sin).lower(shape).out_info)


@row("jax.export with a callback", slow=True, fails=True)
def exported_callback(jit: Any) -> Any:
    def f(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    return export.export(jit(f))(data()).serialize()


@row("an exported function inside")
def inner_exported(jit: Any) -> Any:
    made = export.export(jax.jit(product))(data())
    return jit(lambda x: made.call(x) + 1)(data())


@row("an exported function is compiled", devices=1, slow=True)
def compiled_exported(jit: Any) -> Any:
    return jit(export.export(jax.jit(jnp.sin))(line()).call)(line())


@row("gradient of an exported function inside", slow=True)
def gradient_of_inner(jit: Any) -> Any:
    made = export.deserialize(export.export(jax.jit(loss))(data()).serialize(vjp_order=1))
    return jit(jax.grad(made.call))(data())


@row("an exported compiled function in another compiled one", slow=True)
def both(jit: Any) -> Any:
    made = export.export(jit(product))(data())
    return jit(lambda x: made.call(x).sum(0))(data())


@row("an exported function with symbolic shapes inside", devices=1, slow=True)
def inner_symbolic(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32)
    return jit(export.export(jax.jit(lambda x: jnp.sin(x).sum()))(shape).call)(line())


@row("an exported function with symbolic shapes inside, divided", slow=True)
def inner_symbolic_divided(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n, 8"), jnp.float32)
    made = export.export(jax.jit(lambda x: jnp.tanh(x @ x.T).sum(0)))(shape)
    return jit(lambda x: made.call(x * 2) + x[0])(data())


@row("sizes that an exported function does not take", devices=1, fails=True)
def inner_symbolic_wrong(jit: Any) -> Any:
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("2*n"), jnp.float32)
    made = export.export(jax.jit(jnp.sin))(shape)
    return jit(lambda x: made.call(x))(line()[:3])


@row("an exported function with random keys inside", devices=1, slow=True)
def inner_keys(jit: Any) -> Any:
    made = export.export(jax.jit(lambda key: jax.random.normal(key, (4,))))(jax.random.key(0))
    return jit(lambda key: made.call(key) * 2)(jax.random.key(1))
