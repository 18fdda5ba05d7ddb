"""Arrays that lie on the host lie there on each device as well: parameters, results, and the state of loops."""

from __future__ import annotations

import re

import hloom
import numpy as np
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.ir.graph.host_memory import is_host_move
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.passes.schedule.saved import free_saved
from hloom.runtime.inputs.inputs import inputs_for_module
from support.scans import LOOPS, STACK

MOVE = 'custom_call_target="annotate_device_placement", frontend_attributes={_xla_buffer_placement="%s"}'
WEIGHTS = f"""HloModule m, num_partitions=4
ENTRY e {{
  x = f32[8,16] parameter(0), sharding={{devices=[4,1]<=[4]}}
  w = f32[16,32]{{1,0:S(5)}} parameter(1), sharding={{devices=[1,4]<=[4]}}
  v = f32[16,32]{{1,0:S(5)}} parameter(2), sharding={{replicated}}
  here = f32[16,32] custom-call(w), {MOVE % "device"}
  also = f32[16,32] custom-call(v), {MOVE % "device"}, sharding={{devices=[1,4]<=[4]}}
  u = f32[16,32] add(here, also)
  y = f32[8,32] dot(x, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  new = f32[16,32]{{1,0:S(5)}} custom-call(u), {MOVE % "pinned_host"}, sharding={{devices=[1,4]<=[4]}}
  ROOT r = (f32[8,32], f32[16,32]{{1,0:S(5)}}) tuple(y, new)
}}"""


def divided(whole: Module) -> Module:
    """The program of a device, as it is printed, with the numbers of one device; it is proved."""
    local = hloom.partition(clone_module(whole)).module
    check(local)
    local = hloom.parse(local.to_text())
    inputs = inputs_for_module(whole)
    for ours, one in zip(hloom.simulate(local, inputs), hloom.evaluate(whole, inputs), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(one), rtol=1e-5, atol=1e-6)
    assert hloom.prove(whole, local).is_equal
    return local


def test_parameters_and_results() -> None:
    """Whole parameters are cut on the device; moves say where to, as XLA reads it."""
    local = divided(hloom.parse(WEIGHTS))
    _, w, v = (p.shape for p in local.entry.parameters)
    assert (str(w), str(v)) == ("f32[16,8]{1,0:S(5)}", "f32[16,32]{1,0:S(5)}")
    assert local.entry.root.shape.elements[1] == w
    assert live_memory(local).parameters == 2 * 16 * 4
    moves = [i for i in local.entry if is_host_move(i)]
    assert [i.shape.is_on_host for i in moves] == [False, False, True]
    places = {str(i.frontend_attributes["_xla_buffer_placement"]).strip('"') for i in moves}
    assert places == {"device", "pinned_host"}


def test_the_state_of_loops() -> None:
    """Stacks of a program that moves them before it is divided."""
    moved = hloom.parse(LOOPS)
    free_saved(moved, Clock.of(moved, PRESETS["h100"]), 1e9, offload=True)
    rows, found = "sharding={devices=[4,1]<=[4]}", list[Module]()
    for text in (LOOPS, moved.to_text()):
        text = text.replace("HloModule m", "HloModule m, num_partitions=4", 1)
        found.append(divided(hloom.parse(re.sub(r"(x = f32\[8,64\] parameter\(0\))", rf"\1, {rows}", text))))
    plain, local = found
    assert local.to_text().count("f32[5,2,64]{2,1,0:S(5)}") > 10
    assert live_memory(local).peak < live_memory(plain).peak - 2 * STACK / 4
