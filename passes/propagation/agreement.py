"""One step of propagation: the offers that the values of one op make to one another. Pure functions of rule and states.

Every value claims digits for the factors of its dimensions, except values that any device can compute
(`Leaf.receive_only`). A factor takes the longest digits that all claims agree on, major digits first. Where claims
differ, `basic` takes their common prefix; `aggressive` takes the claim whose loss costs more: the bytes that each
device receives when its value is gathered. Digits that a value uses already, or must not use, end the offer to it.
Where two factors bring the same digits to a value, `basic` gives them to neither, `aggressive` to the one with the more
costly claim. The result depends on no order but that of the operands.

The two behaviours are Shardy's basic and aggressive strategies with two differences: Shardy counts sharded dimensions
and sizes of tensors instead of bytes, and drops an axis for all values if it does not suit one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...cost.formulas import received
from ...ir.divisors import divisors
from ...ir.factors.factor_digits import dim_digits, factor_digits
from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from ...ir.sharding.digit import Digit, Digits, common_prefix, disjoint, is_prefix, merge, product
from .values import LeafState, PropagationDirection

Values = Sequence[LeafState | None]  # one per value of the rule, None for values that take no part


@dataclass(frozen=True, slots=True)
class StepMode:
    """How a step runs: its direction, the kinds of factors it uses, and whether it resolves conflicting claims."""

    direction: PropagationDirection
    kinds: frozenset[FactorKind]
    aggressive: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """Digits of a factor, with the value and dimension that have them; losing them costs `loss` bytes."""

    digits: Digits
    value: int
    dim: int
    loss: int


@dataclass(frozen=True, slots=True)
class Offer:
    """The digits that a dimension of a value would have after accepting.

    `sources` are the claims of the dimension's factors; ignoring the offer costs `loss` bytes.
    """

    value: int
    dim: int
    digits: Digits
    sources: tuple[Claim, ...]
    loss: int


def gathered(state: LeafState, kept: Digits, digits: Digits) -> int:
    """Returns the bytes that a device receives to gather `state` along the digits that `digits` adds to its prefix
    `kept`.
    """
    total = state.width
    for size, dim in zip(state.sizes, state.dims, strict=True):
        total *= -(-size // product(dim))
    tiles = product(digits) // product(kept)
    return int(received("all-gather", total * tiles, tiles))


def claims(rule: ShardingRule, values: Values, mode: StepMode) -> dict[int, list[Claim]]:
    """Returns the claims for each factor of the values that may propagate in this mode: the longest, none a prefix of
    another.

    Equal claims become one, with the loss of all.
    """
    operands = len(rule.operands)
    found: dict[int, dict[Digits, Claim]] = {}
    for value, (state, factors) in enumerate(zip(values, rule.values(), strict=True)):
        speaks = PropagationDirection.FORWARD if value < operands else PropagationDirection.BACKWARD
        if state is None or state.receive_only or speaks not in mode.direction:
            continue
        for dim, (digits, dim_factors) in enumerate(zip(state.dims, factors, strict=True)):
            if not digits or not dim_factors:
                continue
            for factor, part in factor_digits(digits, dim_factors, rule):
                if part and rule.factors[factor].kind in mode.kinds:
                    mine = found.setdefault(factor, {})
                    loss = gathered(state, (), part)
                    old = mine.get(part)
                    mine[part] = Claim(part, old.value, old.dim, old.loss + loss) if old else Claim(
                        part, value, dim, loss)
    return {factor: _longest(list(mine.values())) for factor, mine in found.items()}


def _longest(found: list[Claim]) -> list[Claim]:
    if len(found) == 1:
        return found
    return [c for c in found if not any(c is not o and is_prefix(c.digits, o.digits) for o in found)]


def decide(found: dict[int, list[Claim]], aggressive: bool) -> dict[int, Claim]:
    """Chooses the claim that each factor takes."""
    decided: dict[int, Claim] = {}
    for factor, rivals in found.items():
        best = min(rivals, key=_rank)
        if len(rivals) > 1 and not aggressive:
            shared = best.digits
            for rival in rivals:
                shared = common_prefix(shared, rival.digits)
            if not shared:
                continue
            best = Claim(shared, best.value, best.dim, best.loss)
        decided[factor] = best
    return decided


def _rank(claim: Claim) -> tuple[int, Digits]:
    """Returns a sort key: costly losses first, then by digits alone, so that the order of operands decides nothing."""
    return -claim.loss, tuple(Digit(-d.size, -d.stride) for d in claim.digits)


def offers(rule: ShardingRule, values: Values, mode: StepMode) -> tuple[Offer, ...]:
    """Returns the offers to all values that may receive in this mode."""
    decided = decide(claims(rule, values, mode), mode.aggressive)
    if not decided:
        return ()
    assignment = {factor: claim.digits for factor, claim in decided.items()}
    operands = len(rule.operands)
    found: list[Offer] = []
    for value, (state, factors) in enumerate(zip(values, rule.values(), strict=True)):
        listens = PropagationDirection.BACKWARD if value < operands else PropagationDirection.FORWARD
        if state is None or listens not in mode.direction or all(state.closed):
            continue
        wanted: list[Offer] = []
        for dim, dim_factors in enumerate(factors):
            if dim_factors and not state.closed[dim]:
                digits = dim_digits(dim_factors, assignment, rule)
                digits = fitting(state, dim, digits)
                if grows(state.dims[dim], digits):
                    sources = tuple(decided[f] for f in dim_factors if f in decided)
                    wanted.append(Offer(value, dim, digits, sources, max(s.loss for s in sources)))
        found += _apart(state, wanted, mode.aggressive)
    return tuple(found)


def grows(old: Digits, new: Digits) -> bool:
    return product(new) > product(old) and is_prefix(old, new)


def fitting(state: LeafState, dim: int, digits: Digits) -> Digits:
    """Returns the longest prefix that the dimension may have: without blocked digits and digits of other dimensions."""
    if not digits:
        return ()
    used = [d for i, other in enumerate(state.dims) if i != dim for d in other]
    return without(digits, (*used, *state.blocked))


def without(digits: Digits, used: Sequence[Digit]) -> Digits:
    """Returns the longest prefix of disjoint digits that overlaps nothing in `used`; a digit's major part may stay."""
    kept: list[Digit] = []
    for digit in digits:
        free = _free_part(digit, (*used, *kept))
        if free is not None:
            kept.append(free)
        if free != digit:
            break
    return merge(kept)


def _free_part(digit: Digit, used: Sequence[Digit]) -> Digit | None:
    """Returns the largest major part of a digit that overlaps nothing in `used`."""
    if disjoint((digit,), used):
        return digit
    parts = (Digit(size, digit.stride * (digit.size // size)) for size in divisors(digit.size)[-2:0:-1])
    return next((part for part in parts if disjoint((part,), used)), None)


def _apart(state: LeafState, wanted: list[Offer], aggressive: bool) -> list[Offer]:
    """Reduces offers to one value so that it uses no digit twice."""
    if len(wanted) < 2:
        return wanted
    kept: list[Offer] = []
    for offer in sorted(wanted, key=lambda o: (-o.loss, o.dim)):
        rivals = kept if aggressive else [o for o in wanted if o is not offer]
        digits = without(offer.digits, [d for o in rivals for d in o.digits])
        if grows(state.dims[offer.dim], digits):
            kept.append(replace(offer, digits=digits))
    return kept
