"""Which edits count as edits of loops: all that may change what is fused, and no others."""

from __future__ import annotations

from collections.abc import Callable

import hloom
import pytest
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module

TEXT = """HloModule m, num_partitions=2, frontend_attributes={hloom.stage="local"}
ENTRY e {
  x = f32[8] parameter(0)
  w = f32[4] parameter(1)
  g = f32[8] all-gather(w), channel_id=1, dimensions={0}, replica_groups={{0,1}}, use_global_device_ids=true
  a = f32[8] exponential(x)
  b = f32[8] negate(a)
  ROOT r = f32[8] multiply(b, g)
}"""


def named(module: Module, name: str) -> Instruction:
    found = module.entry.find(name)
    assert found is not None
    return found


def gathered(entry: Computation, value: Instruction, shape: str) -> Instruction:
    with entry.at(before=entry.root):
        return entry.build("all-gather", value, shape=shape, dimensions=(0,), channel_id=2, replica_groups=((0, 1),),
                           use_global_device_ids=True)  # fmt: skip


def another_gather(module: Module) -> None:
    entry, old = module.entry, named(module, "g")
    new = gathered(entry, named(module, "w"), "f32[8]")
    entry.replace_all_uses(old, new)
    entry.remove(old)


def another_order(module: Module) -> None:
    module.entry.move_before(named(module, "g"), named(module, "r"))


def a_gather_of_a_fused_value(module: Module) -> None:
    gathered(module.entry, named(module, "a"), "f32[16]")


def a_value_in_place_of_a_gather(module: Module) -> None:
    module.entry.set_operand(named(module, "r"), 1, named(module, "x"))


def another_shape(module: Module) -> None:
    named(module, "x").shape = named(module, "a").shape


def another_root(module: Module) -> None:
    module.entry.root = named(module, "b")


@pytest.mark.parametrize("edit", [another_gather, another_order])
def test_transfers_and_orders_keep_the_clock(edit: Callable[[Module], None]) -> None:
    module = hloom.parse(TEXT)
    clock = Clock.of(module, PRESETS["h100"])
    assert not clock.is_stored(named(module, "a"))
    edit(module)
    assert Clock.of(module, PRESETS["h100"]) is clock
    fresh = Clock(PRESETS["h100"], module.devices)
    assert [clock.is_stored(i) for i in module.entry] == [fresh.is_stored(i) for i in module.entry]


@pytest.mark.parametrize(
    "edit", [a_gather_of_a_fused_value, a_value_in_place_of_a_gather, another_shape, another_root]
)
def test_other_edits_ask_for_a_new_clock(edit: Callable[[Module], None]) -> None:
    module = hloom.parse(TEXT)
    clock = Clock.of(module, PRESETS["h100"])
    assert not clock.is_stored(named(module, "a"))
    edit(module)
    new = Clock.of(module, PRESETS["h100"])
    assert new is not clock
    assert new.is_stored(named(module, "a")) is (edit is a_gather_of_a_fused_value)
