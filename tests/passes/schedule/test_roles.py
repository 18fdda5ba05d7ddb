"""Roles of collectives: what is early and may be late shares messages with what is late."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext
from hloom.passes.schedule.roles import roles_of
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module

# The gradient of w, and the number of tokens: a sum that is there from the start, and that nobody but the caller reads.
STEP = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[512,512] parameter(0), sharding={devices=[4,1]<=[4]}
  mask = f32[512] parameter(1), sharding={devices=[4]<=[4]}
  w = f32[512,512] parameter(2), sharding={replicated}
  zero = f32[] constant(0)
  tokens = f32[] reduce(mask, zero), dimensions={0}, to_apply=add
  xw = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[512,512] tanh(xw)
  g = f32[512,512] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (f32[512,512], f32[]) tuple(g, tokens)
}
"""
NEEDED = STEP.replace("tanh(xw)", "multiply(xw, many)").replace(
    "  y =", "  many = f32[512,512] broadcast(tokens), dimensions={}\n  y =")


def local_of(text: str) -> Module:
    return hloom.partition(hloom.parse(text)).module


def names(text: str) -> tuple[list[str], list[str]]:
    """The shapes of the collectives that are gathers, and of those that are reductions."""
    local = local_of(text)
    roles = roles_of(local.entry, Clock.of(local, PRESETS["h100"]))
    return [str(i.shape) for i in roles.gathers], [str(i.shape) for i in roles.reductions]


def test_what_is_early_and_may_be_late_is_a_reduction_beside_another() -> None:
    assert names(STEP) == ([], ["f32[]", "f32[512,512]"])


def test_what_a_product_needs_is_not() -> None:
    assert names(NEEDED) == (["f32[]"], ["f32[512,512]"])


def test_what_has_no_message_to_share_is_not() -> None:
    """The greatest is no sum."""
    greatest = STEP.replace("dimensions={0}, to_apply=add", "dimensions={0}, to_apply=most").replace(
        "ENTRY", "most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }\nENTRY")
    assert names(greatest) == (["f32[]"], ["f32[512,512]"])


def test_what_waits_for_a_control_predecessor_has_no_role() -> None:
    local = local_of(STEP)
    (tanh,) = (i for i in local.entry if i.opcode == "tanh")
    (large,) = (i for i in local.entry if i.op.is_collective and i.shape.rank)
    large.control_predecessors = (tanh,)
    roles = roles_of(local.entry, Clock.of(local, PRESETS["h100"]))
    assert large not in {*roles.gathers, *roles.reductions}


@pytest.mark.parametrize("machine", ["h100", "tpu-v4", "cpu-cluster"])
def test_schedules_send_one_message(machine: str) -> None:
    local, context = local_of(STEP), PassContext(machine=PRESETS[machine])
    new = schedule(clone_module(local), context)
    assert [i.opcode for i in new.entry if i.op.is_collective] == ["all-reduce"]
    assert timeline(new, machine).seconds < timeline(local, machine).seconds
    inputs = inputs_for_module(hloom.parse(STEP))
    for a, b in zip(hloom.simulate(new, inputs), hloom.simulate(local, inputs), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
