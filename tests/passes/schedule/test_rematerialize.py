"""Values computed again: the bits of the program, less memory, and limits that nothing else reaches."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS
from hloom.cost.sizes import Bytes
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.schedule.does_not_fit import DoesNotFit
from hloom.passes.schedule.schedule import Overlap
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from hypothesis import given, settings
from programs.random.generate import inputs_of, programs
from support.fsdp_steps import fsdp_step
from support.partition_check import partitioned

MACHINE = PRESETS["cpu-cluster"]
TWICE = """HloModule m, is_scheduled=true, num_partitions=2
ENTRY e {
  h = f32[1000] parameter(0)
  small = f32[10] parameter(1)
  t = f32[1000] tanh(h)
  one = f32[10] slice(t), slice={[0:10]}
  b = f32[10] add(one, small)
  x = f32[1000] concatenate(MANY), dimensions={0}
  s = f32[1000] sine(x)
  u = f32[1000] add(s, x)
  c = f32[1000] cosine(u)
  v = f32[500,2] reshape(t)
  w = f32[1000] reshape(v)
  ROOT r = f32[1000] multiply(c, w)
}
""".replace("MANY", ", ".join(["b"] * 100))


def again(module: Module, limit: int, options: str = "") -> tuple[Module, PassContext]:
    module, context = clone_module(module), PassContext(machine=MACHINE, verify="each")
    run_pipeline(parse_pipeline(f"rematerialize{{memory={limit}B{options}}}"), module, context)
    return module, context


def same_bits(found: list[Any], expected: list[Any]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


def test_the_value_is_made_again_where_it_is_read() -> None:
    module = hloom.parse(TWICE)
    inputs, peak = [np.linspace(-1, 1, n, dtype=np.float32) for n in (1000, 10)], live_memory(module).peak
    new, _ = again(module, peak - 3000)
    opcodes = [i.opcode for i in new.entry]
    assert opcodes.count("tanh") == 2
    assert opcodes.index("cosine") < len(opcodes) - 1 - opcodes[::-1].index("tanh")
    assert live_memory(new).peak <= peak - 3000
    assert same_bits(simulate(new, inputs), simulate(module, inputs))


def test_effects_and_random_numbers_are_not_repeated() -> None:
    text = TWICE.replace("t = f32[1000] tanh(h)", "lo = f32[] constant(0)\n  hi = f32[] constant(1)\n"
                         "  t = f32[1000] rng(lo, hi), distribution=rng_uniform")  # fmt: skip
    new, context = again(hloom.parse(text), 10_000)
    assert [i.opcode for i in new.entry].count("rng") == 1
    assert "is as little as is reached" in context.diagnostics.found[0].message


@settings(max_examples=12, deadline=None, derandomize=True)
@given(programs())
def test_random_programs_keep_their_bits(module: Module) -> None:
    inputs, local = inputs_of(module), partitioned(module)
    with np.errstate(all="ignore"):
        expected = simulate(local, inputs)
        new, _ = again(local, 1)
        assert live_memory(new).peak <= live_memory(local).peak
        assert same_bits(simulate(new, inputs), expected)


def test_a_limit_is_reached_that_plans_and_gathers_do_not_reach() -> None:
    whole = hloom.parse(fsdp_step(4, layers=6, width=16, batch=256))
    inputs, local = inputs_for_module(whole), hloom.partition(whole).module
    limit = int(0.6 * live_memory(local).peak)
    module, context = clone_module(local), PassContext(machine=MACHINE, verify="each")
    with pytest.raises(hloom.CompileError, match="more than the limit"):
        run_pipeline([Overlap(memory=Bytes(limit))], clone_module(local), context)  # which repeats nothing
    schedule(module, context, limit)
    assert re.match(r"schedule: \d+ values are computed again", context.diagnostics.found[-1].message)
    assert live_memory(module).peak <= limit
    assert same_bits(simulate(module, inputs), simulate(local, inputs))


def test_a_limit_is_met_if_a_smaller_one_is() -> None:
    """What values free that are computed again until the limit is met is not all that can be freed."""
    local = hloom.partition(hloom.parse(fsdp_step(4, layers=2, width=16, batch=64))).module
    with pytest.raises(DoesNotFit) as caught:
        schedule(clone_module(local), PassContext(machine=MACHINE), 1)
    limit = int(1.11 * caught.value.peak)
    schedule(local, PassContext(machine=MACHINE), limit)
    assert live_memory(local).peak <= limit


def test_less_memory_takes_longer() -> None:
    local = hloom.partition(hloom.parse(fsdp_step(4, layers=6, width=16, batch=256))).module
    peak = live_memory(local).peak
    found = [again(local, int(share * peak))[0] for share in (1.0, 0.9, 0.8, 0.7, 0.6)]
    assert all(live_memory(m).peak <= share * peak for m, share in zip(found, (1.0, 0.9, 0.8, 0.7, 0.6), strict=True))
    times = [timeline(m, MACHINE).seconds for m in found]
    assert all(a <= b for a, b in pairwise(times))


def test_it_is_proved() -> None:
    whole = hloom.parse(fsdp_step(4, layers=3, width=16, batch=64))
    local = hloom.partition(whole).module
    new, _ = again(local, int(0.7 * live_memory(local).peak))
    assert len(new.entry) > len(local.entry)
    assert hloom.prove(whole, new).is_equal


def test_behind_barriers_it_survives_the_merging_of_equal_values() -> None:
    """Each barrier waits for something else: no two are equal, either."""
    whole = hloom.parse(fsdp_step(4, layers=4, width=16, batch=256))
    inputs, local = inputs_for_module(whole), hloom.partition(whole).module
    limit = int(0.6 * live_memory(local).peak)
    plain, kept = again(local, limit)[0], again(local, limit, ",barriers=true")[0]
    assert live_memory(plain).peak <= limit
    assert live_memory(kept).peak <= limit
    assert count(kept, "tanh") == count(plain, "tanh") > count(local, "tanh")
    for module in (plain, kept):
        run_pipeline(parse_pipeline("cse,dce"), module, PassContext(verify="each"))
        assert same_bits(simulate(module, inputs), simulate(local, inputs))
    assert count(plain, "tanh") == count(local, "tanh") < count(kept, "tanh")
    assert hloom.prove(whole, kept).is_equal


@pytest.mark.slow
def test_schedules_for_xla_have_barriers() -> None:
    whole = hloom.parse(fsdp_step(4, layers=6, width=16, batch=256))
    inputs, local = inputs_for_module(whole), hloom.partition(whole).module
    limit = int(0.6 * live_memory(local).peak)
    for form in ("variadic", "xla"):
        module = schedule(clone_module(local), PassContext(machine=MACHINE, verify="each"), limit, form)
        assert (count(module, "opt-barrier") > 0) == (form == "xla")
        assert live_memory(module).peak <= limit
        assert same_bits(simulate(module, inputs), simulate(local, inputs))


def count(module: Module, opcode: str) -> int:
    return sum(i.opcode == opcode for i in module.entry)
