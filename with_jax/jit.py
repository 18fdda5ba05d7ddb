"""`hloom.jax.jit`: in place of `jax.jit`, a function that Hloom partitions and XLA compiles.

A call with new shapes, shardings or static arguments lowers the function with JAX, partitions it with Hloom and keeps
the result; later ones look it up.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..frontends.extras import imported
from ..frontends.user_lines import place_of
from ..ir.diagnostics import fail
from .body import PURPOSE
from .compiled import Compiled, Lowered, Target
from .primitive import Equations
from .taken import TRIED

_CONFIG = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable", "jax_default_prng_impl",
           "jax_numpy_dtype_promotion")  # fmt: skip
"""The settings of JAX that change programs."""


def jit(
    function: Callable[..., Any] | None = None, *, mesh: Any = None, options: Mapping[str, Any] | None = None,
    platforms: Iterable[str] = TRIED, **jit_options: Any,
) -> Any:
    """Compiles a function of JAX with Hloom's propagation, partitioner and passes, for JAX's devices; stands in for
    `jax.jit`, as a decorator too.

    `jit_options` are those of `jax.jit`: `in_shardings`, `out_shardings`, `donate_argnums`, `static_argnums`, .. .
    Shardings may be `PartitionSpec`s on `mesh`, whose devices the function runs on; without it, they are those of the
    given shardings, of the arguments, or of JAX's current mesh. `options` are arguments of `hloom.partition`:
    `machine`, `passes`, `rules`, `forms`. `platforms` are those that are allowed: by default, those on which Hloom has
    been tried.

    The result is called like the function. Arguments and results are ordinary arrays of JAX with ordinary shardings;
    results whose sharding nobody asks for have the one that propagation finds. `.lower(*args)` gives the module before
    partitioning, `.lower(*args).compile()` the program of each device with its collectives and remarks. JAX transforms
    the result like any function, and Hloom compiles what comes of it. Raises CompileError, when called, for programs
    that Hloom cannot take over (Python callbacks, dynamic shapes, unknown custom-calls), at the user's lines.
    """
    if function is None:
        return functools.partial(jit, mesh=mesh, options=options, platforms=platforms, **jit_options)
    return Jitted(function, mesh, options or {}, tuple(platforms), jit_options)


class Jitted:
    """A function that Hloom compiles when it is called."""

    def __init__(
        self, function: Callable[..., Any], mesh: Any, options: Mapping[str, Any], platforms: tuple[str, ...],
        jit_options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        jax = self._jax = imported("jax", PURPOSE)
        if not isinstance(mesh, jax.sharding.Mesh | None):
            fail(f"mesh is a jax.sharding.Mesh of devices, not {type(mesh).__name__}", place_of(function))
        functools.update_wrapper(self, function)
        self._function, self.mesh, self._options, self._platforms = function, mesh, options, platforms
        self._shardings = [_on_mesh(jax, jit_options.get(name), mesh) for name in ("in_shardings", "out_shardings")]
        given = dict(zip(("in_shardings", "out_shardings"), self._shardings, strict=True))
        kept = {name: value for name, value in given.items() if name in jit_options}
        self._jitted = jax.jit(function, **{**jit_options, **kept, "keep_unused": True})
        self._static = _StaticArguments(function, jit_options)
        self._compiled: dict[Any, Compiled] = {}

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Returns the program before partitioning. Arguments are arrays or `jax.ShapeDtypeStruct`s. Raises
        CompileError.
        """
        traced = self._jitted.trace(*args, **kwargs)
        dynamic, _ = self._static.flattened(self._jax, args, kwargs)
        return Lowered.of(traced, self._function, self._target(dynamic))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function. Raises CompileError when it has to be compiled and cannot be."""
        leaves, tree = self._static.flattened(self._jax, args, kwargs)
        if any(isinstance(leaf, self._jax.core.Tracer) for leaf in leaves):
            return Equations(self._jitted, args, kwargs).bound(self)
        key = (tree, *map(self._kind, leaves), *self._settings())
        try:
            compiled = self._compiled.get(key)
        except TypeError:  # a static argument without a hash: JAX's own message names it
            self._jitted.trace(*args, **kwargs)
            raise
        if compiled is None:
            equations = Equations(self._jitted, args, kwargs)
            if equations.are_transformed:
                with contextlib.suppress(self._jax.errors.UnexpectedTracerError):  # `lower` says more of a leaked one
                    return equations.bound(self)
            compiled = self._compiled[key] = self.lower(*args, **kwargs).compile()
        return compiled.call_leaves(leaves)

    def alike(self, function: Callable[..., Any], inside: Any, outside: Any, devices: Sequence[Any] = ()) -> Jitted:
        """Returns another function with the options of this one, and shardings of its own. It runs on `devices` if
        neither this one nor a sharding has a mesh.
        """
        mesh = self.mesh
        if mesh is None and devices and not any(_meshes(self._jax, [*inside, *outside])):
            mesh = self._jax.sharding.Mesh(np.array(devices, dtype=object), ("devices",))
        shardings = {"in_shardings": inside, "out_shardings": outside}
        return Jitted(function, mesh, self._options, self._platforms, shardings)

    def _kind(self, leaf: Any) -> Any:
        """Returns what programs depend on of an argument: its shape and type, and its sharding if it is bound to it."""
        return self._jax.typeof(leaf), _spelled_once(leaf.sharding) if _is_placed(self._jax, leaf) else None

    def _settings(self) -> list[Any]:
        config = [getattr(self._jax.config, name, None) for name in _CONFIG]
        return [*config, self._jax.sharding.get_abstract_mesh()]

    def _target(self, leaves: Sequence[Any]) -> Target:
        """Finds the devices and the mesh."""
        jax = self._jax
        given = [leaf for leaf in jax.tree.leaves(self._shardings) if isinstance(leaf, jax.sharding.Sharding)]
        given += [leaf.sharding for leaf in leaves if _is_placed(jax, leaf)]
        meshes = _meshes(jax, given)
        found = [m for m in (self.mesh, *meshes) if isinstance(m, jax.sharding.Mesh)] or _current_mesh(jax)
        if found:
            orders = {tuple(m.devices.flat): m for m in reversed(found)}
            if len(orders) > 1:
                fail("the mesh, shardings and arguments have different devices, or the same in different orders: "
                     + ", ".join(f"{m.axis_names} on {[d.id for d in m.devices.flat][:8]}" for m in orders.values()),
                     place_of(self._function), help="jax.device_put moves arguments to another mesh")
            return Target(next(iter(orders)), found[0], self._platforms, self._options)
        devices = {device for s in given for device in s.device_set}
        if len(devices) > 1:
            fail("the order of the devices is not known", place_of(self._function), help="give hloom.jax.jit a mesh")
        return Target(tuple(devices) or (jax.devices()[0],), None, self._platforms, self._options)


def _meshes(jax: Any, shardings: Iterable[Any]) -> list[Any]:
    return [s.mesh for s in shardings if isinstance(s, jax.sharding.NamedSharding)]


def _current_mesh(jax: Any) -> list[Any]:
    """Returns the mesh that `jax.set_mesh` has set, if any."""
    try:
        mesh = jax.sharding.get_mesh()
    except ValueError:  # while JAX traces a function, nobody can tell
        return []
    return [mesh] if mesh.size and mesh.axis_names else []


def _is_placed(jax: Any, leaf: Any) -> bool:
    """Whether an argument, an array or its shape, is bound to the sharding that it has."""
    if isinstance(leaf, jax.core.Tracer):
        return False
    if isinstance(leaf, jax.Array):
        return bool(leaf.committed)
    return getattr(leaf, "sharding", None) is not None


@functools.lru_cache(maxsize=4096)
def _spelled_once(sharding: Any) -> Any:
    """Returns the same for `P('x')`, `P('x', None)` and `P(('x',))` on one mesh, which `jax.jit` compiles once, too."""
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return sharding
    dims: list[Any] = [() if axes is None else axes if isinstance(axes, tuple) else (axes,) for axes in spec]
    while dims and dims[-1] == ():
        dims.pop()
    return sharding.mesh, tuple(dims), sharding.memory_kind


def _on_mesh(jax: Any, shardings: Any, mesh: Any) -> Any:
    """Returns a tree of shardings in which specifications are on the mesh."""
    spec = jax.sharding.PartitionSpec

    def placed(sharding: Any) -> Any:
        if not isinstance(sharding, spec):
            return sharding
        if mesh is None:
            fail(f"{sharding} needs a mesh", help="hloom.jax.jit(.., mesh=..)")
        return jax.sharding.NamedSharding(mesh, sharding)

    def is_leaf(value: Any) -> bool:
        return value is None or isinstance(value, spec)

    return jax.tree.map(placed, shardings, is_leaf=is_leaf)


class _StaticArguments:
    """The arguments that are part of the program, by position and by name."""

    def __init__(self, function: Callable[..., Any], jit_options: Mapping[str, Any]) -> None:
        self._numbers: tuple[int, ...] = _several(jit_options.get("static_argnums"))
        self._names: tuple[str, ...] = _several(jit_options.get("static_argnames"))
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if not self._names:  # as in JAX, one says the other, unless both are given
            self._names = tuple(places[n] for n in self._numbers if -len(places) <= n < len(places))
        elif not self._numbers:
            self._numbers = tuple(n for n, name in enumerate(places) if name in self._names)

    def flattened(self, jax: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """Returns the leaves of all other arguments, and the structure of all, with the static ones in it."""
        if not self._numbers and not self._names:
            return jax.tree.flatten((args, kwargs))
        numbers = {n + len(args) if n < 0 else n for n in self._numbers}
        static = {n: value for n, value in enumerate(args) if n in numbers}
        named = {name: value for name, value in kwargs.items() if name in self._names}
        leaves, tree = jax.tree.flatten((
            tuple(value for n, value in enumerate(args) if n not in static),
            {name: value for name, value in kwargs.items() if name not in named},
        ))
        return leaves, (tree, tuple(static.items()), tuple(sorted(named.items(), key=lambda item: item[0])))


def _several(value: Any) -> tuple[Any, ...]:
    """Returns one value, several, or None as a tuple."""
    return () if value is None else (value,) if isinstance(value, (int, str)) else tuple(value)
