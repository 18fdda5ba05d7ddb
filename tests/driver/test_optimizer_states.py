"""Schedules divide optimizer states where that is faster, or all that fits, and keep the numbers."""

from __future__ import annotations

import hloom
import pytest
from hloom.driver.compile import compile
from hloom.ir.graph.module import Module
from hloom.runtime.inputs.inputs import inputs_for_module
from support.compare import compare
from support.training_steps import clipped_adam

SLOW_MEMORY = hloom.parse_machine("work=f32:1T;memory=1GB", "1us/10GB")
FAST_MEMORY = hloom.parse_machine("work=f32:1T;memory=1TB", "1us/10GB")


def step(unit: str = "replicated") -> Module:
    return hloom.parse(clipped_adam(4, 64, 256, 64, 16, unit))


def held(program: hloom.Program) -> int:
    return sum(p.shape.byte_size for p in program.local.entry.parameters)


def said(program: hloom.Program) -> str:
    return " ".join(d.message for d in program.diagnostics if "sharded-optimizer" in d.message)


def test_faster_updates_are_taken() -> None:
    """The update of whole states takes most of this step."""
    module = step()
    whole, divided = compile(module), compile(module, machine=SLOW_MEMORY, schedule=True)
    assert held(whole) - held(divided) == 4 * 64 * 256 * 4 * 3 // 4  # of four states a fourth is left
    assert "197 KB of parameters less on a device" in said(divided)
    inputs = inputs_for_module(module)
    assert compare(divided.simulate(inputs), whole.simulate(inputs)).equal


def test_states_stay_where_their_update_takes_no_time() -> None:
    program = compile(step(), machine=FAST_MEMORY, schedule=True)
    assert held(program) == held(compile(step()))
    assert "states stay as they are" in said(program)
    assert said(compile(step(), machine=hloom.parse_machine("work=f32:1M;memory=1TB"), schedule=True)) == ""  # untried


def test_divided_states_fit_into_less_memory() -> None:
    program = compile(step(), machine=FAST_MEMORY, schedule=True, memory=500_000)
    assert "no fitting schedule with whole ones" in said(program)
    with pytest.raises(hloom.CompileError, match="more than the limit"):
        compile(step(), machine=FAST_MEMORY, schedule=True, memory=200_000)


def test_divided_states_make_room_for_faster_orders() -> None:
    """Their update takes next to no time, but with whole ones the faster orders need more memory."""
    program = compile(hloom.load("examples/mlp_train.hlo"), machine="h100", schedule=True, memory=80_000)
    assert "of parameters less on a device" in said(program)


def test_divided_states_are_not_divided_again() -> None:
    by_data = "mesh['data'=4], [{'data'}, {}]"
    assert said(compile(step(by_data), machine=SLOW_MEMORY, schedule=True)) == ""
