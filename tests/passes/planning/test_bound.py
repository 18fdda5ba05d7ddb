"""The bound of messages against all choices of small random programs: never above the best, and close to it."""

from __future__ import annotations

import itertools
import math
import random

import hloom
import numpy as np
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions
from hloom.passes.planning.bound import MessagePassing
from hloom.passes.planning.choice_costs import Assumed, ChoiceCosts, PlanValue
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.descent import combined
from hloom.passes.planning.model import Model
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.program import solve
from hloom.passes.planning.search import search

SLOW_LINKS = Cluster(links=parse_links("100ns/40GB"), memory_bytes=1e12, points=2e13)
FAST_LINKS = Cluster(links=parse_links("10ns/4000GB"), memory_bytes=1e11, points=2e13, overlap_share=0.8)


def program(seed: int, size: int = 64) -> hloom.Module:
    """Returns products of few square matrices, each read often."""
    rnd = random.Random(seed)
    lines = [f"p{n} = f32[64,64] parameter({n})" for n in range(2)]
    values = ["p0", "p1"]
    for number in range(rnd.randint(2, 5)):
        x, y = rnd.choice(values), rnd.choice(values)
        kind, name = rnd.choice(["dot", "dot", "add", "transpose"]), f"v{number}"
        line = {
            "dot": f"dot({x}, {y}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{rnd.choice('01')}}}",
            "add": f"add({x}, {y})", "transpose": f"transpose({x}), dimensions={{1,0}}",
        }[kind]  # fmt: skip
        lines.append(f"{name} = f32[64,64] {line}")
        values.append(name)
    unread = [v for v in values if not any(f"{v}," in line or f"{v})" in line for line in lines)]
    shapes = ", ".join(["f32[64,64]"] * len(unread))
    lines.append(f"ROOT r = ({shapes}) tuple({', '.join(unread)})")
    text = "HloModule m\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"
    return hloom.parse(text.replace("[64,64]", f"[{size},{size}]"))


def costs_of(module: hloom.Module, machine: Cluster, assumed: Assumed, **axes: int) -> ChoiceCosts:
    mesh, context = Mesh.of(**axes), PassContext(machine=machine)
    divisions = Divisions(context.decider(mesh.size), [mesh.digits(AxisRef(name)) for name in axes])
    return ChoiceCosts(Model(Classes(Clusters(prepared(module), context.forms), context.machine), divisions), assumed)


def values_of(costs: ChoiceCosts, most: int = 20_000) -> list[PlanValue]:
    """Returns the values of all choices, or of some if there are too many."""
    counts = [len(c.rows) for c in costs.model.classes]
    if math.prod(counts) <= most:
        return costs.values([dict(enumerate(rows)) for rows in itertools.product(*map(range, counts))])
    rnd = random.Random(0)
    return costs.values([{n: rnd.randrange(c) for n, c in enumerate(counts)} for _ in range(most // 10)])


@pytest.mark.parametrize("machine", [SLOW_LINKS, FAST_LINKS])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [64, 90])
def test_no_choice_takes_less_than_the_bound(seed: int, machine: Cluster, size: int) -> None:
    rnd = random.Random(seed)
    axes = {"a": 2, "b": 2} if seed % 2 else {"a": 4}
    costs = costs_of(program(seed, size), machine, Assumed(rnd.choice([0.0, 0.4]), 8.0), **axes)
    values = values_of(costs)
    limit = float(np.quantile([v.memory for v in values], 0.5))
    least, fitting = (min(v.seconds for v in values if v.memory <= most) for most in (math.inf, limit))
    messages = MessagePassing(costs, least, limit)
    price = 0.0
    for turn in range(24):  # whatever the shares and prices are, and in any order
        if turn % 4 == 0:
            price = rnd.choice([0.0, 0.0, 0.3])
            messages.weigh(rnd.random(), price)
        bound = messages.sweep(rnd.random() < 0.5)
        assert bound <= (fitting if price else least) * (1 + 1e-9)


@pytest.mark.parametrize("seed", [4, 8, 13])
def test_the_integer_program_finds_the_best_choice_that_fits(seed: int) -> None:
    """Its relaxation divides a class in two ways at once where the memory is tight."""
    pytest.importorskip("highspy")
    costs = costs_of(program(seed), SLOW_LINKS, Assumed(0.4, 4.0), a=4)
    values = values_of(costs)
    limit = float(np.quantile([v.memory for v in values], 0.1))
    choice = solve(costs, limit=limit, relaxes=True).choice
    assert choice is not None
    found = costs.value(choice)
    assert found.memory <= limit * (1 + 1e-9)
    assert found.objective <= min(v.objective for v in values if v.memory <= limit) * (1 + 2e-3)


def test_the_bound_is_close() -> None:
    pytest.importorskip("highspy")
    gaps: list[float] = []
    for seed in range(1, 5):
        costs = costs_of(program(seed), SLOW_LINKS, Assumed(0.0, 8.0), a=4)
        found, values = search(costs, seconds=2.0), values_of(costs)
        least = min(v.seconds for v in values)
        assert 0 < found.bound <= least * (1 + 1e-9)
        assert min(costs.value(p.choice).seconds for p in found.proposals) <= least * (1 + 1e-2)
        gaps.append(least / found.bound - 1)
    assert max(gaps) < 0.01


def test_all_axes_take_part_in_combinations_in_the_same_ways() -> None:
    model = costs_of(program(3), SLOW_LINKS, Assumed(), a=2, b=2).model
    rnd = random.Random(0)
    known = [tuple(rnd.choice(c.divisions)[0] for c in model.classes) for _ in range(300)]
    numbers = range(len(model.classes))
    found = {tuple(model.classes[n].division(int(line[n])) for n in numbers) for line in combined(model, known)}
    ways = [{tuple(division[axis] for division in divisions) for divisions in found} for axis in range(2)]
    assert ways[0] == ways[1]
    assert len(combined(model, known)) <= 1 << 14
