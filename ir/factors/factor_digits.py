"""Factors and digits: from the sharding of dimensions to the sharding of factors and back.

Digits number the tiles of a dimension with factors (f1 f2 ..), major first. f1 takes the first digits, up to its size;
f2 gets digits only once f1 is fully divided. Anything else would be a strided tile, which no sharding can express.
Within compound dimensions digits must divide the factor. A dimension with one factor allows any number of tiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..sharding.digit import Digit, Digits, merge, product
from .sharding_rule import DimFactors, ShardingRule


def factor_digits(digits: Digits, factors: DimFactors, rule: ShardingRule) -> list[tuple[int, Digits]]:
    """Distributes a dimension's digits over its factors, as far as possible. Returns (factor, digits) pairs."""
    if len(factors) == 1 and factors[0] not in rule.compound:
        return [(factors[0], digits)]
    result: list[tuple[int, Digits]] = []
    rest = list(reversed(digits))
    for factor in factors:
        taken, rest = take(rest, rule.factors[factor].size)
        result.append((factor, taken))
        if product(taken) != rule.factors[factor].size:
            break
    return result


def take(rest: list[Digit], size: int) -> tuple[Digits, list[Digit]]:
    """Takes the longest run of digits whose product divides `size` from the end of `rest`, a reversed sequence."""
    rest = list(rest)
    taken: list[Digit] = []
    while rest and size > 1:
        digit = rest.pop()
        part = math.gcd(digit.size, size)
        if part > 1:
            taken.append(Digit(part, digit.stride * (digit.size // part)))
            size //= part
        if part < digit.size:
            rest.append(Digit(digit.size // part, digit.stride))
            break
    return merge(taken), rest


def dim_digits(factors: DimFactors, assignment: Mapping[int, Digits], rule: ShardingRule) -> Digits:
    """Returns the digits of a dimension for these digits of its factors, up to the first not fully divided factor."""
    if len(factors) == 1:
        digits = assignment.get(factors[0], ())
        return digits if len(digits) < 2 else merge(digits)
    result: list[Digit] = []
    for factor in factors:
        digits = assignment.get(factor, ())
        result += digits
        if product(digits) != rule.factors[factor].size:
            break
    return merge(result)


def is_expressible(factors: DimFactors, assignment: Mapping[int, Digits], rule: ShardingRule) -> bool:
    """Whether `dim_digits` includes all digits of the factors and divides compound factors evenly."""
    whole = True
    for factor in factors:
        digits = assignment.get(factor, ())
        if digits and not whole:
            return False
        size = rule.factors[factor].size
        if len(factors) > 1 and size % product(digits):
            return False
        whole = product(digits) == size
    return True


def value_digits(
    dims: Sequence[Digits], factors: Sequence[DimFactors], rule: ShardingRule
) -> dict[int, Digits]:
    """Returns the digits that a value's dimensions give to each factor; factors without digits are omitted."""
    found: dict[int, Digits] = {}
    for digits, dim_factors in zip(dims, factors, strict=True):
        if digits:
            found.update((f, d) for f, d in factor_digits(digits, dim_factors, rule) if d)
    return found
