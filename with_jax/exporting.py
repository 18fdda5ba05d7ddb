"""Makes artifacts of `jax.export` of Hloom's programs: functions of JAX on tiles, and on global arrays.

JAX exports a stub of the right signature, and the serialized program in it is replaced by Hloom's. The program of a
device becomes the body of a `jax.shard_map`: XLA's partitioner leaves such bodies alone, and everything after it
(fusion, layouts, code) is XLA's as ever. Only this file relies on the fields of `jax.export.Exported`, and checks them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..codegen import body_module
from ..codegen.for_cpu import for_cpu
from ..frontends.extras import INSTALL, imported
from ..ir.checked_call import checked
from ..ir.diagnostics import fail
from ..ir.graph.module import Module, Stage
from ..ir.tools.placement import placements
from . import PURPOSE
from .host import NO_HOST, HostFunctions, number_calls
from .meshes import spell

_NAMES = ("cpu", "cuda", "rocm", "tpu")  # that `jax.export` takes
_PROGRAM = "mlir_module_serialized"
_FIELDS = ("fun_name", "nr_devices", "in_avals", "out_avals", "ordered_effects", _PROGRAM)


@checked
def exported(module: Module, platform: str = "cpu") -> Any:
    """Returns a program as a `jax.export.Exported`, to serialize or to call in another function of JAX.

    It takes and gives the leaves of parameters and results as global arrays. A partitioned program runs on as many
    devices as it is for, a program without shardings on one. Raises CompileError for a program with shardings that is
    not partitioned, and for arrays that are not divided evenly.
    """
    if module.stage not in (Stage.LOCAL, Stage.SCHEDULED):
        if module.num_partitions > 1 or any(i.annotation is not None for c in module for i in c):
            fail(f"{module.name} has shardings, which are not exported", help="partition it first: hloom.partition")
        return _with_program(module, platform)
    jax, export = imported("jax", PURPOSE), imported("jax.export", PURPOSE)
    parameters, results = placements(module)
    for place in (*parameters, *results):
        if place.tiling is None or not place.tiling.is_even(place.shape.dims):
            fail(f"an array {place.shape.without_layout()} of {module.name} is not divided evenly, as JAX's must be")
    tilings = [place.tiling for place in (*parameters, *results) if place.tiling is not None]
    mesh, specs = spell(tilings, module.num_partitions)
    shardings = [jax.sharding.NamedSharding(mesh, spec) for spec in specs]
    count = len(parameters)
    body = jax.shard_map(
        local_function(module, platform), mesh=mesh, in_specs=tuple(specs[:count]), out_specs=tuple(specs[count:]),
        check_vma=False,
    )  # fmt: skip
    shapes = [
        jax.ShapeDtypeStruct(place.shape.dims, place.shape.element.numpy, sharding=sharding)
        for place, sharding in zip(parameters, shardings, strict=False)
    ]
    function = jax.jit(body, out_shardings=tuple(shardings[count:]))
    with jax.enable_x64(True):
        return export.export(function, platforms=_platforms_of(platform))(*shapes)


def local_function(local: Module, platform: str, host: HostFunctions = NO_HOST, first: int = 0) -> Callable[..., Any]:
    """Returns the program of one device as a function of JAX on tiles, to be called inside of a `shard_map`. `first` is
    the number, in the program around it, of the first Python function of `host` that it calls.

    Raises CompileError for programs that StableHLO cannot express, or if this version of JAX has no such artifacts.
    """
    module = body_module(for_cpu(local) if platform == "cpu" else local)
    number_calls(module, first)
    return dataclasses.replace(_with_program(module, platform), ordered_effects=host.ordered).call


def _with_program(module: Module, platform: str) -> Any:
    """Returns a program of one device as a `jax.export.Exported`, which takes and gives the leaves of its parameters
    and its result. Raises CompileError as `local_function` does.
    """
    jax, export = imported("jax", PURPOSE), imported("jax.export", PURPOSE)
    entry = module.entry
    tiles = [jax.ShapeDtypeStruct(p.shape.dims, p.shape.element.numpy) for p in entry.parameters if p.shape.is_array]
    results = [(leaf.dims, leaf.element.numpy) for leaf in entry.root.shape.leaves() if leaf.is_array]
    artifact = module.to_stablehlo_bytecode()

    def stub(*_: Any) -> tuple[Any, ...]:
        return tuple(jax.numpy.zeros(*result) for result in results)

    with jax.enable_x64(True):  # the program has the types that it has
        exported: Any = export.export(jax.jit(stub, keep_unused=True), platforms=_platforms_of(platform))(*tiles)
    require_fields(exported)
    changed: Any = dataclasses.replace(exported, **{_PROGRAM: artifact, "fun_name": module.name})
    return changed


def require_fields(exported: Any) -> None:
    """Raises CompileError if an artifact of `jax.export` lacks a field that Hloom replaces."""
    missing = [name for name in _FIELDS if name not in getattr(exported, "__dataclass_fields__", {})]
    if missing:
        fail(f"jax.export of this version of jax has no {missing[0]}, which Hloom replaces", help=INSTALL)


def _platforms_of(platform: str) -> tuple[str, ...] | None:
    """Returns the platforms to export for; None is JAX's default where `platform` is no name of its own, as `gpu`."""
    return (platform,) if platform in _NAMES else None
