"""Scheduled programs: the bits of the unscheduled ones, fewer collectives, less time, memory within its limit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.cost.machine import DEFAULT
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS, parse_machine
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, Stage, clone_module
from hloom.ir.ops.collective_groups import CollectiveAttributes
from hloom.ir.tools.control_flow import computations_run
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.schedule.combining import CombinedForm
from hloom.passes.schedule.extract import Extract
from hloom.passes.schedule.planning import Planning, forecast
from hloom.passes.schedule.search.arrange import arrange
from hloom.passes.schedule.search.heuristics import capped
from hloom.passes.schedule.search.problem import Outcome
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.proof.prove import prove
from hloom.runtime.simulator import simulate
from hypothesis import given, settings
from programs.random.generate import inputs_of, programs
from support.compare import compare
from support.fsdp_steps import fsdp_step
from support.layered_programs import Model
from support.partition_check import partitioned
from support.rewrites import rewritten

EXAMPLES = Path(__file__).parents[3] / "examples"
SLOW = parse_machine("work=f32:1T;memory=100GB", "10us/10GB")  # hides all of a block behind another one
MACHINES = {"default": DEFAULT, "h100": PRESETS["h100"], "cpu-cluster": PRESETS["cpu-cluster"],
            "slow": SLOW}


def local_of(text: str) -> Module:
    return clone_module(_partitioned(text))


@cache
def _partitioned(text: str) -> Module:
    return hloom.partition(hloom.parse(text)).module


def scheduled(local: Module, machine: str = "cpu-cluster", memory: int = 0, form: str = "variadic") -> Module:
    module = clone_module(local)
    schedule(module, PassContext(machine=MACHINES[machine], verify="each"), memory, form)
    assert module.stage is Stage.SCHEDULED
    return module


@cache
def _scan(machine: str) -> Module:
    """A scheduled training step with a scan, which several tests look at."""
    return scheduled(local_of((EXAMPLES / "transformer_scan_train.hlo").read_text()), machine)


def counted(module: Module) -> Counter[str]:
    return Counter(i.opcode for c in computations_run(module) for i in c if i.op.is_collective)


def seconds(module: Module, machine: str = "cpu-cluster") -> float:
    return timeline(module, MACHINES[machine]).seconds


def same_bits(found: list[Any], expected: list[Any]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


FORMS = ("variadic", "flat", "xla")
_OFF = 0.05  # by which heuristics may miss what they find under a tighter limit: most of these steps are latencies


@pytest.mark.parametrize(("name", "machine", "forms"), [
    ("mlp_train", "default", FORMS), ("mlp_train", "h100", FORMS),
    *(pytest.param(name, machine, FORMS, marks=pytest.mark.slow) for machine in MACHINES
      for name in ("transformer_scan_train", "transformer_train")),
])  # fmt: skip
def test_examples_keep_their_bits(name: str, machine: str, forms: tuple[str, ...]) -> None:
    whole = hloom.load(EXAMPLES / f"{name}.hlo")
    inputs, local = inputs_for_module(whole), hloom.partition(whole).module
    expected = simulate(local, inputs)
    for form in forms:
        context = PassContext(machine=MACHINES[machine], verify="each")
        module = clone_module(local)
        schedule(module, context, form=form)
        found, said = simulate(hloom.parse(module.to_text()), inputs), [d.message for d in context.diagnostics.found]
        if any(text.startswith("in-pieces") for text in said):  # products of fewer rows
            assert compare(found, expected).equal
        else:
            assert same_bits(found, expected)
        if not any(text.startswith(("in-pieces", "while")) for text in said):  # trips of loops may run apart
            assert sum(counted(module).values()) <= sum(counted(local).values())
        assert seconds(module, machine) <= seconds(local, machine)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(programs())
def test_random_programs_keep_their_bits(module: Module) -> None:
    inputs, local = inputs_of(module), partitioned(module)
    with np.errstate(all="ignore"):
        expected = simulate(local, inputs)
        for form in ("variadic", "flat"):
            found = scheduled(local, form=form)
            assert same_bits(simulate(found, inputs), expected)
            assert seconds(found) <= seconds(local) * (1 + 1e-9)


def check_kept_clock(local: Module) -> None:
    for form in CombinedForm:
        again, machine = clone_module(local), MACHINES["h100"]
        forecast(again, machine)

        def planner(problem: Extract) -> tuple[Extract, Outcome]:
            return problem, arrange(problem.problem, capped(problem.problem, 1e9), ahead=1)

        Planning(planner, machine, form).plan(again, float("inf"))
        kept, new = Clock.of(again, machine), Clock(machine, again.devices)
        for i in (i for c in computations_run(again) for i in c if not i.op.is_control):
            assert (kept.parts(i), kept.touched(i)) == (new.parts(i), new.touched(i)), i.name
            assert list(kept.together(i)) == list(new.together(i)), i.name


@settings(max_examples=6, deadline=None, derandomize=True)
@given(programs())
def test_a_kept_clock_times_as_a_new_one(module: Module) -> None:
    check_kept_clock(partitioned(module))


def test_a_renewed_clock_times_gathers_and_reductions_as_a_new_one() -> None:
    check_kept_clock(local_of(fsdp_step(4, layers=3, width=64, batch=64)))


def test_fsdp_sends_one_message_per_block() -> None:
    """Four blocks of three parameters: 12 gathers and 12 reductions become one of each per block, or fewer where a
    machine's latency is worth more than what is hidden.
    """
    local = local_of(fsdp_step(4, layers=4, width=64, batch=64))
    assert counted(local) == {"all-gather": 12, "reduce-scatter": 12}
    by_layer, _ = rewritten(clone_module(local), "equal-computations,bucket{rule=layer}", MACHINES["cpu-cluster"])
    assert counted(by_layer) == {"all-gather": 4, "reduce-scatter": 4}
    for machine in ("slow", "cpu-cluster"):
        assert all(count <= 4 for count in counted(scheduled(local, machine)).values())
    assert all(count <= 8 for count in counted(scheduled(local, "h100")).values())  # where launches hide more of them


def test_collectives_start_early_and_are_awaited_late() -> None:
    """The gathers of a block start before the computation of the block before; gradients leave as they are made."""
    local = local_of(fsdp_step(4, layers=4, width=512, batch=2048))
    module = clone_module(local)
    run_pipeline(parse_pipeline("schedule"), module, PassContext(machine=SLOW))
    order = list(module.entry)
    gathers = [n for n, i in enumerate(order) if i.opcode == "all-gather"]
    reductions = [n for n, i in enumerate(order) if i.opcode == "reduce-scatter"]
    first, last = order.index(_named(module, "h0")), order.index(_named(module, "gin0"))
    assert sum(n < first for n in gathers) >= 2
    assert any(n < last for n in reductions)
    done, before = timeline(module, SLOW), timeline(local, SLOW)
    assert done.exposed < 0.35 * before.exposed
    assert done.compute == pytest.approx(before.compute, rel=1e-6)


def _named(module: Module, name: str) -> Any:
    found = module.entry.find(name)
    assert found is not None
    return found


@pytest.mark.parametrize("make", [
    lambda: scheduled(local_of(fsdp_step(4, layers=2, width=64, batch=64))),
    pytest.param(lambda: _scan("cpu-cluster"), marks=pytest.mark.slow),
], ids=["fsdp", "scan"])  # fmt: skip
def test_scheduling_again_changes_nothing(make: Callable[[], Module]) -> None:
    module = make()
    again = scheduled(hloom.parse(module.to_text()))
    assert again.to_text() == hloom.parse(module.to_text()).to_text()
    assert scheduled(module).to_text() == module.to_text()


def test_the_program_does_not_grow_with_the_devices() -> None:
    texts = [scheduled(local_of(fsdp_step(n, layers=2, width=n * 16, batch=n * 16))) for n in (64, 512)]
    small, large = ([len(m.entry), len(m.to_text())] for m in texts)
    assert large[0] <= small[0] * 1.1
    assert large[1] <= small[1] * 1.2


def test_memory_is_a_limit() -> None:
    """With ever less memory the program takes longer, until an error says by how much it does not fit."""
    local = local_of(fsdp_step(4, layers=2, width=64, batch=64))
    free = scheduled(local)
    peak = live_memory(free).peak
    times: list[float] = []
    for limit in (peak, int(0.95 * peak)):
        try:
            module = scheduled(local, memory=limit)
        except hloom.CompileError:
            break
        assert live_memory(module).peak <= limit
        times.append(seconds(module))
    assert len(times) >= 2
    assert all(more <= less * (1 + 1e-9) for more, less in pairwise(times))
    with pytest.raises(hloom.CompileError, match=r"step needs \S+ KB on a device at \S+, \S+ KB more than the limit of "
                                                 r"20 KB") as failed:  # fmt: skip
        scheduled(local, memory=20_000)
    assert "the largest buffers there: " in str(failed.value)


@pytest.mark.parametrize("machine", ["cpu-cluster", pytest.param("h100", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("layers", "width", "batch", "shares"), [
    pytest.param(3, 64, 512, (1.5, 0.9, 0.7), marks=pytest.mark.slow),
    (2, 64, 512, (1.5, 1.0, 0.9)),
    *(pytest.param(*sizes, (1.5, 1.1, 1.0, 0.9, 0.8, 0.7, 0.6), marks=pytest.mark.slow)
      for sizes in ((3, 64, 512), (3, 16, 64), (4, 64, 64), (5, 32, 128))),
])  # fmt: skip
def test_more_memory_is_never_slower(
    machine: str, layers: int, width: int, batch: int, shares: tuple[float, ...]
) -> None:
    local = local_of(fsdp_step(4, layers, width, batch))
    old, times = live_memory(local).peak, list[float]()
    for share in shares:
        try:
            module = scheduled(local, machine, memory=int(share * old))
        except hloom.CompileError:
            break
        assert live_memory(module).peak <= share * old
        times.append(seconds(module, machine))
    assert len(times) >= 3
    allowed = _OFF if machine == "h100" else 1e-9
    assert all(more <= less * (1 + allowed) for more, less in pairwise(times))


@pytest.mark.slow
def test_values_are_gathered_again_where_memory_is_short() -> None:
    """All weights live between forward and backward pass; with half of that memory, some are gathered twice."""
    whole = hloom.parse(fsdp_step(8, layers=8, width=64, batch=64))
    inputs, local = inputs_for_module(whole), hloom.partition(whole).module
    limit = int(0.55 * live_memory(local).peak)
    module = clone_module(local)
    context = PassContext(machine=MACHINES["cpu-cluster"], verify="each")
    schedule(module, context, limit)
    pattern = r"schedule: values gathered again: \d+, .*\d+ collectives became \d+; "
    assert any(re.match(pattern, d.message) for d in context.diagnostics.found)
    assert live_memory(module).peak <= limit
    assert seconds(module) < seconds(local)
    assert same_bits(simulate(module, inputs), simulate(local, inputs))
    channels = [i.attributes_as(CollectiveAttributes).channel_id for i in module.entry if i.op.is_collective]
    assert len(set(channels)) == len(channels)


def test_the_forecast_is_recorded() -> None:
    module = local_of(fsdp_step(4, layers=3, width=64, batch=64))
    context = PassContext(machine=MACHINES["cpu-cluster"])
    schedule(module, context)
    attributes = hloom.parse(module.to_text()).frontend_attributes
    found = {name: float(str(attributes[f"hloom.schedule.{name}"]).strip('"')) for name in ("seconds", "bound", "peak")}
    assert found["seconds"] == pytest.approx(seconds(module), rel=1e-5)
    assert found["bound"] <= found["seconds"]
    assert found["peak"] == live_memory(module).peak
    (remark,) = (d.message for d in context.diagnostics.found)
    pattern = r"schedule: 18 collectives became \d+; \S+ us become \S+ us, at least \S+ us, gap \d+%; peak "
    assert re.match(pattern, remark)


def test_loops_are_scheduled_inside() -> None:
    """Gradients that a scan over layers reduces one by one leave together in each trip."""
    local = local_of((EXAMPLES / "transformer_scan_train.hlo").read_text())
    module, _ = rewritten(local, "equal-computations,schedule", MACHINES["h100"])
    bodies = [c for c in computations_run(module) if c is not module.entry and any(i.op.is_collective for i in c)]
    sizes = [len(i.operands) for c in bodies for i in c if i.op.is_collective]
    assert max(sizes) >= 6


def test_random_numbers_stay_as_they_were_drawn() -> None:
    """The second draw must not come before the first, though nothing but the order says so."""
    text = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e {
  w = f32[2,8] parameter(0)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  r0 = f32[8,8] rng(zero, one), distribution=rng_uniform
  a = f32[8,8] dot(r0, r0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r1 = f32[4,8] rng(zero, one), distribution=rng_uniform
  g = f32[4,8] all-gather(w), channel_id=1, dimensions={0}, replica_groups={{0,1}}, use_global_device_ids=true
  p = f32[4,8] add(g, r1)
  ROOT y = f32[4,8] dot(p, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    module, _ = rewritten(text, "memory-order,schedule,overlap")
    names = [i.name for i in module.entry]
    assert names.index("r0") < names.index("r1")


def test_a_scheduled_program_is_proved() -> None:
    whole = hloom.parse(fsdp_step(4, layers=2))
    for form in ("variadic", "flat"):
        assert prove(whole, scheduled(hloom.partition(whole).module, form=form)).is_equal


@cache
def _six_layers() -> tuple[list[Any], Module, Any]:
    """Inputs, the program of a device, and its results, which several tests look at."""
    whole = hloom.parse(fsdp_step(4, layers=6, width=64, batch=64))
    inputs, local = inputs_for_module(whole), hloom.partition(whole).module
    return inputs, local, simulate(local, inputs)


@pytest.mark.parametrize(("passes", "collectives"), [
    ("bucket{rule=size,most-bytes=40KB}", 12), ("bucket{rule=names,names=scale*|in0*|in1*}", 26),
    ("bucket{rule=xla,most-bytes=20KB}", 24), ("bucket{rule=xla,most-bytes=1KB}", 36),
    ("bucket{rule=simplefsdp}", None), ("bucket{rule=auto}", None), ("overlap", 36), ("overlap{ahead=3}", 36),
    ("overlap{ahead=999999999}", 36), ("memory-order", 36), ("bucket{rule=layer,form=flat},overlap", 12),
])  # fmt: skip
def test_passes_by_name(passes: str, collectives: int | None) -> None:
    inputs, local, expected = _six_layers()
    module, _ = rewritten(clone_module(local), "equal-computations," + passes, MACHINES["cpu-cluster"])
    assert same_bits(simulate(module, inputs), expected)
    total = sum(counted(module).values())
    assert total < 36 if collectives is None else total == collectives
    if passes == "memory-order":
        assert live_memory(module).peak <= live_memory(local).peak
    if passes.startswith("overlap"):
        assert seconds(module) < seconds(local)


@pytest.mark.share(3)
@pytest.mark.parametrize(("layers", "machine"), [(2, "default"), (2, "cpu-cluster"), (3, "cpu-cluster")])
def test_a_limit_that_the_plan_without_one_keeps_changes_nothing(layers: int, machine: str) -> None:
    local = local_of(Model(layers, loop=False).text())
    free = scheduled(local, machine)
    within = scheduled(local, machine, memory=live_memory(free).peak)
    assert seconds(within, machine) <= seconds(free, machine) * 1.001
    assert live_memory(within).peak <= live_memory(free).peak


@pytest.mark.parametrize(("passes", "message"), [
    ("bucket{rule=best}", "pass bucket has no rule 'best'"), ("bucket{rule=names}", "pass bucket needs names"),
    ("schedule{form=round}", "there is no form 'round'"), ("schedule{memory=much}", "option 'memory' of pass schedule"),
    (f"schedule{{memory={'9' * 400}}}", "option 'memory' of pass schedule"),
    ("overlap{ahead=0}", "cannot gather 0 ahead"),
    ("schedule{trials=-1}", "option 'trials' of pass schedule cannot be '-1'"),
    ("hoist-gathers{growth=inf}", "option 'growth' of pass hoist-gathers"),
    ("hoist-gathers{growth=-1}", "pass hoist-gathers cannot let memory grow by -1.0"),
    ("sink-all-reduces{least-gain=nan}", "option 'least-gain' of pass sink-all-reduces cannot be 'nan'"),
])  # fmt: skip
def test_wrong_options(passes: str, message: str) -> None:
    local = local_of(fsdp_step(2, layers=1))
    with pytest.raises(hloom.CompileError, match=message):
        run_pipeline(parse_pipeline(passes), local, PassContext())


@pytest.mark.parametrize(
    ("machine", "memory"),
    [("cpu-cluster", 0), *(pytest.param(*case, marks=pytest.mark.slow)
                           for case in (("h100", 0), ("cpu-cluster", 10**12), ("h100", 10**12)))],
)  # fmt: skip
def test_loops_gather_ahead_where_that_is_faster(machine: str, memory: int) -> None:
    """Each way is scheduled; the program takes no longer than without, and says what it took."""
    local = local_of((EXAMPLES / "transformer_scan_train.hlo").read_text())
    passes = "equal-computations,schedule" + f"{{memory={memory}}}" * bool(memory)
    alone, _ = rewritten(clone_module(local), passes, MACHINES[machine])
    module = scheduled(local, machine, memory=memory) if memory else _scan(machine)
    assert seconds(module, machine) <= seconds(alone, machine) / (1 if memory else 0.99)


@pytest.mark.parametrize("layers", [2, 4])
def test_memory_is_taken_for_time_alone(layers: int) -> None:
    """Unasked, an order takes more memory only if it is faster by a hundredth; asked, it may take all there is."""
    local = local_of(fsdp_step(4, layers=layers))
    for machine in ("h100", "cpu-cluster"):
        free, all_of_it = scheduled(local, machine), scheduled(local, machine, memory=10**12)
        assert seconds(all_of_it, machine) <= seconds(free, machine)
        if live_memory(free).peak < live_memory(all_of_it).peak:
            assert seconds(free, machine) * 0.99 < seconds(all_of_it, machine)
        assert live_memory(free).peak <= live_memory(all_of_it).peak

