"""Exports modules as artifacts of `jax.export`, which JAX runs without Hloom."""

from __future__ import annotations

from typing import Any

from ..frontends.extras import imported
from ..ir.checked_call import checked
from ..ir.diagnostics import fail
from ..ir.graph.module import Module, Stage
from ..ir.tools.placement import placements
from .body import PURPOSE, local_function, platforms_of, with_program
from .meshes import spell


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
        return with_program(module, platform)
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
        return export.export(function, platforms=platforms_of(platform))(*shapes)
