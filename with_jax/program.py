"""A function of JAX, partitioned by Hloom: read, divided, and made a function of JAX again.

The program of each device is kept between processes, so that only the first one partitions a function.
"""

from __future__ import annotations

import functools
import linecache
import pickle
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..cost.machine import DEFAULT
from ..cost.presets import as_machine
from ..frontends.extras import imported
from ..frontends.jax import read_lowered
from ..ir.diagnostics import SourceFile, fail
from ..ir.graph import keeping
from ..ir.graph.instruction import Metadata
from ..ir.graph.module import Module, Stage
from ..ir.ops.calls.user_calls import USER_BEHAVIOURS
from ..ir.origin import is_foreign
from ..ir.tools.placement import placements
from ..passes import api, named, pipelines
from ..passes.base import Pass
from ..passes.result import Partitioned
from . import PURPOSE
from .borders import EvenBorders
from .exporting import local_function
from .host import HostFunctions
from .inspecting import TellShardings
from .meshes import spell
from .taken import require_taken

if TYPE_CHECKING:
    from .primitive import JaxCall


_ROOMS = ("passes.result", "passes.resharding.base", "frontends.proto", "cost")  # with the classes of its values


def kept(program: DeviceProgram, make: Callable[[], Partitioned]) -> Partitioned:
    """Loads the result that an earlier process stored for a program, or returns `make()`."""
    key = _key_of(program)
    for value in keeping.load(key, _ROOMS) or ():
        if isinstance(value, Partitioned) and _is_current(value):
            return value
    made = make()
    keeping.store(key, lambda: (pickle.dumps(made),))
    return made


def _key_of(program: DeviceProgram) -> tuple[str, ...] | None:
    """Returns the key of a program, from the text that JAX makes of the function with the places of its ops; None if
    the user's own code decides, too: machines, rules, passes or custom-calls.
    """
    door = program.call.door
    options = {**door.options}
    machine = as_machine(options.pop("machine", DEFAULT))
    is_own = is_foreign(machine) or USER_BEHAVIOURS or not all(isinstance(v, str | None) for v in options.values())
    if is_own or program.inspecting.functions:
        return None
    code = BytesIO()
    program.lowered.compiler_ir("stablehlo").operation.write_bytecode(code)
    names = program.call.jaxpr.jaxpr.debug_info.arg_names
    decided = (options, machine, str(door.place), door.platforms, program.platform, program.devices, names)
    return keeping.key_of("jax", code.getvalue(), repr(decided))


def _is_current(program: Partitioned) -> bool:
    """Whether the user's files, if they are still there, have the text that messages will quote."""
    places = [i.location for computation in program for i in computation]
    places += [note.location for d in (*program.remarks, *program.warnings) for note in (d, *d.notes)]
    sources: set[SourceFile] = {place.source for place in places if place is not None}
    return all("".join(linecache.getlines(source.name)) in ("", source.text) for source in sources)


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
    steps = named.parse_pipeline(chosen) if isinstance(chosen, str) else list(chosen)
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
