"""The primitive of JAX for a function that Hloom compiles: one equation, which carries the function's own jaxpr.

`hloom.jax.jit` is `jax.jit` of such an equation. So calls, caches, donation, types and errors are JAX's own, and what
JAX makes of the equation is Hloom's: lowering it partitions the jaxpr, and puts the program of each device in its
place, as the body of a `shard_map`. Only then the number of devices and the shardings of the arguments are known, also
for a function that is called inside of another one.
"""

from __future__ import annotations

import functools
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..frontends.extras import imported
from ..ir.diagnostics import Location
from . import PURPOSE
from .inspecting import TellShardings, numbering, primitive_of_inspections
from .meshes import placed
from .operands import sharding_of
from .program import DeviceProgram
from .refs import bound, effects_on_own_refs

MADE = 1024
"""The number of functions, and of derivatives of them, that stay compiled."""


@dataclass(frozen=True, eq=False)
class Door:
    """Says how a function is compiled: its place in the user's source, `options` of `hloom.partition`, the platforms
    that are allowed, and, if the user gave a mesh, a jaxpr that never runs and `needs` its devices, for JAX to find
    them.
    """

    place: Location | None
    options: Mapping[str, Any]
    platforms: tuple[str, ...]
    needs: Any = None


@dataclass(frozen=True)
class JaxCall:
    """A function on leaves, and the door that it came through. `inside` and `outside` are the shardings of arguments
    and results, None where nobody asked for one. `context` is JAX's mesh in whose context the function was traced.
    """

    jaxpr: Any
    door: Door
    name: str
    inside: tuple[Any, ...]
    outside: tuple[Any, ...]
    context: Any

    def bind(self, leaves: Sequence[Any]) -> list[Any]:
        """Calls the function, as one equation of the program that JAX traces."""
        return primitive().bind(*leaves, jaxpr=self.jaxpr, call=self, needs=self.door.needs)

    def __repr__(self) -> str:
        return f"{self.name} compiled by Hloom"

    @property
    def function(self) -> Callable[..., list[Any]]:
        """The function on leaves, for JAX to trace."""
        run: Callable[..., list[Any]] = imported("jax.extend.core", PURPOSE).jaxpr_as_fun(self.jaxpr)
        return run


def picked(values: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """Returns the values whose flags are set."""
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def unpicked(values: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """Returns the values whose flags are not set."""
    return [value for value, flag in zip(values, flags, strict=True) if not flag]


def called(door: Door, jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls a function of `jax.jit` on traced arguments, with Hloom's equation in the place of JAX's."""
    jax, core = imported("jax", PURPOSE), imported("jax.extend.core", PURPOSE)
    closed, results = jax.make_jaxpr(lambda: jitted(*args, **kwargs), return_shape=True)()
    values: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in closed.eqns:
        leaves, params = [read(atom) for atom in equation.invars], equation.params
        if equation.primitive is core.primitives.jit_p:
            call, used = _needed(JaxCall(
                params["jaxpr"], door, params["name"], _asked(jax, params["in_shardings"]),
                _asked(jax, params["out_shardings"]), jax.sharding.get_abstract_mesh(),
            ))  # fmt: skip
            found = bound(call, picked(leaves, used))
        else:
            found = equation.primitive.bind(*leaves, **params)
        several = equation.primitive.multiple_results
        values.update(zip(equation.outvars, found if several else [found], strict=True))
    return jax.tree.structure(results).unflatten([read(atom) for atom in closed.jaxpr.outvars])


def _asked(jax: Any, shardings: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(s if isinstance(s, jax.sharding.Sharding) else None for s in shardings)


def _needed(call: JaxCall) -> tuple[JaxCall, list[bool]]:
    """Returns a call without the arguments that its function does not use, and which ones it uses."""
    core, partial_eval = imported("jax.extend.core", PURPOSE), imported("jax.interpreters.partial_eval", PURPOSE)
    needed, used = partial_eval.dce_jaxpr(call.jaxpr.jaxpr, [True] * len(call.outside))
    closed = core.ClosedJaxpr(needed, call.jaxpr.consts)
    return replace(call, jaxpr=closed, inside=tuple(picked(call.inside, used))), used


@functools.cache
def primitive() -> Any:
    """Returns the primitive, with its rules registered. To JAX, files of Hloom are none of the user's from now on."""
    from .transforms import register

    imported("jax.extend.source_info_util", PURPOSE).register_exclusion(f"{Path(__file__).parent}{os.sep}")
    core, mlir = imported("jax.extend.core", PURPOSE), imported("jax.interpreters.mlir", PURPOSE)
    made = core.Primitive("hloom_jit")
    made.multiple_results = True
    made.def_impl(_run)
    made.def_effectful_abstract_eval(_results)
    mlir.register_lowering(made, _lower, cacheable=False)
    register(made)
    return made


def _results(*_: Any, jaxpr: Any, **__: Any) -> tuple[Any, Any]:
    """Returns the types of the results, and the effects. Those on refs that the function makes itself are nobody's."""
    return jaxpr.out_avals, jaxpr.effects - effects_on_own_refs()


def _run(*leaves: Any, call: JaxCall, **_: Any) -> list[Any]:
    return _jitted(call)(*leaves)


@functools.lru_cache(MADE)
def _jitted(call: JaxCall) -> Any:
    def run(*leaves: Any) -> list[Any]:
        return call.bind(leaves)

    return imported("jax", PURPOSE).jit(run)


def _program(
    call: JaxCall, shardings: Sequence[Any], platform: str, count: int, devices: Sequence[Any] = ()
) -> DeviceProgram:
    """Lowers the function of a call, as if Hloom did not partition it, with these shardings of its arguments, and makes
    it a program for a `count` of devices. JAX knows the `devices` where lowering needs them: for Python functions.
    """
    jax, mlir = imported("jax", PURPOSE), imported("jax.interpreters.mlir", PURPOSE)

    def run(*leaves: Any) -> tuple[Any, ...]:
        return tuple(call.function(*leaves))

    run.__name__ = run.__qualname__ = call.name
    typed = [_explicit(a) and (s or a.sharding) for a, s in zip(call.jaxpr.in_avals, shardings, strict=True)]
    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type, sharding=placed(t, devices))
        for a, t in zip(call.jaxpr.in_avals, typed, strict=True)
    ]
    inside = tuple(None if t else placed(s, devices) for t, s in zip(typed, shardings, strict=True))
    asked = tuple(
        placed(s or _explicit(a), devices) for a, s in zip(call.jaxpr.out_avals, call.outside, strict=True)
    )
    inspecting: list[Callable[..., None]] = []
    rules: list[tuple[Any, Callable[..., Any]]] = [(primitive(), _lower_flat)]
    if len(devices) > 1:  # on one, JAX calls them itself
        rules.append((primitive_of_inspections(), numbering(inspecting)))
    own = mlir.LoweringParameters(override_lowering_rules=tuple(rules))
    with jax.sharding.use_abstract_mesh(call.context):
        traced = jax.jit(run, in_shardings=inside, out_shardings=asked, keep_unused=True).trace(*shapes)
        lowered = traced.lower(lowering_platforms=(platform,), _private_parameters=own)
    return DeviceProgram(call, lowered, count, platform, TellShardings(tuple(inspecting), tuple(devices)))


def _explicit(aval: Any) -> Any:
    """Returns the sharding that a type of JAX says, None if it has no explicit axes."""
    explicit = imported("jax", PURPOSE).sharding.AxisType.Explicit
    mesh = aval.sharding.mesh
    return aval.sharding if not mesh.empty and explicit in mesh.axis_types else None


def _lower_flat(context: Any, *values: Any, call: JaxCall, **_: Any) -> Any:
    return imported("jax.interpreters.mlir", PURPOSE).lower_fun(call.function, multiple_results=True)(context, *values)


def _lower(context: Any, *values: Any, call: JaxCall, **_: Any) -> Any:
    """Lowers the equation. Where axes are manual, every device computes alone, so nothing is partitioned."""
    jax, mlir = imported("jax", PURPOSE), imported("jax.interpreters.mlir", PURPOSE)
    where, inside = context.module_context, context.avals_in
    if getattr(where.axis_context, "manual_axes", None):
        return _lower_flat(context, *values, call=call)
    if where.shape_poly_state.dim_vars:
        return _lower_as_jax(context, *values, call=call)
    count, devices = where.axis_context.num_devices, where.axis_context.device_assignment or ()
    shardings = [sharding_of(jax, v, a, count) or s for v, a, s in zip(values, inside, call.inside, strict=True)]
    program = _program(call, shardings, where.platforms[0], count, devices)
    _PROGRAMS.setdefault(where.module, []).append(program)
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):  # the body has a mesh of its own
        plain = context.replace(avals_in=[jax.core.ShapedArray(a.shape, a.dtype) for a in inside], avals_out=None)
        results = mlir.lower_fun(program.run(program.host.add_to(where)), multiple_results=True)(plain, *values)
    if program.host.ordered:
        context.set_tokens_out(plain.tokens_out)
    return results


def _lower_as_jax(context: Any, *values: Any, call: JaxCall) -> Any:
    """Lowers the equation as `jax.jit` does: for several platforms at once, and for dimensions without numbers, of
    which Hloom makes no tiles. Warns if this leaves the partitioning to XLA.
    """
    jax, mlir = imported("jax", PURPOSE), imported("jax.interpreters.mlir", PURPOSE)
    where = context.module_context
    _PROGRAMS.setdefault(where.module, [])
    several, unknown = " and ".join(where.platforms), where.shape_poly_state.dim_vars[-1]
    if where.axis_context.num_devices > 1:
        reason = f"the program is for {several}" if len(where.platforms) > 1 else f"dimension {unknown} has no number"
        name, line = (place.source.name, place.line) if (place := call.door.place) is not None else (call.name, 0)
        warnings.warn_explicit(f"XLA partitions {call.name}, not Hloom: {reason}", RuntimeWarning, name, line)

    def run(*leaves: Any) -> tuple[Any, ...]:
        return tuple(call.function(*leaves))

    jitted = jax.jit(run, in_shardings=call.inside, out_shardings=call.outside)
    return mlir.lower_fun(jitted, multiple_results=True)(context, *values)


_PROGRAMS: weakref.WeakKeyDictionary[Any, list[DeviceProgram]] = weakref.WeakKeyDictionary()


def program_in(traced: Any, lowered: Any) -> DeviceProgram | None:
    """Returns the program of Hloom for a traced function of `hloom.jax.jit`, which JAX has lowered; None if it was
    lowered as `jax.jit` does.
    """
    found = _PROGRAMS.get(lowered.compiler_ir("stablehlo"))
    if found is not None:
        return found[0] if found else None
    call = next(e.params["call"] for e in traced.jaxpr.eqns if e.primitive is primitive())
    platform = call.door.platforms[0]  # JAX does not lower a function without results
    return _program(call, [None] * len(call.inside), platform, 1)
