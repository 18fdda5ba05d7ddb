"""Transforms a function that Hloom compiles by JAX's rules: each makes other functions, which Hloom compiles as well.

A derivative has two parts. The first computes the results, and residuals for the second; the second is linear in the
tangents. JAX's transposition of the second gives gradients. They are two calls from the beginning, so that JAX can
separate them as it likes: in reverse mode, in loops, and under `jax.checkpoint`.

The policy of `jax.checkpoint` is asked about the equations of the function, as if they stood outside. The call becomes
two: one also returns the values that are saved, the other computes all results again from those.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..frontends.extras import imported
from . import PURPOSE
from .primitive import MADE, JaxCall, picked, unpicked
from .refs import effects_on_own_refs


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


def register(primitive: Any) -> None:
    """Registers all rules with JAX."""
    ad, batching = imported("jax.interpreters.ad", PURPOSE), imported("jax.interpreters.batching", PURPOSE)
    ad.primitive_jvps[primitive] = _differentiate
    ad.primitive_transposes[primitive] = _transpose
    batching.fancy_primitive_batchers[primitive] = _map
    imported("jax.interpreters.partial_eval", PURPOSE).partial_eval_jaxpr_custom_rules[primitive] = save


# -- derivatives


@dataclass(frozen=True)
class _Linearized:
    """The two parts of a derivative. `residuals` says where the arguments of `linear` before the tangents come from: an
    argument of `forward` (its number), or a result (its number after those of the arguments). `varying` says which
    results have tangents.
    """

    forward: JaxCall
    linear: JaxCall
    residuals: tuple[int, ...]
    varying: tuple[bool, ...]


def _differentiate(primals: Sequence[Any], tangents: Sequence[Any], *, call: JaxCall, **_: Any) -> tuple[Any, Any]:
    ad = imported("jax.interpreters.ad", PURPOSE)
    avals = call.jaxpr.in_avals
    moving = tuple(type(t) is not ad.Zero and _is_inexact(aval) for t, aval in zip(tangents, avals, strict=True))
    parts = _linearized(call, moving)
    found = parts.forward.bind(primals)
    known, results = [*primals, *found], found[: len(call.jaxpr.out_avals)]
    given = [*(known[n] for n in parts.residuals), *picked(tangents, moving)]
    changes = iter(parts.linear.bind(given) if any(parts.varying) else ())
    return results, [
        next(changes) if varies else ad.Zero(aval.to_tangent_aval())
        for varies, aval in zip(parts.varying, call.jaxpr.out_avals, strict=True)
    ]


@functools.lru_cache(MADE)
def _linearized(call: JaxCall, moving: tuple[bool, ...]) -> _Linearized:
    """Makes the two parts of the derivative by the arguments that are `moving`."""
    jax = imported("jax", PURPOSE)
    avals, results = call.jaxpr.in_avals, call.jaxpr.out_avals
    varying = tuple(any(moving) and _is_inexact(aval) for aval in results)
    structure: Any = None

    def forward(*primals: Any) -> list[Any]:
        nonlocal structure

        def on_moving(*given: Any) -> list[Any]:
            return call.function(*_merged(moving, given, unpicked(primals, moving)))

        found, change = jax.linearize(on_moving, *picked(primals, moving))
        residuals, structure = jax.tree.flatten(change)
        return [*found, *residuals]

    def linear(*leaves: Any) -> list[Any]:
        count = len(leaves) - sum(moving)
        return picked(structure.unflatten(leaves[:count])(*leaves[count:]), varying)

    whole = jax.make_jaxpr(forward)(*avals)
    places = [*whole.jaxpr.invars, *whole.jaxpr.outvars[: len(results)]]
    kept: list[Any] = list(whole.jaxpr.outvars[: len(results)])
    sources: list[int] = []
    for value in whole.jaxpr.outvars[len(results):]:
        same: list[int] = [n for n, other in enumerate(places) if other is value]
        if not same:
            same = [len(places)]
            places.append(value)
            kept.append(value)
        sources.append(same[0])
    made = with_results(whole, kept)
    first = replace(call, jaxpr=made, outside=(*call.outside, *(None,) * (len(kept) - len(results))))
    known = tuple(call.inside[n] if n < len(avals) else None for n in sources)
    asked = tuple(picked(call.inside, moving))
    changes = [aval.to_tangent_aval() for aval in picked(avals, moving)]
    second = jax.make_jaxpr(linear)(*(v.aval for v in whole.jaxpr.outvars[len(results):]), *changes)
    outside = tuple(picked(call.outside, varying))
    return _Linearized(first, replace(call, jaxpr=second, inside=(*known, *asked), outside=outside), tuple(sources),
                       varying)


def _transpose(cotangents: Sequence[Any], *leaves: Any, call: JaxCall, **_: Any) -> list[Any]:
    ad = imported("jax.interpreters.ad", PURPOSE)
    linear = tuple(ad.is_undefined_primal(leaf) for leaf in leaves)
    given = tuple(type(c) is not ad.Zero for c in cotangents)
    known = unpicked(leaves, linear)
    found = _transposed(call, linear, given).bind([*known, *picked(cotangents, given)])
    return _merged(linear, found, itertools.repeat(None))


@functools.lru_cache(MADE)
def _transposed(call: JaxCall, linear: tuple[bool, ...], given: tuple[bool, ...]) -> JaxCall:
    """Makes the function from the arguments that are not `linear`, and the cotangents that are `given` (the others are
    zero), to the cotangents of those that are.
    """
    jax = imported("jax", PURPOSE)
    avals, results = call.jaxpr.in_avals, call.jaxpr.out_avals
    moved, known = picked(avals, linear), unpicked(avals, linear)

    def transposed(*leaves: Any) -> list[Any]:
        fixed, arrive = leaves[: len(known)], leaves[len(known):]

        def on_linear(*values: Any) -> list[Any]:
            return picked(call.function(*_merged(linear, values, fixed)), given)

        if call.jaxpr.effects & effects_on_own_refs():  # which JAX transposes only as a part of derivatives
            zeros = [jax.numpy.zeros_like(aval) for aval in moved]
            return list(jax.vjp(on_linear, *zeros)[1](list(arrive)))
        return list(jax.linear_transpose(on_linear, *moved)(list(arrive)))

    made = jax.make_jaxpr(transposed)(*known, *(aval.to_ct_aval() for aval in picked(results, given)))
    inside = (*unpicked(call.inside, linear), *picked(call.outside, given))
    return replace(call, jaxpr=made, inside=inside, outside=tuple(picked(call.inside, linear)))


def _is_inexact(aval: Any) -> bool:
    jax = imported("jax", PURPOSE)
    return bool(jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact))


def _merged(chosen: Sequence[bool], given: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """Puts the values `given` at the chosen places, and `others` at the rest, each in order."""
    values, rest = iter(given), iter(others)
    return [next(values) if is_chosen else next(rest) for is_chosen in chosen]


# -- maps


def _map(axis: Any, leaves: Sequence[Any], dims: Sequence[int | None], *, call: JaxCall, **_: Any) -> tuple[Any, Any]:
    made, results = _mapped(call, axis.size, _name_of(axis.name), axis.spmd_name, tuple(dims))
    return made.bind(leaves), results


def _name_of(name: Any) -> Any:
    """Returns the name of a mapped axis for `jax.vmap`; None if the user gave it none."""
    return name if isinstance(name, str) else None


@functools.lru_cache(MADE)
def _mapped(
    call: JaxCall, size: int, name: Any, spmd_name: Any, dims: tuple[int | None, ...],
) -> tuple[JaxCall, tuple[int | None, ...]]:  # fmt: skip
    """Makes the function with a mapped axis at these dimensions. Results that do not depend on mapped arguments stay
    unchanged, unless the axis has a name, or the function refs of its own, by which they may depend on it.
    """
    jax = imported("jax", PURPOSE)
    is_plain = name is None and not call.jaxpr.effects & effects_on_own_refs()
    depends = _depends(call.jaxpr, [dim is not None for dim in dims]) if is_plain else [True] * len(call.outside)
    results = tuple(0 if does else None for does in depends)
    run: Callable[..., Any] = jax.vmap(
        call.function, in_axes=dims, out_axes=list(results), axis_size=size, axis_name=name,
        spmd_axis_name=spmd_name,
    )  # fmt: skip
    unmapped = imported("jax.extend.core", PURPOSE).unmapped_aval
    avals = [a if dim is None else unmapped(size, dim, a) for a, dim in zip(call.jaxpr.in_avals, dims, strict=True)]
    made = jax.make_jaxpr(run)(*avals)
    inside = tuple(_with_dim(jax, s, dim, spmd_name) for s, dim in zip(call.inside, dims, strict=True))
    outside = tuple(_with_dim(jax, s, dim, spmd_name) for s, dim in zip(call.outside, results, strict=True))
    return replace(call, jaxpr=made, inside=inside, outside=outside), results


def _depends(jaxpr: Any, sources: Sequence[bool]) -> list[bool]:
    """Returns which results of a jaxpr depend on the sources among its arguments."""
    core = imported("jax.extend.core", PURPOSE)
    known = set(picked(jaxpr.jaxpr.invars, sources))

    def does(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and atom in known

    for equation in jaxpr.eqns:
        if any(map(does, equation.invars)):
            known.update(equation.outvars)
    return [does(atom) for atom in jaxpr.jaxpr.outvars]


def _with_dim(jax: Any, sharding: Any, dim: int | None, axes: Any) -> Any:
    """Returns the sharding of an array with one more dimension, along which `axes` of the mesh divide it."""
    if sharding is None or dim is None:
        return sharding
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return None
    spec = [*sharding.spec, *(None,) * (dim - len(sharding.spec))]
    spec.insert(dim, axes)
    return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*spec))
