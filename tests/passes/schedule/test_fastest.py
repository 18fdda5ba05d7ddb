"""The choice among rewrites: it may stop at a moment, and has a schedule of the program as it is then."""

from __future__ import annotations

import hloom
from hloom.cost.presets import parse_machine
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.schedule.fastest import Fastest
from hloom.passes.schedule.recorded import recorded_forecast
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from support.compare import compare
from support.layered_programs import Model


def test_after_the_last_moment_only_the_program_as_it_is_gets_a_schedule() -> None:
    text = Model(kind="both", data=2, model=2, loop=True, layers=2).text()
    machine = parse_machine("h100", "")
    seconds: list[float] = []
    for fastest in (Fastest(), Fastest(until=0.0), Fastest(rewrites=(), pieces=None, rotation=None, levels=None)):
        module, context = partition(hloom.parse(text)), PassContext(machine=machine)
        schedule(module, context, fastest=fastest)
        seconds.append(recorded_forecast(module)[0])
        if not fastest.until:
            inputs = inputs_for_module(hloom.parse(text))
            assert compare(simulate(module, inputs), simulate(partition(hloom.parse(text)), inputs)).equal
    assert seconds[0] < seconds[1] == seconds[2]


def test_parts_of_the_batch_are_tried_in_time_alone() -> None:
    text = Model(kind="tp", data=1, model=4, layers=2).text()
    module, context = partition(hloom.parse(text)), PassContext(machine=parse_machine("tpu-v4", ""))
    schedule(module, context, fastest=Fastest(until=0.0), split=2)
    whole = partition(hloom.parse(text))
    schedule(whole, context, fastest=Fastest(rewrites=(), pieces=None, rotation=None, levels=None))
    assert recorded_forecast(module)[0] <= recorded_forecast(whole)[0]
