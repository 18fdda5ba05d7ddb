"""`hloom.jax.jit` for functions of objects that are not trees of arrays: modules of Equinox and of Flax NNX."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..frontends.extras import imported
from . import PURPOSE
from .jitted import jit
from .primitive import picked, unpicked

Donate = Literal["none", "all", "all-except-first"]
_TAGS = itertools.count()


def filter_jit(function: Callable[..., Any] | None = None, *, donate: Donate = "none", **options: Any) -> Any:
    """Compiles a function of any trees; stands in for `equinox.filter_jit`, and does not need Equinox.

    Arrays in the arguments, in their modules, and in the function itself, if it is a module, are arguments of the
    program. Everything else is part of it, must have a hash, and gets a program of its own. Results may contain both.
    `donate` lets results take the memory of the arrays in all arguments, or in all but the first. `options` are `mesh`,
    `options` and `platforms` of `hloom.jax.jit`.
    """
    if function is None:
        return functools.partial(filter_jit, donate=donate, **options)
    jax = imported("jax", PURPOSE)
    constant = _constant_node()

    def run(constants: Any, first: list[Any], rest: list[Any]) -> Any:
        flags, others, tree = constants
        arrays, values = iter([*first, *rest]), iter(others)
        called, args, kwargs = tree.unflatten([next(arrays) if is_array else next(values) for is_array in flags])
        leaves, result = jax.tree.flatten(called(*args, **kwargs))
        places = tuple(_is_array(jax, leaf) for leaf in leaves)
        return picked(leaves, places), constant((places, tuple(unpicked(leaves, places)), result))

    donated = {"none": (), "all": (1, 2), "all-except-first": (2,)}[donate]
    compiled = jit(_named(run, function), static_argnums=0, donate_argnums=donated, **options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((function, args, kwargs))
        flags = tuple(_is_array(jax, leaf) for leaf in leaves)
        arrays, others = picked(leaves, flags), tuple(unpicked(leaves, flags))
        count = sum(_is_array(jax, leaf) for leaf in jax.tree.leaves((function, args[:1])))
        found, held = compiled((flags, others, tree), arrays[:count], arrays[count:])
        places, values, result = held.value
        made, kept = iter(found), iter(values)
        return result.unflatten([next(made) if is_array else next(kept) for is_array in places])

    return call


def nnx_jit(function: Callable[..., Any] | None = None, *, donate: bool = False, **options: Any) -> Any:
    """Compiles a function of modules of Flax NNX; stands in for `flax.nnx.jit`.

    The function may change the modules in its arguments, and return modules; other numbers and texts are part of
    the program. `donate` lets the new state take the memory of the old one. `options` are `mesh`, `options` and
    `platforms` of `hloom.jax.jit`.
    """
    if function is None:
        return functools.partial(nnx_jit, donate=donate, **options)
    nnx, tag = imported("flax.nnx", "to compile functions of its modules"), f"hloom {next(_TAGS)}"

    def run(graph: Any, state: Any) -> Any:
        with nnx.merge_context(tag, inner=True) as context:
            args, kwargs = context.merge(graph, state)
        result = function(*args, **kwargs)
        with nnx.split_context(tag) as context:
            return context.split((args, kwargs, result))

    compiled = jit(_named(run, function), donate_argnums=(1,) if donate else (), **options)

    @functools.wraps(function)
    @nnx.update_context(tag)
    def call(*args: Any, **kwargs: Any) -> Any:
        with nnx.split_context(tag) as context:
            graph, state = context.split((args, kwargs))
        graph, state = compiled(graph, state)
        with nnx.merge_context(tag, inner=False) as context:
            return context.merge(graph, state)[2]

    return call


def _named(run: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function the name of the user's, and its place in diagnostics."""
    run.__name__ = run.__qualname__ = getattr(function, "__name__", type(function).__name__)
    described: Any = run
    described.__signature__, described.__wrapped__ = inspect.signature(run), function
    return run


def _is_array(jax: Any, value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


@functools.cache
def _constant_node() -> Any:
    """Returns the type of a tree without leaves that holds a value."""

    class Constant:
        def __init__(self, value: Any) -> None:
            self.value = value

    def flatten(node: Constant) -> tuple[tuple[()], Any]:
        return (), node.value

    def unflatten(value: Any, _: Any) -> Constant:
        return Constant(value)

    imported("jax.tree_util", PURPOSE).register_pytree_node(Constant, flatten, unflatten)
    return Constant
