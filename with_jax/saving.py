"""Splits a function that Hloom compiles for `jax.checkpoint`.

Its policy is asked about the equations of the function, as if they stood outside. The call becomes two: one also
returns the values that are saved, the other computes all results again from those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..frontends.extras import imported
from . import PURPOSE
from .primitive import JaxCall, unpicked


def save(
    policy: Callable[..., Any], unknown: Sequence[bool], kept: Sequence[bool], equation: Any
) -> tuple[Any, Any, list[bool], list[bool], list[Any]]:
    """Splits an equation into one before, and one for the backward pass; a rule of JAX's partial evaluation.

    `unknown` says which arguments are known in the backward pass only, `kept` which are there anyway. Returns both
    equations (None if there is none), which results are unknown, which are in the backward pass, and the further values
    that it needs.
    """
    needed = unpicked(equation.invars, kept)
    count = len(equation.outvars)
    if any(unknown):
        return None, equation, [True] * count, [True] * count, needed
    if policy(equation.primitive, *(v.aval for v in equation.invars), **equation.params) is True:
        return equation, None, [False] * count, [False] * count, []
    call: JaxCall = equation.params["call"]
    saved = [value for inner in call.jaxpr.eqns if _is_saved(policy, inner) for value in inner.outvars]
    if not saved:
        return equation, equation, [False] * count, [True] * count, needed
    first, second = _split(call, saved)
    new_variable = imported("jax.extend.core", PURPOSE).gensym()
    residuals = [new_variable(value.aval) for value in saved]
    before = _with_call(equation, first, equation.invars, [*equation.outvars, *residuals])
    after = _with_call(equation, second, [*residuals, *equation.invars], equation.outvars)
    return before, after, [False] * count, [True] * count, [*residuals, *needed]


def _is_saved(policy: Callable[..., Any], equation: Any) -> bool:
    """Whether a policy saves all results of an equation. Those that it would move elsewhere are computed again."""
    return policy(equation.primitive, *(v.aval for v in equation.invars), **equation.params) is True


def _split(call: JaxCall, saved: Sequence[Any]) -> tuple[JaxCall, JaxCall]:
    """Returns the call that also gives the saved values, and that which takes them before its arguments."""
    core = imported("jax.extend.core", PURPOSE)
    unasked = (None,) * len(saved)
    first = replace(call, jaxpr=with_results(call.jaxpr, [*call.jaxpr.jaxpr.outvars, *saved]),
                    outside=(*call.outside, *unasked))  # fmt: skip
    given = set(saved)
    rest = [equation for equation in call.jaxpr.eqns if not given.intersection(equation.outvars)]
    info = call.jaxpr.jaxpr.debug_info._replace(arg_names=None)
    again = call.jaxpr.jaxpr.replace(invars=[*saved, *call.jaxpr.jaxpr.invars], eqns=rest, debug_info=info)
    second = replace(call, jaxpr=core.ClosedJaxpr(again, call.jaxpr.consts), inside=(*unasked, *call.inside))
    return first, second


def with_results(jaxpr: Any, results: Sequence[Any]) -> Any:
    """Returns a closed jaxpr with other results."""
    core = imported("jax.extend.core", PURPOSE)
    info = jaxpr.jaxpr.debug_info._replace(result_paths=None)
    return core.ClosedJaxpr(jaxpr.jaxpr.replace(outvars=list(results), debug_info=info), jaxpr.consts)


def _with_call(equation: Any, call: JaxCall, arguments: Sequence[Any], results: Sequence[Any]) -> Any:
    params = {**equation.params, "jaxpr": call.jaxpr, "call": call}
    return equation.replace(invars=list(arguments), outvars=list(results), params=params)
