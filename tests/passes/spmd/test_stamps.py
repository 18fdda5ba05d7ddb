"""Uses of ops that repeat an earlier one are emitted from its stamp: the program is the same as without stamps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import hloom
import pytest
from hloom.passes.spmd.emit.stamps import Stamp, Stamps
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


@pytest.mark.parametrize("name", ["transformer_train", "transformer_scan_train", "mlp_train"])
def test_stamps_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hloom.propagate(hloom.parse((EXAMPLES / f"{name}.hlo").read_text()))
    found: Counter[bool] = Counter()
    find = Stamps.find

    def counted(self: Stamps, key: Hashable | None) -> Stamp | None:
        stamp = find(self, key)
        found[stamp is not None] += 1
        return stamp

    monkeypatch.setattr(Stamps, "find", counted)
    stamped = hloom.partition(module)
    assert found[True] > 10

    def nothing(self: Stamps, key: Hashable | None) -> None: ...

    monkeypatch.setattr(Stamps, "find", nothing)
    assert stamped.to_text() == hloom.partition(module).to_text()


def test_a_stamp_is_for_equal_operands_alone() -> None:
    """The local form of a sum depends on the constant that it begins with, so sums that begin otherwise differ."""
    text = hloom.partition(hloom.parse(REDUCTIONS)).to_text()
    assert text.count("select(") == 1
