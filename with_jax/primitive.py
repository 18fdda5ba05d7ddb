"""The primitive of JAX that a compiled function becomes inside of other functions of JAX.

JAX transforms what it traces: it differentiates, maps, or lowers it. There a function that Hloom compiles is one
equation, which carries the function's own jaxpr. `transforms` gives its rules: each makes another jaxpr of this one,
bound by the same primitive, so that Hloom partitions derivatives, too. Called on arrays, the equation is compiled and
run like any call; in a program of JAX, it is lowered to the body of a `shard_map`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..frontends.extras import imported
from ..frontends.user_lines import place_of
from ..ir.diagnostics import fail
from .body import PURPOSE

if TYPE_CHECKING:
    from .compiled import Compiled
    from .jit import Jitted

MADE = 1024
"""How many functions, and derivatives of them, stay compiled."""


@dataclass(frozen=True)
class Origin:
    """Says that an argument is a result of another call, whose sharding it has."""

    call: Call
    result: int


@dataclass(frozen=True)
class Call:
    """A function on leaves. `door` has its mesh and options. `inside` and `outside` are the shardings of arguments and
    results, None where nobody asked for one; arguments may have an origin instead.
    """

    jaxpr: Any
    door: Jitted
    inside: tuple[Any, ...]
    outside: tuple[Any, ...]

    def bind(self, leaves: Sequence[Any]) -> list[Any]:
        """Calls the function, as one equation of the program that JAX traces."""
        return primitive().bind(*leaves, jaxpr=self.jaxpr, call=self, needs=_needs(self.door.mesh))

    def __repr__(self) -> str:
        return f"{getattr(self.door, '__name__', 'function')} compiled by Hloom"

    @property
    def function(self) -> Callable[..., list[Any]]:
        """The function on leaves, for JAX to trace."""
        run: Callable[..., list[Any]] = imported("jax.extend.core", PURPOSE).jaxpr_as_fun(self.jaxpr)
        return run


class Equations:
    """A call of a function of `jax.jit`, as the equations that JAX makes of it: usually one."""

    def __init__(self, jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._jax, self._core = imported("jax", PURPOSE), imported("jax.extend.core", PURPOSE)
        self._closed, results = self._jax.make_jaxpr(lambda: jitted(*args, **kwargs), return_shape=True)()
        self._tree = self._jax.tree.structure(results)

    @property
    def are_transformed(self) -> bool:
        """Whether JAX is about to transform an argument, or a value that the function closes over."""
        return any(isinstance(value, self._jax.core.Tracer) for value in self._closed.consts)

    def bound(self, door: Jitted) -> Any:
        """Calls the function with Hloom in the place of `jax.jit`."""
        values: dict[Any, Any] = dict(zip(self._closed.jaxpr.constvars, self._closed.consts, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, self._core.Literal) else values[atom]

        for equation in self._closed.eqns:
            leaves, params = [read(atom) for atom in equation.invars], equation.params
            if equation.primitive is self._core.primitives.jit_p:
                inside, outside = (_asked(self._jax, params[name]) for name in ("in_shardings", "out_shardings"))
                found = Call(params["jaxpr"], door, inside, outside).bind(leaves)
            else:
                found = equation.primitive.bind(*leaves, **params)
            several = equation.primitive.multiple_results
            values.update(zip(equation.outvars, found if several else [found], strict=True))
        return self._tree.unflatten([read(atom) for atom in self._closed.jaxpr.outvars])


def _asked(jax: Any, shardings: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(s if isinstance(s, jax.sharding.Sharding) else None for s in shardings)


@functools.cache
def primitive() -> Any:
    """Returns the primitive, with its rules registered."""
    from .transforms import register

    core, mlir = imported("jax.extend.core", PURPOSE), imported("jax.interpreters.mlir", PURPOSE)
    made = core.Primitive("hloom_jit")
    made.multiple_results = True
    made.def_impl(_run)
    made.def_effectful_abstract_eval(_results)
    mlir.register_lowering(made, _lower)
    register(made)
    return made


@functools.lru_cache
def _needs(mesh: Any) -> Any:
    """Returns a jaxpr that never runs. Its equations tell JAX which devices the program has, and that lowering must
    know them.
    """
    jax = imported("jax", PURPOSE)

    def asking() -> Any:
        scalar = jax.ShapeDtypeStruct((), np.float32)
        value = jax.pure_callback(lambda: np.float32(0), scalar)
        if mesh is None:
            return value
        return jax.lax.with_sharding_constraint(value, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))

    return jax.make_jaxpr(asking)()


def _results(*_: Any, jaxpr: Any, **__: Any) -> tuple[Any, Any]:
    return jaxpr.out_avals, jaxpr.effects


def _run(*leaves: Any, call: Call, **_: Any) -> list[Any]:
    return list(_door(call)(*leaves))


def _lower(context: Any, *values: Any, call: Call, **_: Any) -> Any:
    """Lowers the equation. Where axes are manual, every device computes alone, so nothing is partitioned."""
    mlir = imported("jax.interpreters.mlir", PURPOSE)
    where = context.module_context.axis_context
    manual = isinstance(where, mlir.SPMDAxisContext) and where.manual_axes
    run = call.function if manual else _compiled(call, _devices(where)).call_flat
    return mlir.lower_fun(run, multiple_results=True)(context, *values)


def _devices(where: Any) -> tuple[Any, ...]:
    """Returns the devices of a program of JAX; none if JAX does not know them."""
    return tuple(getattr(where, "device_assignment", None) or ())


@functools.lru_cache(MADE)
def _door(call: Call, devices: tuple[Any, ...] = ()) -> Jitted:
    """Returns a function that Hloom compiles, with the user's name and place. On `devices` unless it has a mesh."""
    inside = tuple(None if isinstance(s, Origin) else s for s in call.inside)
    if devices:
        inside = tuple(_compiled(s.call, devices).out_shardings[s.result] if isinstance(s, Origin) else s
                       for s in call.inside)

    @functools.wraps(call.door)
    def function(*leaves: Any) -> tuple[Any, ...]:
        return tuple(call.function(*leaves))

    return call.door.alike(function, inside, call.outside, devices)


@functools.lru_cache(MADE)
def _compiled(call: Call, devices: tuple[Any, ...]) -> Compiled:
    """Compiles a call for the devices of the program in which it stands."""
    if not devices:
        fail("the devices are not known on which JAX runs this program", place_of(call.door))
    return _door(call, devices).lower(*map(_shape, call.jaxpr.in_avals)).compile()


def _shape(aval: Any) -> Any:
    jax = imported("jax", PURPOSE)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
