"""Plans of small random graphs against all choices of their model, judged by the forecast of the scheduled program."""

from __future__ import annotations

import itertools
import math
import random

import hloom
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.divisions import Divisions
from hloom.passes.planning.choice_costs import ChoiceCosts
from hloom.passes.planning.classes import Classes
from hloom.passes.planning.clusters import Clusters
from hloom.passes.planning.judge import judge
from hloom.passes.planning.model import Model
from hloom.passes.planning.prepared import prepared
from hloom.passes.planning.program import solve
from hloom.passes.planning.written import annotated

pytest.importorskip("highspy")

CHOICES = 300  # that are judged at most, for each graph
MESH = Mesh.of(data=4)
MACHINE = Cluster(links=parse_links("100ns/40GB"), memory_bytes=1e12, points=2e13)


def graph(seed: int, most: int = 3) -> hloom.Module:
    """Returns a program of products, sums, transposes and maps of square and other matrices."""
    rnd = random.Random(seed)
    sizes = [rnd.choice([64, 128, 256]) for _ in range(3)]
    lines, values = list[str](), list[tuple[str, int, int]]()
    for number in range(rnd.randint(1, 2)):
        a, b = rnd.choice(sizes), rnd.choice(sizes)
        lines.append(f"p{number} = f32[{a},{b}] parameter({number})")
        values.append((f"p{number}", a, b))
    for number in range(rnd.randint(1, most)):
        name, (x, a, b) = f"v{number}", rnd.choice(values)
        kind = rnd.choice(["dot", "dot", "map", "transpose"])
        others = [v for v in values if b in v[1:]]
        if kind == "dot":
            y, c, d = rnd.choice(others)
            side = 0 if c == b else 1
            lines.append(f"{name} = f32[{a},{d if c == b else c}] dot({x}, {y}), lhs_contracting_dims={{1}}, "
                         f"rhs_contracting_dims={{{side}}}")  # fmt: skip
            values.append((name, a, d if c == b else c))
        elif kind == "map":
            same = [v for v, *dims in values if dims == [a, b] and v != x]
            lines.append(f"{name} = f32[{a},{b}] " + (f"add({x}, {rnd.choice(same)})" if same else f"tanh({x})"))
            values.append((name, a, b))
        else:
            lines.append(f"{name} = f32[{b},{a}] transpose({x}), dimensions={{1,0}}")
            values.append((name, b, a))
    lines[-1] = "ROOT " + lines[-1]
    return hloom.parse("HloModule m\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n")


def model_of(module: hloom.Module) -> Model:
    context = PassContext(machine=MACHINE)
    divisions = Divisions(context.decider(4), [MESH.digits(AxisRef("data"))])
    return Model(Classes(Clusters(prepared(module), context.forms), context.machine), divisions)


def compare(module: hloom.Module) -> tuple[float, float]:
    """Returns the forecast of the plan, and the best of all choices."""
    context, model = PassContext(machine=MACHINE), model_of(module)
    costs = ChoiceCosts(model)
    rows = [range(len(c.rows)) for c in model.classes]
    choices = [dict(enumerate(choice)) for choice in itertools.product(*rows)]
    solution = solve(costs, seconds=20.0)
    assert solution.choice is not None
    values = costs.values(choices)
    least = min(value.objective for value in values)
    assert costs.value(solution.choice).objective == pytest.approx(least, rel=2e-3)
    assert 0 < solve(costs, seconds=20.0, share=0.0).bound <= min(value.seconds for value in values) * (1 + 1e-9)
    best = min(judge(annotated(model, choice, MESH), context, 4).seconds for choice in choices)
    return hloom.plan(module, MACHINE, mesh={"data": 4}, seconds=20.0).seconds, best


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1, 2])
def test_a_plan_is_the_best_choice(seed: int) -> None:
    found, best = compare(graph(seed, most=2))
    assert found <= best * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 203))
def test_more_plans_are_the_best_choice(seed: int) -> None:
    """Of up to ten ops, fewer where all choices would be too many to judge."""
    graphs = (graph(seed, most) for most in range(10, 0, -1))
    found, best = compare(next(g for g in graphs if math.prod(len(c.rows) for c in model_of(g).classes) <= CHOICES))
    assert found <= best * (1 + 1e-9)
