"""Refs of JAX, arrays that a function changes in place, in functions that Hloom compiles.

JAX lowers a function of refs as one of arrays. Refs that a function makes itself are thus nothing to Hloom. Those that
it is given are read before its equation and written after it: the function inside makes refs of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..frontends.extras import imported
from . import PURPOSE

if TYPE_CHECKING:
    from .primitive import JaxCall


@functools.cache
def effects_on_own_refs() -> Any:
    """Returns the effects, to JAX, of a function that makes a ref."""
    jax = imported("jax", PURPOSE)
    return jax.make_jaxpr(lambda: jax.freeze(jax.new_ref(0.0)))().effects


def bound(call: JaxCall, leaves: Sequence[Any]) -> list[Any]:
    """Calls a function whose arguments may be refs. What it leaves in them is among the results of its equation."""
    jax, core = imported("jax", PURPOSE), imported("jax.extend.core", PURPOSE)
    kind = imported("jax.ref", PURPOSE).AbstractRef
    are_refs = [isinstance(aval, kind) for aval in call.jaxpr.in_avals]
    if not any(are_refs):
        return call.bind(leaves)
    run: Callable[..., list[Any]] = core.jaxpr_as_fun(call.jaxpr)

    def on_values(*values: Any) -> list[Any]:
        given = [jax.new_ref(v) if is_ref else v for v, is_ref in zip(values, are_refs, strict=True)]
        found = run(*given)
        return [*found, *(jax.freeze(ref) for ref, is_ref in zip(given, are_refs, strict=True) if is_ref)]

    types = [aval.inner_aval if r else aval for aval, r in zip(call.jaxpr.in_avals, are_refs, strict=True)]
    left = tuple(sharding for sharding, is_ref in zip(call.inside, are_refs, strict=True) if is_ref)
    pure = replace(call, jaxpr=jax.make_jaxpr(on_values)(*types), outside=(*call.outside, *left))
    results = pure.bind([leaf[...] if is_ref else leaf for leaf, is_ref in zip(leaves, are_refs, strict=True)])
    count = len(call.outside)
    refs = (leaf for leaf, is_ref in zip(leaves, are_refs, strict=True) if is_ref)
    for ref, value in zip(refs, results[count:], strict=True):
        ref[...] = value
    return results[:count]
