"""Trees: nested dicts, lists and tuples of values, as arguments, results and the state of loops.

Dicts are flattened in the order of their sorted keys, as in JAX, so that order of insertion never matters. None is a
tree without leaves. Anything else is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ...ir.diagnostics import fail


def children(tree: Any) -> list[tuple[str, Any]] | None:
    """Returns the parts of a node, each with its index as text (`['w']`, `[0]`); None for a leaf."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        known = cast("dict[Any, Any]", tree)
        try:
            return [(f"[{key!r}]", known[key]) for key in sorted(known)]
        except TypeError:
            fail(f"the keys of a dict have no order: {', '.join(map(repr, known))}", help="use text for all of them")
    if isinstance(tree, list | tuple):
        return [(f"[{n}]", part) for n, part in enumerate(cast("list[Any]", tree))]
    return None


def paths(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each leaf with its path: `params['w'][0]`."""
    parts = children(tree)
    if parts is None:
        yield name, tree
        return
    for index, part in parts:
        yield from paths(part, name + index)


def flatten(tree: Any) -> list[Any]:
    """Returns the leaves of a tree in order: the inputs of a program for its arguments, as `hloom.evaluate` takes them.

        hloom.evaluate(module, flatten((params, x)))
    """
    return [leaf for _, leaf in paths(tree)]


def unflatten(tree: Any, leaves: Iterable[Any]) -> Any:
    """Returns a tree like `tree` with these leaves in order: the results of a program as the function returns them.

    Raises CompileError if there are more leaves, or fewer.
    """
    rest = iter(leaves)
    found = mapped(tree, lambda _, __: next(rest, rest))
    if any(leaf is rest for leaf in flatten(found)) or next(rest, rest) is not rest:
        fail(f"the tree has {len(flatten(tree))} leaves, another number is given")
    return found


def mapped(tree: Any, function: Callable[[str, Any], Any], name: str = "") -> Any:
    """Returns the tree with `function(path, leaf)` in the place of each leaf."""
    parts = children(tree)
    if parts is None:
        return function(name, tree)
    if tree is None:
        return None
    made = [mapped(part, function, name + index) for index, part in parts]
    if isinstance(tree, dict):
        return dict(zip(sorted(cast("dict[Any, Any]", tree)), made, strict=True))
    if hasattr(tree, "_fields"):
        return type(tree)(*made)
    return type(tree)(made)


def difference(tree: Any, other: Any, name: str = "") -> str | None:
    """Returns where two trees differ in structure, in words; None if they do not."""
    ours, theirs = children(tree), children(other)
    if ours is None or theirs is None:
        return None if ours is theirs else f"{name or 'it'} is {_kind(other)}, not {_kind(tree)}"
    same_kind = (tree is None) == (other is None) and isinstance(tree, dict) == isinstance(other, dict)
    if not same_kind or [i for i, _ in ours] != [i for i, _ in theirs]:
        return f"{name or 'it'} has the parts {_parts(theirs)}, not {_parts(ours)}"
    for (index, part), (_, counterpart) in zip(ours, theirs, strict=True):
        if found := difference(part, counterpart, name + index):
            return found
    return None


def _kind(tree: Any) -> str:
    return "a single value" if children(tree) is None else f"a {type(tree).__name__}"


def _parts(parts: list[tuple[str, Any]]) -> str:
    return ", ".join(index for index, _ in parts) or "none"
