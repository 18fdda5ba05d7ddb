"""A function of JAX, partitioned by Hloom: read, divided, and made a function of JAX again."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..frontends.extras import imported
from ..frontends.jax import read_lowered
from ..ir.diagnostics import fail
from ..ir.graph.instruction import Metadata
from ..ir.graph.module import Module, Stage
from ..ir.tools.placement import placements
from ..passes import api, pipelines
from ..passes.base import Pass
from ..passes.result import Partitioned
from . import PURPOSE
from .borders import EvenBorders
from .exporting import local_function
from .host import HostFunctions
from .inspecting import TellShardings
from .kept import kept
from .meshes import spell
from .taken import require_taken

if TYPE_CHECKING:
    from .primitive import JaxCall


class DeviceProgram:
    """A function on arrays of certain shapes and shardings, for a number of devices.

    `lowered` is its `jax.stages.Lowered` before partitioning. `host` has the Python functions that it calls,
    `inspecting` those that are told shardings.
    """

    def __init__(self, call: JaxCall, lowered: Any, devices: int, platform: str, inspecting: TellShardings) -> None:
        self.call, self.lowered, self.devices, self.platform = call, lowered, devices, platform
        self.inspecting, self.host = inspecting, HostFunctions.of(lowered)

    @cached_property
    def module(self) -> Module:
        """The program before partitioning. Raises CompileError for one that Hloom cannot take over."""
        door = self.call.door
        module = read_lowered(self.lowered, door.place)
        _name_parameters(module, self.call)
        require_taken(module, door.place, self.platform, door.platforms)
        if module.num_partitions not in (1, self.devices):
            fail(f"the program is for {module.num_partitions} devices, the mesh has {self.devices}", door.place)
        return module

    @cached_property
    def program(self) -> Partitioned:
        """The program of each device. Raises CompileError."""
        options: dict[str, Any] = dict(self.call.door.options)
        options["passes"] = _extended(options.get("passes"), (EvenBorders(), self.inspecting))
        return kept(self, lambda: api.partition(self.module, self.devices, **options))

    def run(self, first: int = 0) -> Callable[..., tuple[Any, ...]]:
        """Returns the function that JAX lowers in the place of the user's. The Python functions that it calls have
        numbers from `first` on.
        """
        jax = imported("jax", PURPOSE)
        parameters, results = (
            [place for place in places if place.shape.is_array] for places in placements(self.program)
        )
        body = local_function(self.program, self.platform, self.host, first)
        if self.devices > 1:
            tilings = [place.tiling for place in (*parameters, *results) if place.tiling is not None]
            mesh, specs = spell(tilings, self.devices, self.program.meshes.values())
            inside, outside = tuple(specs[: len(parameters)]), tuple(specs[len(parameters) :])
            body = jax.shard_map(body, mesh=mesh, in_specs=inside, out_specs=outside, check_vma=False)
        return _on_raw_arrays(jax, body, self.call.jaxpr.out_avals)


def _name_parameters(module: Module, call: JaxCall) -> None:
    """Names the parameters as the user's arguments, by their paths."""
    names = call.jaxpr.jaxpr.debug_info.arg_names or ()
    arrays = [parameter for parameter in module.entry.parameters if parameter.shape.is_array]
    for parameter, name in zip(arrays, names, strict=False):
        parameter.metadata = Metadata.named(name)
        module.entry.rename(parameter, re.sub(r"\W", "_", name) + ".1")


def _extended(passes: str | Sequence[Pass] | None, more: Sequence[Pass]) -> tuple[Pass, ...]:
    """Returns the passes with `more` after the last one that gives every value a sharding."""
    chosen = pipelines.PIPELINE if passes is None else passes
    steps = pipelines.parse_pipeline(chosen) if isinstance(chosen, str) else list(chosen)
    place = max((n for n, step in enumerate(steps) if step.produces is Stage.SHARDED), default=-1)
    return (*steps[: place + 1], *more, *steps[place + 1 :])


def _is_key(jax: Any, value: Any) -> bool:
    """Whether an array or its shape holds random keys, which in programs are integers in one more dimension."""
    return bool(jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key))


def _key_kind(jax: Any, value: Any) -> str:
    """Returns the name of the generator of random keys. Raises CompileError for those that are not JAX's own."""
    names = ("threefry2x32", "rbg", "unsafe_rbg")
    kinds = {name: jax.eval_shape(functools.partial(jax.random.key, 0, impl=name)).dtype for name in names}
    found = [name for name, kind in kinds.items() if kind == value.dtype]
    if not found:
        fail(f"results have random keys of type {value.dtype}, a generator of your own")
    return found[0]


def _on_raw_arrays(jax: Any, body: Callable[..., Any], results: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """Returns the function that gives `body` random keys as integers, and makes keys of its results."""
    kinds = [_key_kind(jax, result) if _is_key(jax, result) else None for result in results]

    def run(*leaves: Any) -> tuple[Any, ...]:
        found = body(*(jax.random.key_data(leaf) if _is_key(jax, leaf) else leaf for leaf in leaves))
        return tuple(
            value if kind is None else jax.random.wrap_key_data(value, impl=kind)
            for value, kind in zip(found, kinds, strict=True)
        )

    return run
