"""Ends of reads that change together, on small random programs: never worse than a descent, and often better."""

from __future__ import annotations

import random

import pytest
from hloom.passes.planning.choice_costs import Assumed, ChoiceCosts
from hloom.passes.planning.descent import Descent, descend
from hloom.passes.planning.joining import joined

from .test_bound import SLOW_LINKS, costs_of, program, values_of

LIMIT = 1e12


def ends_of_descents(costs: ChoiceCosts, seed: int, starts: int = 8) -> list[dict[int, int]]:
    """Returns where descents from random choices end."""
    rnd = random.Random(seed)
    counts = [len(of_class.rows) for of_class in costs.model.classes]
    begun = [{n: rnd.randrange(count) for n, count in enumerate(counts)} for _ in range(starts)]
    return [descend(costs, choice, LIMIT) for choice in begun]


def test_joined_ends_reach_the_best_choice_where_single_classes_do_not() -> None:
    single = both = 0
    for seed in range(12):
        costs = costs_of(program(seed), SLOW_LINKS, Assumed(0.4, 8.0), a=4)
        best = min(value.price(LIMIT) for value in values_of(costs))
        for choice in ends_of_descents(costs, seed):
            before, after = (costs.value(c).price(LIMIT) for c in (choice, joined(costs, choice, LIMIT)))
            assert after <= before * (1 + 1e-12)
            single, both = single + (before > best * (1 + 1e-6)), both + (after > best * (1 + 1e-6))
    assert single >= 40  # of 96 ends
    assert both <= 0.6 * single


@pytest.mark.parametrize("seed", range(4))
def test_a_descent_knows_its_price_whatever_it_tried(seed: int) -> None:
    costs = costs_of(program(seed), SLOW_LINKS, Assumed(0.0, 8.0), a=2, b=2)
    for choice in ends_of_descents(costs, seed, 2):
        descent = Descent(costs, choice, LIMIT)
        for number, of_class in enumerate(costs.model.classes):
            state = descent.state
            descent.set(number, len(of_class.rows) - 1)
            descent.run(descent.around(number), held=number)
            assert descent.choice[number] == len(of_class.rows) - 1
            assert descent.price == pytest.approx(costs.value(descent.choice).price(LIMIT), rel=1e-9)
            descent.state = state
            assert descent.price == pytest.approx(costs.value(choice).price(LIMIT), rel=1e-9)
