"""Loops of native steps: the numbers of the reference, whatever the body does to the state."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.driver.backend import Backend
from hloom.ir.time_limit import TimeLimit, time_limit
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.native.loop import LoopStep
from hloom.runtime.simulator import run_devices
from support.compare import compare
from support.loop_kernels import needs_llvm
from support.loop_programs import BODIES, ENTRY, HEAD, STATE, UPDATE

Array = np.ndarray[Any, Any]
pytestmark = needs_llvm


def module_of(body: str, trips: int = 7, condition: str = "counted", first: str = "x") -> hloom.Module:
    entry = ENTRY.replace("CONDITION", condition).replace("FIRST", first)
    return hloom.parse(HEAD.replace("TRIPS", str(trips)) + BODIES.get(body, body) + entry)


def inputs_of(seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(dims, np.float32) for dims in ((4, 6), (4, 6), (5, 4, 6))]


def native(module: hloom.Module, by_machine_code: bool = True) -> UnpartitionedProgram:
    """Returns the program, whose loop machine code runs, or Python."""
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels())
    found = any(isinstance(step.acting, LoopStep) for step in program.executable.arranged.steps)
    assert found == by_machine_code
    return program


@pytest.mark.share(2)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_loops_give_the_numbers_of_the_reference(name: str, trips: int) -> None:
    module = module_of(name, trips)
    program = native(module)
    found = [program.run(inputs_of(seed)) for seed in range(3)]
    for seed, outputs in enumerate(found):  # later runs leave earlier results alone
        same = compare(outputs, hloom.evaluate(module, inputs_of(seed)))
        assert same.equal, f"{same}"


def test_inputs_and_arrays_that_are_there_twice_are_not_changed() -> None:
    module = module_of("a product", first="y")
    program, inputs = native(module), inputs_of()
    kept = [x.copy() for x in inputs]
    same = compare(program.run(inputs), hloom.evaluate(module, inputs))
    assert same.equal, f"{same}"
    assert all(np.array_equal(x, k) for x, k in zip(inputs, kept, strict=True))


def test_the_tables_of_a_small_loop_stay_for_its_next_run() -> None:
    inner = HEAD.replace("TRIPS", "3") + BODIES["a product"] + "\n}\n"
    outer = HEAD.split("body {", 1)[1]
    start = f" zeroed = {STATE} tuple(zero, y, x, o)\n w = {STATE} while(zeroed), condition=counted, body=body\n"
    ends = "\n".join(f" e{i} = {t} get-tuple-element(w), index={i}" for i, t in ((1, "f32[4,6]"), (3, "f32[5,4,6]")))
    text = f"{inner}outer {{{outer}{start}{ends}\n h = f32[4,6] tanh(e1)\n ROOT r = {STATE} tuple(m, h, x, e3)"
    entry = ENTRY.replace("CONDITION", "counted").replace("FIRST", "x").replace("body=body", "body=outer")
    module = hloom.parse(text + entry)
    program = UnpartitionedProgram(Backend("native").prepared(module), NativeKernels())
    found = [program.run(inputs_of(seed)) for seed in range(3)]
    for seed, outputs in enumerate(found):
        same = compare(outputs, hloom.evaluate(module, inputs_of(seed)))
        assert same.equal, f"{same}"
    (kept,) = program.executable.spare
    assert sum(isinstance(step, LoopStep) for step in kept) == 1


DOUBLED = f"d = f32[4,6] add(x, x)\n{UPDATE} ROOT r = {STATE} tuple(m, d, y, u)"


def test_devices_may_leave_a_loop_at_different_times() -> None:
    text = HEAD.replace("TRIPS", "7") + DOUBLED + ENTRY.replace("CONDITION", "small").replace("FIRST", "x")
    module = hloom.parse(text.replace("HloModule m", "HloModule m, num_partitions=3", 1))
    local = Backend("native").prepared(module)
    inputs = [[np.full((4, 6), v, np.float32), *inputs_of()[1:]] for v in (0.01, 3.0, 9.0)]
    found = run_devices(local, inputs, NativeKernels())
    trips = [int(outputs[0]) for outputs in found]
    assert trips == [9, 1, 0]
    one = native(module_of(DOUBLED, condition="small"))
    for values, outputs in zip(inputs, found, strict=True):
        assert compare(outputs, one.run(values)).equal


def test_a_loop_without_end_stops_at_the_limit_of_time() -> None:
    program = native(module_of("swapped", 2**31 - 1))
    with pytest.raises(TimeLimit), time_limit(0.2):
        program.run(inputs_of())
