"""`hloom.jax.jit`: in place of `jax.jit`, a function that Hloom partitions and XLA compiles.

The result is a function of `jax.jit`, whose program is one equation that Hloom lowers (`primitive`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..frontends.extras import imported
from ..frontends.user_lines import place_of
from ..ir.diagnostics import fail
from . import PURPOSE
from .compiled import Traced
from .primitive import Door, called, primitive
from .taken import TRIED

_OF_PROGRAMS = ("in_shardings", "out_shardings", "static_argnums", "static_argnames")
"""The options of `jax.jit` that Hloom has to know; JAX alone minds the others."""


def jit(
    function: Callable[..., Any] | None = None, *, mesh: Any = None, options: Mapping[str, Any] | None = None,
    platforms: Iterable[str] = TRIED, **jit_options: Any,
) -> Any:
    """Compiles a function of JAX with Hloom's propagation, partitioner and passes, for JAX's devices; stands in for
    `jax.jit`, as a decorator too.

    `jit_options` are those of `jax.jit`: `in_shardings`, `out_shardings`, `donate_argnums`, `static_argnums`, .. .
    Shardings may be `PartitionSpec`s on `mesh`, whose devices the function runs on; without it, they are those that
    `jax.jit` finds: of the given shardings, of the arguments, of constraints inside, or of `jax.set_mesh`. `options`
    are arguments of `hloom.partition`: `machine`, `passes`, `rules`, `forms`. `platforms` are those that are allowed:
    by default, those on which Hloom has been tried.

    The result is a function of `jax.jit`, and behaves like one. JAX transforms it like any function, and Hloom compiles
    what comes of it. Results whose sharding nobody asks for have the one that propagation finds. `.lower(*args)` gives
    the module before partitioning, `.lower(*args).compile()` the program of each device with its collectives and
    remarks. Raises CompileError, when called, for programs that Hloom cannot take over (dynamic shapes,
    unknown custom-calls), at the user's lines.
    """
    if function is None:
        return functools.partial(jit, mesh=mesh, options=options, platforms=platforms, **jit_options)
    jax = imported("jax", PURPOSE)
    if not isinstance(mesh, jax.sharding.Mesh | None):
        fail(f"mesh is a jax.sharding.Mesh of devices, not {type(mesh).__name__}", place_of(function))
    for name in ("in_shardings", "out_shardings"):
        if mesh is not None and name in jit_options:
            jit_options[name] = _on_mesh(jax, jit_options[name], mesh)
    inner = jax.jit(function, **{name: value for name, value in jit_options.items() if name in _OF_PROGRAMS})
    primitive()  # now, since it hides Hloom's own lines
    door = Door(place_of(function), options or {}, tuple(platforms), _devices(jax, mesh))
    is_traced = imported("jax.extend.core", PURPOSE).unsafe_am_i_under_a_jit_DO_NOT_USE

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not is_traced():  # JAX evaluates op by op: jax.disable_jit, and jax.debug_nans once it has found one
            return function(*args, **kwargs)
        return called(door, inner, args, kwargs)

    options_here = {**jit_options, "inline": True}  # inside of others, the equation sees the shardings of its operands
    return Jitted.of(function, jax.jit(run, **options_here))


class Jitted:
    """A function of `jax.jit` whose stages are Hloom's.

    Each has a class of its own, whose `__call__` is JAX's function, so that calls do not pass through Python. JAX's
    function itself cannot have the stages as attributes, for functions that wrap it would get them, too.
    """

    _jitted: Any

    @staticmethod
    def of(function: Callable[..., Any], jitted: Any) -> Jitted:
        """Wraps `jitted`, the result of `jax.jit` on a function."""
        made: Jitted = type("Jitted", (Jitted,), {"__call__": staticmethod(jitted), "_jitted": jitted})()
        functools.update_wrapper(made, function)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function. Raises CompileError when it has to be compiled and cannot be."""
        return self._jitted(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Binds a method."""
        return self if instance is None else types.MethodType(self, instance)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Traces the function. Arguments are arrays or `jax.ShapeDtypeStruct`s."""
        return Traced(self._jitted.trace(*args, **kwargs))

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the program before partitioning, as `Traced.lower` does. Raises CompileError."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the shapes of the results."""
        return self._jitted.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets all compiled programs of the function."""
        self._jitted.clear_cache()

    def _cache_size(self) -> int:
        """Returns the number of compiled programs, by JAX's name."""
        return self._jitted._cache_size()


def _devices(jax: Any, mesh: Any) -> Any:
    """Returns a jaxpr that names the devices of a mesh, in which JAX looks for the devices of a program. JAX's errors
    name the user's line that gave the mesh.
    """
    if mesh is None:
        return None
    source = imported("jax.extend.source_info_util", PURPOSE)
    here = source.current().traceback

    def constrained() -> Any:
        with source.user_context(here):
            return jax.lax.with_sharding_constraint(0.0, everywhere)

    plain = jax.sharding.Mesh(mesh.devices, mesh.axis_names)
    everywhere = jax.sharding.NamedSharding(plain, jax.sharding.PartitionSpec())
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
        return jax.make_jaxpr(constrained)()


def _on_mesh(jax: Any, shardings: Any, mesh: Any) -> Any:
    """Returns a tree of shardings in which specifications are on the mesh."""
    spec = jax.sharding.PartitionSpec

    def placed(sharding: Any) -> Any:
        return jax.sharding.NamedSharding(mesh, sharding) if isinstance(sharding, spec) else sharding

    def is_leaf(value: Any) -> bool:
        return value is None or isinstance(value, spec)

    return jax.tree.map(placed, shardings, is_leaf=is_leaf)
