"""Finds the decisions that results depend on: parts of a trial that do not generalise to other inputs.

A trial bounds the chance of a mistake where values flow: through sums, products and functions of random elements. A
comparison of floats, a float that becomes an integer, and an integer or predicate of an input take one of few values.
Trials may miss a mistake that shows for others only, however often elements are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Draws
from ...ir.graph.op import Algebra
from ...ir.ops.calls.custom_call import is_unknown
from ...ir.types.shape import Shape
from ..plan.interpreter import label
from .flow import DataFlow, ValueLeaf
from .pairs import is_exact


def hanging(original: DataFlow, local: DataFlow) -> list[str]:
    """Names a decision that each array of the result depends on in one of two programs, empty where there is none."""
    expected, found = (_nearest(flow, _deciding(flow)) for flow in (original, local))
    return [a or b for a, b in zip(expected, found, strict=True)] if len(expected) == len(found) else expected


def hanging_on_bits(original: DataFlow, local: DataFlow) -> list[str]:
    """Names an op by which each array of the result depends on bits of floats in the program per device; empty where
    there is none, and where the original has one, too.
    """
    expected, found = (_nearest(flow, filter(_takes_bits, flow.places())) for flow in (original, local))
    return ["" if a else b for a, b in zip(expected, found, strict=True)] if len(expected) == len(found) else []


def _takes_bits(place: ValueLeaf) -> bool:
    i = place.instruction
    inner = (j for c in i.called() for j in c) if i.op.role is None else ()
    return any(is_exact(j.shape) and _takes_floats(j) and j.op.algebra_of(j.call) is Algebra.BITS for j in (i, *inner))


def _nearest(flow: DataFlow, places: Iterable[ValueLeaf]) -> list[str]:
    """Names the nearest of these values that each array of a program's result depends on; empty where there is none."""
    nearest = flow.nearest(places)
    leaves = zip(flow.results(), flow.entry.root.shape.leaves(), strict=True)
    results = [place for place, leaf in leaves if leaf.is_array]
    return [_named(nearest[r]) if r is not None and r in nearest else "" for r in results]


def ending_inputs(flow: DataFlow) -> frozenset[int]:
    """Numbers the leaves of the parameters that some loop's trip count depends on."""
    ending = flow.made_of(flow.ends)
    return frozenset(n for n, place in enumerate(flow.parameters) if place in ending)


def _deciding(flow: DataFlow) -> Iterator[ValueLeaf]:
    known: dict[Computation, bool] = {}
    for place in flow.places():
        if place in flow.inputs:
            if is_exact(_leaf(place)):
                yield place
        elif _decides(place, known):
            yield place


def _decides(place: ValueLeaf, known: dict[Computation, bool]) -> bool:
    i = place.instruction
    if i.op.role is not None:
        return False
    if is_exact(_leaf(place)) and (i.op.interface(Draws) or _takes_floats(i) or is_unknown(i)):
        return True
    return _compares(i) or any(_applies_comparisons(c, known) for c in i.called())


def _applies_comparisons(computation: Computation, known: dict[Computation, bool]) -> bool:
    if computation not in known:
        known[computation] = any(_compares(i) or any(_applies_comparisons(c, known) for c in i.called())
                                 for i in computation)  # fmt: skip
    return known[computation]


def _compares(i: Instruction) -> bool:
    return _takes_floats(i) and i.op.algebra_of(i.call) in (Algebra.ORDER, Algebra.TOTAL_ORDER)


def _takes_floats(i: Instruction) -> bool:
    return any(not is_exact(leaf) for o in i.operands for leaf in o.shape.leaves())


def _leaf(place: ValueLeaf) -> Shape:
    return list(place.instruction.shape.leaves())[place.leaf]


def _named(place: ValueLeaf) -> str:
    i = place.instruction
    return f"{place} ({_leaf(place).element})" if not i.operands else label(i)
