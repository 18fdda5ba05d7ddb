"""Tables of the costs of reads against the same costs, found one choice and one value at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hloom.passes.planning.choice_costs import Assumed, ChoiceCosts
from hloom.passes.planning.descent import alternatives
from hloom.passes.planning.model import Choice
from hloom.passes.planning.read_costs import ReadCosts
from hloom.passes.resharding.table import Division

from .test_bound import SLOW_LINKS, costs_of, program


def plainly(costs: ChoiceCosts, choice: Choice) -> tuple[float, float]:
    """Returns K and H of a choice: each value moves to each division that its readers want, once."""
    classes = costs.model.classes
    waiting = sum(float(classes[n].exchanging[row]) for n, row in choice.items())
    hiding = 0.0
    for reads in costs.model.of.reads:
        source = reads.stand.division(classes[reads.stand.cluster].division(choice[reads.stand.cluster]))
        once: dict[Division, tuple[float, bool]] = {}
        for reader in reads.readers:
            number = reader.stand.cluster
            target = reader.stand.division(classes[number].division(choice[number]))
            cost = reads.count * reader.runs * float(costs.moves(reads, [source], [target], reader.hides)[0, 0])
            before = once.get(target, (0.0, True))
            once[target] = max(cost, before[0]), reader.hides and before[1]
        waiting += sum(cost for cost, hides in once.values() if not hides)
        hiding += sum(cost for cost, hides in once.values() if hides)
    return waiting, hiding


@pytest.mark.parametrize("seed", range(6))
def test_tables_hold_the_costs_of_single_moves(seed: int) -> None:
    costs, rnd = costs_of(program(seed), SLOW_LINKS, Assumed(0.4, 4.0), data=2, model=4), random.Random(seed)
    for _ in range(20):
        choice = {n: rnd.randrange(len(c.rows)) for n, c in enumerate(costs.model.classes)}
        value = costs.value(choice)
        assert (value.waiting, value.hiding) == pytest.approx(plainly(costs, choice))


@pytest.mark.parametrize("seed", range(2))
def test_alternatives_are_the_prices_of_other_choices(seed: int) -> None:
    costs, rnd = costs_of(program(seed), SLOW_LINKS, Assumed(), data=2, model=2), random.Random(seed)
    choice = {n: rnd.randrange(len(c.rows)) for n, c in enumerate(costs.model.classes)}
    for number, prices in enumerate(alternatives(costs, choice, range(len(choice)))):
        others = [v.objective for v in costs.values([{**choice, number: row} for row in range(len(prices))])]
        assert prices.tolist() == pytest.approx(others)


@pytest.mark.parametrize("readers", [1, 3])
def test_one_choice_many_and_flat_tables_have_the_same_seconds(readers: int) -> None:
    rnd = np.random.default_rng(readers)
    places = [rnd.integers(0, 3, 5) for _ in range(readers + 1)]
    tables = [rnd.random((3, 3)) for _ in range(readers)]
    costs = ReadCosts(range(readers + 1), places, tables, [1.0, 3.0, 2.0][:readers], [True, False, True][:readers],
                      rnd.random((3, 3)))  # fmt: skip
    rows = rnd.integers(0, 5, (readers + 1, 40))
    every, alone = np.zeros((3, 40)), np.zeros((3, 40))
    costs.add(rows, *every)
    for n in range(40):
        costs.add(rows[:, n : n + 1], *alone[:, n : n + 1])
    assert every.tolist() == alone.tolist() == [part.tolist() for part in costs.spent(dict(enumerate(rows)))]
