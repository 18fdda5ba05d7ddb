"""Causes: why a dimension has its digits. `trace` follows them to the annotation, `renew_causes` finds new ones."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.sharding.digit import Digit, disjoint, merge
from .values import Cause, Gain, Leaf, ValueGraph


def trace(leaf: Leaf, dim: int, digit: Digit) -> Iterator[tuple[Leaf, int, Cause | None]]:
    """Yields the path of (a part of) a digit back to its annotation: leaf, dimension, and the cause that brought it.

    The last entry has no cause: it is the annotated leaf. Parts of a digit may have causes that lead round in a circle;
    the path then ends where it began, without an annotation.
    """
    seen: set[tuple[Leaf, int]] = set()
    while (leaf, dim) not in seen:
        seen.add((leaf, dim))
        gain = next((g for g in leaf.causes[dim] if not disjoint((digit,), g.digits)), None)
        if gain is None:
            return
        yield leaf, dim, gain.cause
        if gain.cause is None:
            return
        leaf, dim = gain.cause.source, gain.cause.dim


def renew_causes(graph: ValueGraph) -> None:
    """Finds new causes for digits whose source lost them: a neighbour whose own causes lead to an annotation.

    Digits that came from no annotation (work divided for its own sake) get none.
    """
    leaves = list(dict.fromkeys(leaf for found in graph.leaves.values() for leaf in found))
    missing = [place for leaf in leaves for place in _stale(leaf)]
    for leaf, dim in missing:
        leaf.causes[dim] = []
    while missing:
        rest = [(leaf, dim) for leaf, dim in missing if not _explained(leaf, dim)]
        if len(rest) == len(missing):
            return
        missing = rest


def _stale(leaf: Leaf) -> Iterator[tuple[Leaf, int]]:
    """Yields the dimensions of a leaf whose digits differ from their causes, or whose causes lost the digits."""
    if leaf.fixed_sharding is not None or leaf.annotated:
        return
    for dim, (digits, gains) in enumerate(zip(leaf.dims, leaf.causes, strict=True)):
        if not gains and not digits:
            continue
        known = merge(d for gain in gains for d in gain.digits)
        gone = (g for g in gains if g.cause and any(
            disjoint((d,), g.cause.source.dims[g.cause.dim]) for d in g.digits))
        if known != digits or any(True for _ in gone):
            yield leaf, dim


def _explained(leaf: Leaf, dim: int) -> bool:
    """Finds causes for all digits of a dimension and records them; whether there are any."""
    gains: list[Gain] = []
    for digit in leaf.dims[dim]:
        cause = next(_sources(leaf, dim, digit), None)
        if cause is None:
            return False
        gains.append(Gain((digit,), cause))
    leaf.causes[dim] = gains
    return True


def _sources(leaf: Leaf, dim: int, digit: Digit) -> Iterator[Cause]:
    """Yields the dimensions that share a factor with a leaf's dimension and have a digit that leads to an annotation.
    """
    for relation in leaf.relations:
        values = relation.rule.values()
        factors = values[relation.leaves.index(leaf)][dim]
        for source, dims in zip(relation.leaves, values, strict=True):
            if source is leaf or source.fixed_sharding is not None:
                continue
            for place, (digits, others) in enumerate(zip(source.dims, dims, strict=True)):
                shared = set(others) & set(factors) and not disjoint((digit,), digits)
                if shared and any(cause is None for _, _, cause in trace(source, place, digit)):
                    yield Cause(relation.instruction, source, place)
