"""Orders that resume where they begin to differ take the time that the timeline gives them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import hloom
import pytest
from hloom.cost.machine import Cluster
from hloom.cost.presets import parse_machine
from hloom.cost.resumed import ResumedOrders
from hloom.cost.seconds import Clock
from hloom.cost.simulation import Steps
from hloom.cost.timeline import timeline_seconds
from hloom.ir.graph.instruction import Instruction
from hloom.passes.schedule.orders import Emission, Order, dependences
from support.layered_programs import Model

SLOW = parse_machine("work=f32:1G;memory=1GB", "1us/500MB")
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4, 5, *range(7, 40))]


def with_one_later(order: Order, choose: random.Random, needs: dict[Instruction, set[Instruction]]) -> Order:
    """Returns an order with an instruction, and all that needs it, at a later place."""
    place, distance = choose.randrange(len(order)), int(2 ** choose.uniform(1, 7))
    between, moved = order[place : place + distance], {order[place]}
    for i in between:
        if needs[i] & moved:
            moved.add(i)
    parts = [i for i in between if i not in moved] + [i for i in between if i in moved]
    return [*order[:place], *parts, *order[place + distance :]]


@pytest.mark.parametrize("seed", [0, 1, 6, *MANY])
def test_random_changes(seed: int) -> None:
    """Orders that are found to be no faster are not, and others take their time, of one order and then of the next."""
    choose = random.Random(seed)
    model = Model.random(choose.randint, ("both", "fsdp", "tp", "dp")[seed % 4])
    module = hloom.partition(hloom.parse(replace(model, layers=4, loop=seed % 8 > 5).text())).module
    assert isinstance(SLOW, Cluster)
    machine = replace(SLOW, overlap_share=(1.0, 0.9, 0.5)[seed % 3])
    clock, steps = Clock.of(module, machine), Steps()
    given = list(module.entry)
    direct = dependences(given)
    needs = {i: set(n) for i, n in direct.items()}
    for i in given:
        needs[i].update(*[needs[o] for o in direct[i]])
    orders = ResumedOrders(module.entry, clock, steps)
    emission = Emission(given, direct)
    slower = 0
    for _ in range(40):
        new = with_one_later(orders.order, choose, needs)
        first = next((n for n, (a, b) in enumerate(zip(new, orders.order, strict=True)) if a is not b), 0)
        last = next((n for n in range(len(new), 0, -1) if new[n - 1] is not orders.order[n - 1]), first)
        seconds = orders.tried(first, new[first:last])
        emission.begin()
        emission.emit([*new, *given])
        module.entry.reorder(emission.order)
        real = timeline_seconds(module, clock, steps)
        if seconds == math.inf:
            assert real >= orders.seconds * (1 - 1e-9)
            slower += 1
            continue
        assert seconds == pytest.approx(real, rel=1e-9)
        orders.begin(new, first)
        assert orders.seconds == pytest.approx(real, rel=1e-9)
    assert slower
