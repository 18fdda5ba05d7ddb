"""The stages of functions ahead of time, with JAX's names."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.jax_rows import auto_mesh, explicit_mesh, put, row

P = jax.sharding.PartitionSpec
SHAPE = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def tanh_sum(x: Any, w: Any) -> Any:
    return {"sum": jnp.tanh(x @ w).sum(0), "x": x}


def divided() -> Any:
    mesh = auto_mesh()
    return put(mesh, np.ones((4, 8), np.float32), "x"), put(mesh, np.ones((8, 4), np.float32), None, "y")


def names(stage: Any, wanted: Any) -> Any:
    return sorted(name for name in dir(wanted) if not name.startswith("_") and hasattr(stage, name))


def shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


@row("the names of a function's stages")
def all_names(jit: Any) -> Any:
    ours, jaxs = jit(tanh_sum), jax.jit(tanh_sum)
    found: list[Any] = [names(ours, jaxs)]
    for step in (lambda f: f.trace(SHAPE, SHAPE.update(shape=(8, 4))), lambda t: t.lower(), lambda w: w.compile()):
        ours, jaxs = step(ours), step(jaxs)
        found.append(names(ours, jaxs))
    return found


@row("eval_shape")
def eval_shape(jit: Any) -> Any:
    found = jit(tanh_sum).eval_shape(SHAPE, SHAPE.update(shape=(8, 4)))
    return shapes(found), shapes(jax.eval_shape(jit(jnp.sin), SHAPE))


@row("trace: names, shapes and trees")
def trace(jit: Any) -> Any:
    traced = jit(tanh_sum, donate_argnums=1).trace(SHAPE, w=SHAPE.update(shape=(8, 4)))
    donated = [info.donated for info in jax.tree.leaves(traced.args_info)]
    return traced.fun_name, shapes(traced.out_info), traced.out_tree, traced.in_tree, donated, traced.jaxpr.out_avals


@row("lower: shapes and trees")
def lower(jit: Any) -> Any:
    lowered = jit(tanh_sum).lower(SHAPE, w=SHAPE.update(shape=(8, 4)))
    return shapes(lowered.in_avals), shapes(lowered.out_info), lowered.in_tree, lowered.out_tree, lowered.donate_argnums


@row("lower: the text before partitioning", slow=True)
def lowered_text(jit: Any) -> Any:
    lowered = jit(tanh_sum).lower(*divided())
    texts = [lowered.as_text(), lowered.as_text("hlo"), lowered.as_text("stablehlo", debug_info=True)]
    return ["tanh" in text for text in texts], "all-reduce" in texts[1], "loc(" in texts[2]


@row("lower: the program as an object")
def compiler_ir(jit: Any) -> Any:
    lowered = jit(tanh_sum).lower(*divided())
    products = str(lowered.compiler_ir("stablehlo")).count("stablehlo.dot_general")
    return products, type(lowered.compiler_ir("hlo")).__name__


@row("lower: costs of the program")
def lowered_costs(jit: Any) -> Any:
    return jit(lambda x, w: x @ w).lower(*divided()).cost_analysis()["flops"]


@row("lower for a platform")
def lowering_platforms(jit: Any) -> Any:
    lowered = jit(tanh_sum).trace(SHAPE, SHAPE.update(shape=(8, 4))).lower(lowering_platforms=("cpu",))
    return shapes(lowered.out_info)


@row("compile and call")
def compile_and_call(jit: Any) -> Any:
    x, w = divided()
    compiled = jit(tanh_sum).lower(x, w).compile()
    return compiled(x, w), compiled.in_tree, compiled.out_tree, shapes(compiled.in_avals), shapes(compiled.out_info)


@row("compile with options")
def compile_with_options(jit: Any) -> Any:
    lowered = jit(tanh_sum).lower(*divided())
    return lowered.compile({"xla_embed_ir_in_executable": True})(*divided())


@row("compile without static arguments")
def compile_static(jit: Any) -> Any:
    compiled = jit(lambda n, x: x[:n], static_argnums=0).lower(3, SHAPE).compile()
    return compiled(jnp.ones((4, 8)))


@row("compiled: called with other static arguments", fails=True)
def compiled_static_again(jit: Any) -> Any:
    return jit(lambda n, x: x[:n], static_argnums=0).lower(3, SHAPE).compile()(3, jnp.ones((4, 8)))


@row("compiled: called with another structure", fails=True)
def compiled_structure(jit: Any) -> Any:
    return jit(tanh_sum).lower(*divided()).compile()(*divided(), 3)


@row("compiled: called with other shapes", fails=True)
def compiled_shapes(jit: Any) -> Any:
    return jit(jnp.sin).lower(SHAPE).compile()(jnp.ones(3))


@row("compiled: called with another type", fails=True)
def compiled_type(jit: Any) -> Any:
    return jit(jnp.sin).lower(SHAPE).compile()(np.ones((4, 8), np.int32))


@row("compiled: called with another sharding", fails=True)
def compiled_sharding(jit: Any) -> Any:
    x, w = divided()
    return jit(tanh_sum).lower(x, w).compile()(put(auto_mesh(), np.ones((4, 8), np.float32), None, "x"), w)


@row("compiled: called inside of another function", fails=True)
def compiled_inside(jit: Any) -> Any:
    return jax.jit(jit(jnp.sin).lower(SHAPE).compile())(jnp.ones((4, 8)))


@row("compiled: shardings of arguments and results that are asked for")
def compiled_shardings(jit: Any) -> Any:
    mesh = auto_mesh()
    on = lambda *spec: jax.sharding.NamedSharding(mesh, P(*spec))  # noqa: E731
    f = jit(tanh_sum, in_shardings=(on("x"), on(None, "y")), out_shardings={"sum": on("y"), "x": on("x")})
    compiled = f.lower(SHAPE, SHAPE.update(shape=(8, 4))).compile()
    return compiled.input_shardings, compiled.output_shardings


@row("compiled: formats")
def compiled_formats(jit: Any) -> Any:
    compiled = jit(jnp.sin).lower(SHAPE).compile()
    return [str(f.layout) for f in jax.tree.leaves((compiled.input_formats, compiled.output_formats))]


@row("compiled: memory and costs")
def compiled_analysis(jit: Any) -> Any:
    compiled = jit(jnp.cumsum).lower(jax.ShapeDtypeStruct((64,), jnp.float32)).compile()
    memory = compiled.memory_analysis()
    return memory.argument_size_in_bytes, memory.output_size_in_bytes, compiled.cost_analysis()["flops"] > 0


@row("compiled: text and executable")
def compiled_text(jit: Any) -> Any:
    compiled = jit(tanh_sum).lower(*divided()).compile()
    return "HloModule" in compiled.as_text(), type(compiled.runtime_executable()).__name__, compiled.args_info


@row("compiled: donation")
def compiled_donation(jit: Any) -> Any:
    x = jnp.ones((4, 8))
    compiled = jit(jnp.sin, donate_argnums=0).lower(SHAPE).compile()
    return compiled(x), x.is_deleted()


@row("shapes with shardings, no arrays")
def shapes_with_shardings(jit: Any) -> Any:
    given = [jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=v.sharding) for v in divided()]
    return jit(tanh_sum).lower(*given).compile()(*divided())


@row("shapes on an abstract mesh, lowered without devices")
def abstract(jit: Any) -> Any:
    mesh = jax.sharding.AbstractMesh((64,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.ShapeDtypeStruct((128, 8), jnp.float32, sharding=jax.sharding.NamedSharding(mesh, P("x")))
    return shapes(jit(jnp.sin).trace(x).lower(lowering_platforms=("cpu",)).out_info)


@row("explicit types in the stages")
def explicit_stages(jit: Any) -> Any:
    with jax.set_mesh(explicit_mesh()):
        x = jax.device_put(np.ones((4, 8), np.float32), P("x", "y"))
        traced = jit(lambda x: (x.T, x.sum(0))).trace(x)
        return [str(aval) for aval in traced.jaxpr.out_avals], traced.lower().compile()(x)


@row("stages of a function without results")
def no_results(jit: Any) -> Any:
    compiled = jit(lambda x: None).lower(SHAPE).compile()
    return compiled(jnp.ones((4, 8))), compiled.out_tree
