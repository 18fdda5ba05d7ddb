"""Uses of ops that repeat an earlier one are emitted from its stamp: the program is the same as without stamps."""

from __future__ import annotations

import hloom
import pytest
from hloom.passes.spmd.emit.stamps import Stamps
from support.calls import calls
from support.command_line import EXAMPLES

REDUCTIONS = """HloModule sums, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[8,4] parameter(0), sharding={mesh['x'=2], [{'x'}, {}]}
  zero = f32[] constant(0)
  one = f32[] constant(1)
  first = f32[4] reduce(x, zero), dimensions={0}, to_apply=add
  second = f32[4] reduce(x, one), dimensions={0}, to_apply=add
  ROOT both = (f32[4], f32[4]) tuple(first, second)
}
"""


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(n, marks=pytest.mark.slow) for n in ("transformer_train", "transformer_scan_train")), "mlp_train"],
)
def test_stamps_change_nothing(name: str) -> None:
    """Uses with attributes of a frontend have no stamps."""
    module = hloom.propagate(hloom.parse((EXAMPLES / f"{name}.hlo").read_text()))
    with calls(Stamps.find) as found:
        stamped = hloom.partition(module)
    assert sum(call["return"] is not None for call in found) > 10
    for instruction in (i for c in module for i in c):
        instruction.frontend_attributes = {**instruction.frontend_attributes, "unlike": "others"}
    with calls(Stamps.find) as found:
        plain = hloom.partition(module)
    assert all(call["return"] is None for call in found)
    for instruction in (i for c in plain for i in c):
        kept = {key: value for key, value in instruction.frontend_attributes.items() if key != "unlike"}
        instruction.frontend_attributes = kept
    assert stamped.to_text() == plain.to_text()


def test_a_stamp_is_for_equal_operands_alone() -> None:
    """The local form of a sum depends on the constant that it begins with, so sums that begin otherwise differ."""
    text = hloom.partition(hloom.parse(REDUCTIONS)).to_text()
    assert text.count("select(") == 1
