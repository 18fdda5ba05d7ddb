"""Fusing a scheduled program: collectives start no later than in the schedule, and are awaited no earlier."""

from __future__ import annotations

from collections.abc import Iterator

import hloom
import pytest
from hloom.driver.backend import Backend
from hloom.ir.analysis.fusion_groups import Groups
from hloom.ir.analysis.fusion_values import FusionValues
from hloom.ir.analysis.segments import segments
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, Stage
from hloom.ir.graph.op import Role
from hloom.runtime.simulator import SimulatedProgram
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.random.generate import inputs_of, programs
from support.command_line import EXAMPLES
from support.orders import reordered

OVERLAP = """HloModule m, is_scheduled=true, num_partitions=2
ENTRY e {
  x = f32[64] parameter(0)
  w = f32[64] parameter(1)
  y = f32[64] exponential(x)
  g = f32[128] all-gather(y), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  z = f32[64] multiply(y, y)
  a = f32[64] tanh(w)
  b = f32[128] exponential(g)
  c = f32[64] multiply(a, z)
  ROOT r = (f32[128], f32[64]) tuple(b, c)
}"""
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _events(computation: Computation) -> Iterator[tuple[str, frozenset[str]]]:
    """Starts and waits of collectives, each with what has been computed before."""
    numbers, before, number = segments(computation, FusionValues(computation)), set[str](), 0
    for instruction in computation:
        if numbers[instruction] > number:
            yield "wait", frozenset(before)
        if instruction.op.is_collective:
            yield "start", frozenset(before)
        number = numbers[instruction] + instruction.op.is_collective
        before |= {i.name for i in _computed(instruction)}


def _computed(instruction: Instruction) -> Iterator[Instruction]:
    if instruction.op.role is Role.FUSION:
        yield from (i for i in instruction.called()[0] if i.op.is_elementwise and i.shape.dims)
    elif instruction.op.is_elementwise and instruction.shape.dims:
        yield instruction


def test_segments_of_a_schedule() -> None:
    entry = hloom.parse(OVERLAP).entry
    found = segments(entry, FusionValues(entry))
    assert [found[i] for i in entry] == [0, 0, 0, 0, 1, 1, 2, 2, 2]


def test_ops_stay_between_the_same_events() -> None:
    module = hloom.parse(OVERLAP)
    fused = Backend("numpy").prepared(module)
    assert list(_events(fused.entry)) == list(_events(module.entry))
    fusions = [{i.name for i in _computed(i)} for i in fused.entry if i.op.role is Role.FUSION]
    assert fusions == []  # b, c and the others have nobody beside them
    free = hloom.parse(OVERLAP.replace("is_scheduled=true, ", ""))
    assert any(i.op.role is Role.FUSION for i in Backend("numpy").prepared(free).entry)


def test_what_stands_beside_each_other_is_fused() -> None:
    text = OVERLAP.replace("a = f32[64] tanh(w)", "a.0 = f32[64] tanh(w)\n  a = f32[64] multiply(a.0, z)")
    fused = Backend("numpy").prepared(hloom.parse(text))
    fusions = [sorted(i.name for i in _computed(i)) for i in fused.entry if i.op.role is Role.FUSION]
    assert fusions == [["a", "a.0", "z"]]
    assert [i.opcode for i in fused.entry if i.operands][:3] == ["exponential", "all-gather", "fusion"]


def test_the_reason_is_told() -> None:
    entry = hloom.parse(OVERLAP).entry
    c = entry.find("c")
    assert c is not None
    assert "a collective starts or is awaited between them" in Groups(entry, 128, is_scheduled=True).why(c)


@pytest.mark.parametrize("seed", range(3))
def test_random_orders_of_a_training_step_stay(seed: int) -> None:
    module = hloom.partition(hloom.parse((EXAMPLES / "mlp_train.hlo").read_text()))
    ordered = reordered(module, seed)
    fused = Backend("numpy").prepared(ordered)
    assert fused.stage is Stage.SCHEDULED
    values = FusionValues(ordered.entry)
    stored = {i.name for i in ordered.entry if values.is_computed(i) and i.op.is_elementwise}
    assert len(stored) > 10
    wanted, found = ([(event, before & stored) for event, before in _events(m.entry)] for m in (ordered, fused))
    assert [event for event, _ in found] == [event for event, _ in wanted]
    for (event, before), (_, ours) in zip(wanted, found, strict=True):
        assert ours == before if event == "start" else ours >= before


def _check(module: Module, seed: int, backend: str) -> None:
    """The results per device are the same bits in any order, and fused ones those of the fused program in its order."""
    inputs = inputs_of(module)
    local = hloom.partition(module)
    for name in ("reference", backend):
        chosen = Backend(name)
        runs = [SimulatedProgram(chosen.prepared(order), chosen.kernels()).simulate(inputs, poison=True)
                for order in (local, reordered(local, seed))]  # fmt: skip
        for ours, theirs in zip(*(run.per_device for run in runs), strict=True):
            assert [a.tobytes() for a in ours] == [b.tobytes() for b in theirs], f"{name}\n{local.to_text()}"


@settings(max_examples=6, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(), st.integers(0, 99))
def test_random_programs_in_random_orders(module: Module, seed: int) -> None:
    _check(module, seed, "numpy")


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=QUIET)
@given(programs(), st.integers(0, 99))
def test_many_random_programs_in_random_orders(module: Module, seed: int) -> None:
    _check(module, seed, "native")
