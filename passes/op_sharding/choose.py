"""Chooses the cheapest assignment of an op.

Candidates come from the shardings of operands and results: each value's own sharding, the same extended by the offers
of the others, and the same with the digits of indivisible factors moved to divisible ones. Contractions may also be
divided along any other factor, since repeating their work can cost more than resharding. The choice depends on no
opcode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...ir.factors.factor_digits import value_digits
from ...ir.factors.sharding_rule import FactorKind, ShardingRule, ValueFactors
from ...ir.graph.interfaces import Dynamic
from ...ir.sharding.digit import Digit, Digits, disjoint, merge, product
from .assignment import Assignment, OpSharding, all_expressible, legal
from .costs import cost, idle_digits, points, tiles_cost, work

# Choices that take as much longer at most count as equally fast. Rates and links of machines are known to some per cent
# only, while work and memory are exact.
NEARLY = 0.02


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses the assignment with the lowest price, which is its time on the machine unless `price` says otherwise."""

    price: Callable[[OpSharding, Assignment], float] = cost

    def choose(self, op: OpSharding) -> Assignment:
        """Returns the cheapest assignment. The empty one, which replicates everything, is always a candidate."""
        best = _settled(op)
        if best is not None and not _may_pay_to_divide(op, best):
            return best
        if best is None:
            candidates: dict[tuple[tuple[int, Digits], ...], Assignment] = {}
            for assignment in _candidates(op):
                candidates.setdefault(tuple(sorted(assignment.items())), assignment)
            best = self._best([(op, a) for a in candidates.values()])[1]
        further = without_repetition(op, best) if op.is_contraction and op.device is None else ()
        return self._best([(op, a) for a in (best, *further)])[1]

    def choose_rule(
        self, op: OpSharding, groups: Sequence[frozenset[int]], others: Callable[[], Sequence[ShardingRule]]
    ) -> tuple[OpSharding, Assignment]:
        """Extends `choose_partial` to alternative rules of the op; calls `others` for them only if need be."""
        if _settled(op) is not None or not (rules := others()):
            return self.choose_partial(op, groups)
        variants = (op, *(replace(op, rule=rule) for rule in rules))
        return self._best([self.choose_partial(variant, groups) for variant in variants])

    def choose_partial(self, op: OpSharding, groups: Sequence[frozenset[int]]) -> tuple[OpSharding, Assignment]:
        """Extends `choose` to partial operands and to operands on one device.

        Partial operands are reduced first, or the op runs on their parts. Operands on one device are sent to the
        others, or the op runs there. Digits may count in the device order of any value. `groups` are those of
        `Additive.additive`.
        """
        variants = [op]
        for group in groups:
            found = dict.fromkeys((op.tilings[n].unreduced, op.tilings[n].order) for n in sorted(group))
            variants += [
                replace(op, partial_digits=digits, partial_operands=group, order=order)
                for digits, order in found if digits
            ]
        dynamic = op.use.op.interface(Dynamic)
        held = () if dynamic is not None and dynamic.refuses_values else op.tilings[: len(op.rule.operands)]
        holders = dict.fromkeys(t.device for t in held if t.device is not None)
        # A form that communicates would use data of other devices.
        if holders and (op.exchanged is None or not op.exchanged(op, {})):
            variants += [replace(op, device=device) for device in holders]
        orders = dict.fromkeys(t.order for t in op.tilings if any(t.dims) and not op.manual)
        variants += [replace(op, order=order) for order in orders if order != op.order]
        if len(variants) == 1:
            return op, self.choose(op)
        return self._best([(variant, self.choose(variant)) for variant in variants])

    def _best(self, choices: Sequence[tuple[OpSharding, Assignment]]) -> tuple[OpSharding, Assignment]:
        """Returns the fastest choice, of equally fast ones the first.

        Among those of a contraction that are nearly as fast, less repeated work wins, then less memory. Equally fast
        views differ in memory alone.
        """
        if len(choices) == 1:
            return choices[0]
        times = [self.price(*choice) for choice in choices]
        least = min(times)
        ranked = list(zip(choices, times, strict=True))
        near = [pair for pair in ranked if pair[1] <= least + _slack(pair[0][0], least)]
        return min(near, key=lambda pair: _rank(*pair))[0] if len(near) > 1 else near[0][0]


CHEAPEST = Chooser()


def _settled(op: OpSharding) -> Assignment | None:
    """Returns the assignment under which every value keeps its tiling, if there is one without partial results."""
    if op.partial_digits or any(t.unreduced for t in op.tilings):
        return None
    offers: Assignment = {}
    for tiling, factors in zip(op.tilings, op.rule.values(), strict=True):
        offers.update(value_digits(tiling.dims, factors, op.rule))
    if any(op.rule.factors[f].kind is not FactorKind.PASS for f in offers):
        return None
    if any(op.tiling(v, offers) != tiling for v, tiling in enumerate(op.tilings)):
        return None
    used: list[Digits] = []
    for digits in offers.values():
        if any(not disjoint(digits, other) for other in used):
            return None
        used.append(digits)
    return offers if all_expressible(op.rule, offers) else None


def _may_pay_to_divide(op: OpSharding, settled: Assignment) -> bool:
    """Whether dividing a contraction further could take less time than repeating its work: the tiles of its results,
    which are as wanted, must then be gathered.
    """
    idle = product(idle_digits(op, settled)) if op.is_contraction else 1
    if idle == 1:
        return False
    results = range(len(op.rule.operands), len(op.shapes))
    tiles = sum(op.tiling(r, settled).local_shape(op.shapes[r]).byte_size for r in results)
    share = 1.0 - 1.0 / idle
    return work(op, settled) * share > op.machine.fastest.time(tiles * share)


def _slack(op: OpSharding, time: float) -> float:
    return NEARLY * abs(time) if op.is_contraction and not math.isinf(time) else 0.0


def _rank(choice: tuple[OpSharding, Assignment], time: float) -> tuple[float, float, float]:
    if choice[0].is_contraction:
        return points(*choice), tiles_cost(*choice), time
    return time, tiles_cost(*choice) if choice[0].view else 0.0, 0.0


def _candidates(op: OpSharding) -> Iterator[Assignment]:
    values = op.rule.values()
    offers: list[Assignment] = [
        value_digits(t.dims, f, op.rule) if t.order == op.order else {}
        for t, f in zip(op.tilings, values, strict=True)
    ]
    yield {}
    if not any(offers) or op.device is not None:
        return
    # Results come first, then operands by size: later offers only add digits compatible with earlier ones.
    by_size = sorted(range(len(values)), key=lambda v: (v < len(op.rule.operands), -op.shapes[v].byte_size, v))
    for first in range(len(values)):
        if not offers[first]:
            continue
        alone = legal(op, [offers[first]])
        yield alone
        rest = [offers[v] for v in by_size if v != first]
        yield legal(op, [offers[first], *rest])
        yield legal(op, [offers[first], *reversed(rest)])
        moved = _moved(op, offers[first], legal(op, [offers[first]], op.independent), values[first])
        if moved is not None:
            yield moved


def without_repetition(op: OpSharding, repeating: Assignment) -> Iterator[Assignment]:
    """Yields assignments of a contraction that divide by digits that this one leaves idle, along any factor: by all of
    them, by each alone, and by those of the operands and results.
    """
    idle = idle_digits(op, repeating)
    offers = [
        value_digits(t.dims, f, op.rule)
        for t, f in zip(op.tilings, op.rule.values(), strict=True) if t.order == op.order
    ]  # fmt: skip
    offered = tuple(d for offer in offers for digits in offer.values() for d in digits)
    for digits in dict.fromkeys((idle, *((digit,) for digit in idle), offered)):
        yield from _further_divided(op, repeating, digits)


def _further_divided(op: OpSharding, assignment: Assignment, digits: Iterable[Digit]) -> Iterator[Assignment]:
    """Yields assignments that divide one more factor, by all of these digits that are not in use yet."""
    used = [op.partial_digits, op.manual, *assignment.values()]
    unused = [d for d in dict.fromkeys(digits) if all(disjoint((d,), other) for other in used)]
    if not unused or any(not disjoint((d,), unused[:n]) for n, d in enumerate(unused)):
        return
    for factor in filter(op.independent, range(len(op.rule.factors))):
        found = assignment | {factor: merge((*assignment.get(factor, ()), *unused))}
        if all_expressible(op.rule, found):
            yield found


def _moved(op: OpSharding, offer: Assignment, legal: Assignment, factors: ValueFactors) -> Assignment | None:
    """Moves the digits that their own factors cannot take to other factors of the same value.

    An all-to-all then moves the digits of a dimension that must be replicated, instead of an all-gather.
    """
    taken = [op.partial_digits, op.manual, *legal.values()]
    unplaced = [d for f, part in offer.items() if f not in legal for d in part
                if all(disjoint((d,), other) for other in taken)]  # fmt: skip
    if not unplaced:
        return None
    result: Assignment = dict(legal)
    candidates = [f for dim in factors for f in dim if op.rule.factors[f].kind is FactorKind.PASS]
    candidates.sort(key=lambda f: -op.rule.factors[f].size)
    for digit in unplaced:
        for factor in candidates:
            trial = result | {factor: merge((*(result.get(factor) or ()), digit))}
            if op.rule.factors[factor].size % product(trial[factor]) == 0 and all_expressible(op.rule, trial):
                result = trial
                break
    return result if result != legal else None
