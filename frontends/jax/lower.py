"""Lowers functions with JAX and reads JAX's input to XLA: the program before partitioning, with the user's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.diagnostics import fail
from ...ir.graph.module import Module, clone_module
from ...ir.tools.verifier import check
from .. import proto
from ..extras import imported
from ..stablehlo import leave_free, mlir, read_binary
from ..user_lines import locate_in_source, locate_parameters, place_of

PURPOSE = "to read programs from JAX"


def from_jax(function: Any, *args: Any, platform: str | None = None, **jit_options: Any) -> Module:
    """Returns the program of a JAX function on these arguments, before partitioning (stage GLOBAL).

    `function` is any function of JAX, the result of `jax.jit` or `hloom.jax.jit`, or an object of its `trace` or
    `lower` or of `jax.export`, which need no arguments. `args` are arrays or `jax.ShapeDtypeStruct`s, with shardings or
    without; nothing is allocated, and meshes may be larger than the machine (`jax.sharding.AbstractMesh`).
    `jit_options` are those of `jax.jit`, for a function that is not jitted yet; its unused arguments stay parameters.
    `platform` is the one to lower for, by default JAX's own.

    The program has the mesh and its axes, the paths of arguments (`params['l3.wq']`) as names, donation, and the user's
    source lines as locations. Raises CompileError if JAX is missing or the program cannot be read; errors in the
    function itself are those that JAX raises.
    """
    jax_export = imported("jax.export", PURPOSE)
    if isinstance(function, jax_export.Exported):
        _refuse_more(args, jit_options)
        _refuse_symbols(function.in_tree.unflatten(function.in_avals), None)
        return read_binary(function.mlir_module_serialized, f"<{function.fun_name}>")
    return read_lowered(lower(trace(function, args, jit_options), platform), function)


def trace(function: Any, args: Sequence[Any], jit_options: Mapping[str, Any]) -> Any:
    """Returns the traced function, a `jax.stages.Traced`; a `Lowered` as it is. Raises CompileError for misuse."""
    jax = imported("jax", PURPOSE)
    is_traced = hasattr(function, "jaxpr") and hasattr(function, "lower")  # also by `hloom.jax.jit`
    if is_traced or isinstance(function, (jax.stages.Lowered, Module)):
        _refuse_more(args, jit_options)
        return function
    if hasattr(function, "trace"):
        jitted = function
    elif callable(function):
        jitted = jax.jit(function, **{"keep_unused": True, **jit_options})
    else:
        fail(f"a function is expected, not {type(function).__name__}")
    if jitted is function and jit_options:
        fail(f"the function is jitted already, so {min(jit_options)} cannot be set", help="give it to jax.jit")
    return jitted.trace(*args)


def _refuse_more(args: Sequence[Any], jit_options: Mapping[str, Any]) -> None:
    if args or jit_options:
        fail("a function that JAX has traced, lowered or exported takes no arguments or options here")


def lower(traced: Any, platform: str | None = None) -> Any:
    """Returns the `jax.stages.Lowered` of a traced function. A program over an abstract mesh is lowered for the CPU
    unless a platform is named.
    """
    if not hasattr(traced, "lower"):
        return traced
    if platform is not None:
        return traced.lower(lowering_platforms=(platform,))
    try:
        return traced.lower()
    except ValueError as error:
        if "lowering_platforms" not in str(error):
            raise
        return traced.lower(lowering_platforms=("cpu",))


def read_lowered(lowered: Any, function: object) -> Module:
    """Reads a `jax.stages.Lowered` of the user's function; that of `hloom.jax.jit` is a module already. Raises
    CompileError if its program is not valid HLO, or has symbolic dimensions.
    """
    if isinstance(lowered, Module):
        return clone_module(lowered)
    _refuse_symbols(lowered.args_info, function)
    program = lowered.compiler_ir("stablehlo")
    attributes = program.operation.attributes
    name = str(attributes["sym_name"]).strip('"') if "sym_name" in attributes else "program"
    code = mlir.refined(program, name)
    if code is None:
        data: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        free = mlir.free_results(program)
    else:
        converted = mlir.to_hlo(code, name)
        data, free = converted.proto, converted.free_results
    module = proto.read_module(data, f"<{name}>", verify=False)
    if "mhlo.num_partitions" in attributes:  # not in the serialized module
        module.num_partitions = int(attributes["mhlo.num_partitions"])
    leave_free(module, free)
    locate_in_source(module)
    _refuse_leaks(module, lowered)
    check(module)
    locate_parameters(module, function)
    return module


def _refuse_leaks(module: Module, lowered: Any) -> None:
    """Raises CompileError for parameters that are no arguments. JAX makes them of tracers that another function left
    behind, and complains only when the program is called.
    """
    arguments = imported("jax.tree_util", PURPOSE).tree_leaves(lowered.args_info)
    arrays = [parameter for parameter in module.entry.parameters if parameter.shape.is_array]  # the others are tokens
    if len(arrays) <= len(arguments):
        return
    leaked = min(arrays, key=lambda p: p.metadata is not None and bool(p.metadata.op_name))
    use = next(iter(leaked.users), leaked)
    fail(
        f"{use.name} uses a value of type {leaked.shape.without_layout()} that is neither an argument nor a constant: "
        "a tracer that has leaked from another function", use.location,
        help="return values from functions that JAX traces, do not store them; jax.checking_leaks() finds where",
    )  # fmt: skip


def _refuse_symbols(arguments: Any, function: object) -> None:
    """Raises CompileError for dimensions without a number: HLO has none, and tiles of them have no size. `arguments` is
    the tree `(args, kwargs)` of their shapes.
    """
    tree = imported("jax.tree_util", PURPOSE)
    for path, leaf in tree.tree_leaves_with_path(arguments):
        symbols = [d for d in leaf.shape if not isinstance(d, int)]
        if symbols:
            shape = ", ".join(map(str, leaf.shape))
            fail(
                f"argument {tree.keystr(path[1:])} has the shape ({shape}): dimension {symbols[0]} has no number",
                place_of(function), help="give sizes; a function is lowered once for each",
            )  # fmt: skip
