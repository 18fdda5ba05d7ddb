"""The stages of a function that Hloom compiles for JAX: the program before partitioning, and the compiled one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..cost.collectives import Collective, collectives
from ..frontends.extras import imported
from ..frontends.jax import read_lowered
from ..frontends.user_lines import place_of
from ..ir.diagnostics import Diagnostic, fail
from ..ir.graph.module import Module, Stage
from ..ir.tools.placement import placements
from ..passes import api, pipelines
from ..passes.base import Pass
from ..passes.result import Partitioned
from .body import PURPOSE, local_function
from .borders import EvenBorders
from .meshes import Spelled, spell
from .taken import require_taken


@dataclass(frozen=True)
class Target:
    """Where a function runs: the devices in the order of the program's numbers, the user's mesh of them if there is
    one, the platforms that are allowed, and arguments of `hloom.partition`.
    """

    devices: tuple[Any, ...]
    mesh: Any
    platforms: tuple[str, ...]
    options: Mapping[str, Any]


class Lowered(Module):
    """A function of JAX on arguments of certain shapes: a GLOBAL module, which `compile` partitions for JAX."""

    _lowered: Any
    _target: Target

    @staticmethod
    def of(traced: Any, function: object, target: Target) -> Lowered:
        """Lowers what JAX traced. Raises CompileError for programs that Hloom cannot take over."""
        lowered = traced.lower()
        module = read_lowered(lowered, function)
        require_taken(module, function, target.devices, target.platforms)
        if module.num_partitions not in (1, len(target.devices)):
            fail(f"the program is for {module.num_partitions} devices, the mesh has {len(target.devices)}",
                 place_of(function))
        result = Lowered(module.name, module.source)
        result.take(module)
        result._lowered, result._target = lowered, target
        return result

    def compile(self) -> Compiled:
        """Partitions the program, and prepares it for JAX's devices. Raises CompileError."""
        return Compiled(self, self._lowered, self._target)


class Compiled:
    """A partitioned program that runs on JAX's devices. Called, it takes and returns what the user's function does.

    `program` is the program of each device, `in_tree` the tree of the arguments `(args, kwargs)` without static ones.
    `in_shardings` and `out_shardings` are those of the leaves of arguments and results.
    """

    def __init__(self, module: Module, lowered: Any, target: Target) -> None:
        jax = imported("jax", PURPOSE)
        options: dict[str, Any] = {**target.options, "passes": _with_even_borders(target.options.get("passes"))}
        self.program: Partitioned = api.partition(module, len(target.devices), **options)
        self.in_tree, self.out_tree = lowered.in_tree, lowered.out_tree
        self._arguments: list[Any] = jax.tree.leaves(lowered.in_avals)
        results: list[Any] = jax.tree.leaves(lowered.out_info)
        places = placements(self.program)
        if [len(part) for part in places] != [len(self._arguments), len(results)]:
            fail(f"{module.name} has {len(places[0])} parameters and {len(places[1])} results, the function "
                 f"{len(self._arguments)} arguments and {len(results)} results", module.entry.location)
        tilings = [place.tiling for part in places for place in part if place.tiling is not None]
        mesh, spelled = spell(tilings, target.devices, target.mesh)
        inside, outside = spelled[: len(self._arguments)], spelled[len(self._arguments) :]
        self.in_shardings = [_outer(jax, s, aval) for s, aval in zip(inside, self._arguments, strict=True)]
        self.out_shardings = [_outer(jax, s, aval) for s, aval in zip(outside, results, strict=True)]
        body = jax.shard_map(
            local_function(self.program, target.devices[0].platform), mesh=mesh,
            in_specs=tuple(s.spec for s in inside), out_specs=tuple(s.spec for s in outside), check_vma=False,
        )  # fmt: skip
        donated = tuple(n for n, info in enumerate(jax.tree.leaves(lowered.args_info)) if info.donated)
        self._run = jax.jit(
            _on_raw_arrays(jax, body, results, module.name), donate_argnums=donated,
            in_shardings=tuple(self.in_shardings), out_shardings=tuple(self.out_shardings),
        )  # fmt: skip

    @cached_property
    def collectives(self) -> list[Collective]:
        """The collectives of the program, with the user's lines."""
        return collectives(self.program)

    @property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """The remarks of partitioning on avoidable costs, with figures."""
        return self.program.remarks

    def as_text(self) -> str:
        """Returns the HLO that XLA makes of the program, after all of its passes."""
        text: str = self._run.lower(*self._arguments).compile().as_text()
        return text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program; static arguments are left out. Raises TypeError for arguments of another structure."""
        leaves, tree = imported("jax", PURPOSE).tree.flatten((args, kwargs))
        if tree != self.in_tree:
            raise TypeError(f"the arguments are {tree}, the program was compiled for {self.in_tree}")
        return self.call_leaves(leaves)

    def call_leaves(self, leaves: Sequence[Any]) -> Any:
        """Runs the program on the leaves of its arguments, without static ones."""
        return self.out_tree.unflatten(self.call_flat(*leaves))

    def call_flat(self, *leaves: Any) -> Sequence[Any]:
        """Runs the program on the leaves of its arguments, and returns those of its results."""
        return self._run(*leaves)


def _with_even_borders(passes: str | Sequence[Pass] | None) -> tuple[Pass, ...]:
    """Returns the passes with `EvenBorders` after the last one that gives every value a sharding."""
    chosen = pipelines.PIPELINE if passes is None else passes
    steps = pipelines.parse_pipeline(chosen) if isinstance(chosen, str) else list(chosen)
    place = max((n for n, step in enumerate(steps) if step.produces is Stage.SHARDED), default=-1)
    return (*steps[: place + 1], EvenBorders(), *steps[place + 1 :])


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


def _outer(jax: Any, spelled: Spelled, value: Any) -> Any:
    """Returns the sharding of an argument or a result."""
    sharding = spelled.sharding
    if not _is_key(jax, value):
        return sharding
    spec = jax.sharding.PartitionSpec(*sharding.spec[: len(value.shape)])
    return jax.sharding.NamedSharding(sharding.mesh, spec)


def _on_raw_arrays(jax: Any, body: Callable[..., Any], results: Sequence[Any], name: str) -> Callable[..., Any]:
    """Returns the function that gives `body` random keys as integers, and makes keys of its results."""
    kinds = [_key_kind(jax, result) if _is_key(jax, result) else None for result in results]

    def run(*leaves: Any) -> tuple[Any, ...]:
        found = body(*(jax.random.key_data(leaf) if _is_key(jax, leaf) else leaf for leaf in leaves))
        return tuple(
            value if kind is None else jax.random.wrap_key_data(value, impl=kind)
            for value, kind in zip(found, kinds, strict=True)
        )

    run.__name__ = name.removeprefix("jit_")
    return run
