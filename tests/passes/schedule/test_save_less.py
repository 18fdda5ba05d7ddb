"""Less is saved where computing it again is faster: the same bits, no slower, and the costly stays."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.cost.presets import as_machine
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline_seconds
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.passes.base import PassContext, run_pass
from hloom.passes.schedule.save_less import SaveLess
from hloom.passes.scheduling import schedule
from hloom.runtime import evaluate
from hloom.runtime.inputs.inputs import inputs_for_module
from support.scans import LOOPS, random_scan


def _saving_less(module: Module, machine: str) -> tuple[Module, bool, float]:
    """The program after the pass, whether it has changed, and the share of its time; checked to have the same bits."""
    new, context = clone_module(module), PassContext(machine=as_machine(machine))
    changed = run_pass(SaveLess(), new, context)
    check(new)
    inputs = inputs_for_module(module, seed=5)
    for a, b in zip(evaluate(new, inputs), evaluate(module, inputs), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    times = [timeline_seconds(m, Clock.of(m, context.machine)) for m in (new, module)]
    return new, changed, times[0] / times[1]


def _stacks(module: Module) -> int:
    """How many arrays of the shape of a stack the first loop has in its state."""
    loop = next(i for i in module.entry if i.opcode == "while")
    return sum(s.dims == (5, 8, 64) for s in loop.shape.leaves())


@pytest.mark.parametrize("machine", ["cpu-cluster", "h100"])
def test_what_is_cheap_is_computed_again(machine: str) -> None:
    """s comes from x and t, which stay: to compute t takes a slice of the weights, as reading it does."""
    new, changed, share = _saving_less(hloom.partition(hloom.parse(LOOPS)).module, machine)
    assert changed
    assert share < 0.95
    assert _stacks(new) == 2


def test_what_takes_long_to_compute_is_saved() -> None:
    """s takes a product, which a machine of slow products rather reads."""
    product = """a = f32[64,64] broadcast(w), dimensions={0}
  b = f32[64,64] broadcast(w), dimensions={1}
  square = f32[64,64] multiply(a, b)
  sn = f32[8,64] dot(t, square), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    text = LOOPS.replace("sn = f32[8,64] sine(x)", product)
    assert text != LOOPS
    new, changed, _ = _saving_less(hloom.partition(hloom.parse(text)).module, "cpu-cluster;work=f32:100M")
    assert (changed, _stacks(new)) == (False, 3)


def test_random_programs_are_no_slower_and_keep_their_bits() -> None:
    shares: list[float] = []
    for seed in range(9):
        machine = ("cpu-cluster", "h100", "tpu-v4")[seed % 3]
        _, changed, share = _saving_less(random_scan(seed), machine)
        assert share < 1 if changed else share == 1
        shares.append(share)
    assert sum(share < 1 for share in shares) > 3


def test_programs_without_such_loops_stay() -> None:
    text = "ENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] tanh(x) }"
    module = hloom.partition(hloom.parse(text)).module
    assert not run_pass(SaveLess(), module, PassContext(machine=as_machine("h100")))


def test_schedules_save_less() -> None:
    """The pass is one of those that schedule; its remark has both times."""
    local, context = hloom.partition(hloom.parse(LOOPS)).module, PassContext(machine=as_machine("h100"))
    schedule(local, context)
    assert _stacks(local) == 2
    said = [remark.message for remark in context.diagnostics.found]
    assert any("save-less: arrays that loops save no longer: 1; " in message for message in said)
