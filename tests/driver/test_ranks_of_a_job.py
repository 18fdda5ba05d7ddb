"""Programs on their way to the ranks of a job, and the groups of ranks that they need."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.driver.preflight import groups_of
from hloom.driver.program import Program

TEXT = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[8] parameter(0)
 ROOT r = f32[8] all-reduce(x), replica_groups=GROUPS, to_apply=add, channel_id=1, use_global_device_ids=true }"""


def test_a_program_comes_to_another_process_as_it_is() -> None:
    module = hloom.parse("ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}  ROOT y = f32[8] negate(x) }")
    program = hloom.compile(module, 4, backend="reference")
    again = Program.unpacked(program.packed())
    x = np.arange(8, dtype=np.float32)
    assert again.backend == program.backend
    assert again.local.to_text() == program.local.to_text()
    np.testing.assert_array_equal(again.simulate([x])[0], -x)


@pytest.mark.parametrize(
    ("groups", "ranks", "expected"),
    [("{{0,1},{2,3}}", 2, []), ("{{0,2},{1,3}}", 2, [(0, 1)]), ("{{0,2},{1,3}}", 4, [(0, 2), (1, 3)])],
)
def test_groups_of_devices_are_groups_of_ranks(groups: str, ranks: int, expected: list[tuple[int, ...]]) -> None:
    assert groups_of(hloom.parse(TEXT.replace("GROUPS", groups)), ranks) == expected
