"""List schedules: what no one waits for fills the time in which others wait for a collective."""

from __future__ import annotations

import math
import random

import hloom
import numpy as np
import pytest
from hloom.cost.machine import Machine
from hloom.cost.memory import peak_memory
from hloom.cost.presets import parse_machine
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline, timeline_seconds
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pass
from hloom.passes.schedule.bound import program_bound
from hloom.passes.schedule.extract import Extract, extract
from hloom.passes.schedule.limits import Limits
from hloom.passes.schedule.listing import RULES, ListRule, ListScheduler
from hloom.passes.schedule.orders import dependences, depth_first, soon
from hloom.passes.schedule.planning import Planning
from hloom.passes.schedule.roles import roles_of
from hloom.passes.schedule.schedule import ScheduleCollectives
from hloom.passes.schedule.search.best import best_schedule
from hloom.passes.schedule.search.problem import Outcome
from hloom.passes.schedule.write import Written
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.proof.prove import prove
from hloom.runtime.simulator import simulate
from hypothesis import given, settings
from programs.random.generate import inputs_of, programs
from support.calls import calls
from support.partition_check import partitioned

MACHINE = parse_machine("work=f32:1T;memory=1TB", "200ns/50GB")

LAYERS = 3


def tensor_parallel(layers: int = LAYERS, rows: int = 128, width: int = 128) -> str:
    """Returns a training step of products whose activations are summed and scattered, and gathered again."""
    mesh, lines = "mesh['m'=4]", list[str]()
    for n in range(layers):
        first, second = f"{{{mesh}, [{{}}, {{'m'}}]}}", f"{{{mesh}, [{{'m'}}, {{}}]}}"
        lines += [f"  v{n} = f32[{width},{2 * width}] parameter({2 * n + 1}), sharding={first}",
                  f"  w{n} = f32[{2 * width},{width}] parameter({2 * n + 2}), sharding={second}"]  # fmt: skip
    x, rowwise = "x", f"sharding={{{mesh}, [{{'m'}}, {{}}]}}"
    forward, backward, results = list[str](), list[str](), list[str]()
    dot = "lhs_contracting_dims={%d}, rhs_contracting_dims={%d}"
    for n in range(layers):
        forward += [f"  h{n} = f32[{rows},{2 * width}] dot({x}, v{n}), {dot % (1, 0)}",
                    f"  x{n} = f32[{rows},{width}] dot(h{n}, w{n}), {dot % (1, 0)}, {rowwise}"]  # fmt: skip
        x = f"x{n}"
    g = x
    for n in reversed(range(layers)):
        before = f"x{n - 1}" if n else "x"
        backward += [
            f"  dh{n} = f32[{rows},{2 * width}] dot({g}, w{n}), {dot % (1, 1)}",
            f"  dw{n} = f32[{2 * width},{width}] dot(h{n}, {g}), {dot % (0, 0)}",
            f"  dv{n} = f32[{width},{2 * width}] dot({before}, dh{n}), {dot % (0, 0)}",
            f"  g{n} = f32[{rows},{width}] dot(dh{n}, v{n}), {dot % (1, 1)}, {rowwise}",
        ]
        g = f"g{n}"
        results += [f"dw{n}", f"dv{n}"]
    root = f"  ROOT r = tuple({', '.join([*results, g])})"
    start = f"  x = f32[{rows},{width}] parameter(0), {rowwise}"
    return "\n".join(["HloModule step, num_partitions=4", "ENTRY e {", start, *lines, *forward, *backward, root, "}"])


def in_list_order(module: Module, rule: ListRule = RULES[2], machine: Machine = MACHINE) -> Module:
    new = clone_module(module)
    clock = Clock.of(new, machine)
    for computation in new:
        gathers = roles_of(computation, clock).gathers
        computation.reorder(ListScheduler(computation, clock, gathers).order(rule))
    return new


def seconds(module: Module, machine: Machine = MACHINE) -> float:
    return timeline_seconds(module, Clock.of(module, machine))


@pytest.fixture(scope="module")
def local() -> Module:
    return hloom.partition(hloom.parse(tensor_parallel())).module


def test_gradients_of_weights_hide_collectives_of_activations(local: Module) -> None:
    before, after = timeline(local, MACHINE), timeline(in_list_order(local), MACHINE)
    assert after.exposed < 0.7 * before.exposed
    assert after.compute == pytest.approx(before.compute)


def test_no_random_order_is_faster(local: Module) -> None:
    """Nor is any below the bound."""
    module = schedule(clone_module(local), PassContext(machine=MACHINE))
    ours, bound = seconds(module), program_bound(module, Clock.of(module, MACHINE)).seconds
    assert ours >= bound * (1 - 1e-9)
    order = list(module.entry)
    needs, number = dependences(order), {i: n for n, i in enumerate(order)}
    rng = random.Random(0)
    for trial in range(100):
        width = (3, 10, len(order))[trial % 3]
        near = sorted(order, key=lambda i: number[i] + rng.uniform(-width, width))
        found = dict.fromkeys(i for i in order if not i.operands)
        while len(found) < len(order):
            found[next(i for i in near if i not in found and all(o in found for o in needs[i]))] = None
        module.entry.reorder(list(found))
        assert seconds(module) >= ours * (1 - 1e-9)


def test_gathers_ahead_take_no_more_than_they_may() -> None:
    """The weights of a layer are gathered while the one before computes; all at once need more memory."""
    mesh = "mesh['d'=4]"
    lines = [f"  x = f32[1024,128] parameter(0), sharding={{{mesh}, [{{'d'}}, {{}}]}}"]
    lines += [f"  w{n} = f32[128,128] parameter({n + 1}), sharding={{{mesh}, [{{'d'}}, {{}}]}}" for n in range(8)]
    value = "x"
    for n in range(8):
        root = "ROOT " * (n == 7)
        lines.append(f"  {root}y{n} = f32[1024,128] dot({value}, w{n}), lhs_contracting_dims={{1}}, "
                     f"rhs_contracting_dims={{0}}, sharding={{{mesh}, [{{'d'}}, {{}}]}}")  # fmt: skip
        value = f"y{n}"
    text = "\n".join(["HloModule fsdp, num_partitions=4", "ENTRY e {", *lines, "}"])
    local = hloom.partition(hloom.parse(text)).module
    assert sum(i.opcode == "all-gather" for i in local.entry) == 8
    frugal, eager = in_list_order(local, RULES[0]), in_list_order(local)
    assert peak_memory(frugal) <= peak_memory(eager)
    assert peak_memory(frugal) < peak_memory(local) + 2 * 128 * 128 * 4
    assert seconds(eager) <= seconds(frugal) <= seconds(local)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(programs())
def test_random_programs_keep_their_bits(module: Module) -> None:
    local = partitioned(module)
    inputs = inputs_of(module)
    for rule in RULES:
        new = hloom.parse(in_list_order(local, rule).to_text())
        for ours, expected in zip(simulate(new, inputs), simulate(local, inputs), strict=True):
            assert ours.tobytes() == expected.tobytes()


def test_plans_that_list_schedules_beat_are_not_written(local: Module) -> None:
    module = clone_module(local)
    with calls(Written.__init__, keep=False) as made:
        ScheduleCollectives(limits=Limits(large=len(module.entry))).run(module, PassContext(machine=MACHINE))
    assert not made
    least = min(seconds(in_list_order(local, rule)) for rule in RULES)
    assert seconds(module) == pytest.approx(least)

    def planner(problem: Extract) -> tuple[Extract, Outcome]:
        return problem, best_schedule(problem.problem).outcome

    prepared = Planning(planner, MACHINE).prepare(local)
    expected, planned = prepared.expected(math.inf), prepared.plan(math.inf)
    assert expected is not None
    assert planned is not None
    assert least < 0.99 * min(expected, planned.seconds)


def test_no_problem_is_extracted_if_list_schedules_beat_all_plans() -> None:
    """Of many layers, plans would move the collectives at the ends only; saved latencies would not be worth one."""
    local = hloom.partition(hloom.parse(tensor_parallel(16))).module
    module, machine = clone_module(local), parse_machine("work=f32:1T;memory=1TB", "1ns/100GB")
    before = seconds(module, machine)
    least = min(seconds(in_list_order(local, rule, machine), machine) for rule in RULES)
    with calls(extract, keep=False) as made:
        ScheduleCollectives(limits=Limits(large=len(module.entry))).run(module, PassContext(machine=machine))
    assert made == []
    assert seconds(module, machine) == pytest.approx(least)
    assert least < 0.95 * before


def test_a_step_keeps_its_bits_and_is_proved(local: Module) -> None:
    """Of few small integers, whose sums are exact: products of fewer rows need not round like those of more."""
    whole = hloom.parse(tensor_parallel())
    module = schedule(clone_module(local), PassContext(machine=MACHINE, verify="each"))
    chosen = np.random.default_rng(1).choice
    inputs = [chosen([-1, 0, 1], x.shape, p=[0.01, 0.98, 0.01]).astype(np.float32) for x in inputs_for_module(whole)]
    found = simulate(hloom.parse(module.to_text()), inputs)
    assert all(a.any() for a in found)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, simulate(local, inputs), strict=True))
    assert prove(whole, module).is_equal


def two_parts(layers: int = 3, products: int = 6) -> Module:
    """Returns equal steps of two parts: per layer some products, an exchange, a small product, and an exchange."""
    lines = ["  w = f32[256,256] parameter(0)", "  v = f32[256,32] parameter(1)"]
    last = [f"x{part}" for part in range(2)]
    lines += [f"  {x} = f32[256,256] parameter({number})" for number, x in enumerate(last, 2)]

    def add(part: int, shape: str, op: str) -> None:
        last[part] = f"v{len(lines)}"
        lines.append(f"  {last[part]} = {shape} {op}")

    def product(part: int, weights: str, shape: str, contracted: int) -> None:
        add(part, shape, f"dot({last[part]}, {weights}), lhs_contracting_dims={{1}}, "
                         f"rhs_contracting_dims={{{contracted}}}")  # fmt: skip

    def exchange(part: int, shape: str) -> None:
        add(part, shape, f"all-to-all({last[part]}), channel_id={len(lines)}, replica_groups={{{{0,1,2,3}}}}, "
                         f'dimensions={{0}}, frontend_attributes={{hloom.part="{part}"}}')  # fmt: skip

    for _ in range(layers):
        for _ in range(products):
            for part in range(2):
                product(part, "w", "f32[256,256]", 0)
        for part in range(2):
            exchange(part, "f32[256,256]")
        for part in range(2):
            product(part, "v", "f32[256,32]", 0)
            product(part, "v", "f32[256,256]", 1)
            exchange(part, "f32[256,256]")
    lines.append(f"  ROOT r = (f32[256,256], f32[256,256]) tuple({last[0]}, {last[1]})")
    header = 'HloModule m, num_partitions=4, frontend_attributes={hloom.stage="local"}'
    return hloom.parse("\n".join([header, "ENTRY e {", *lines, "}"]))


def test_one_part_first() -> None:
    """Equal parts that take turns come to their exchanges together; where one is first, the other is computed beneath.
    Exchanges of different parts are not combined.
    """
    machine = hloom.parse_machine("work=f32:1T;memory=1PB", "1us/4GB")
    module = two_parts()
    scheduler = ListScheduler(module.entry, clock := Clock.of(module, machine), [])
    times: dict[bool, list[float]] = {True: [], False: []}
    for rule in RULES:
        module.entry.reorder(scheduler.order(rule))
        times[rule.by_part].append(timeline_seconds(module, clock))
    assert min(times[True]) < 0.92 * min(times[False])
    run_pass(ScheduleCollectives(), new := two_parts(), PassContext(machine=machine))
    assert timeline_seconds(new, Clock.of(new, machine)) == pytest.approx(min(times[True]))
    assert sum(i.op.is_collective for i in new.entry) == 12


EFFECTS = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  slow = f32[4] tanh(x)
  first = f32[4] rng(zero, one), distribution=rng_uniform
  second = f32[4] rng(zero, one), distribution=rng_uniform
  before = f32[4] exponential(slow)
  after = f32[4] negate(x), control-predecessors={before}
  ROOT r = (f32[4], f32[4], f32[4], f32[4]) tuple(after, second, first, before)
}"""


def test_effects_and_what_must_come_before_keep_their_order() -> None:
    module = hloom.parse(EFFECTS)
    for order in (depth_first(module.entry), soon(module.entry, Clock.of(module, MACHINE))):
        names = [i.name for i in order]
        assert names.index("first") < names.index("second")
        assert names.index("before") < names.index("after")
