"""Values that devices make for themselves: computed again where that is little, sent where it is much."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.cost.collectives import collectives
from hloom.frontends import parse
from hloom.passes.api import partition
from hloom.runtime import evaluate, simulate


@pytest.mark.parametrize(("ops", "sent"), [(20, 0), (400, 1)])
def test_deep_chains_are_sent(ops: int, sent: int) -> None:
    rows, columns = "sharding={devices=[4,1]<=[4]}", "sharding={devices=[1,4]<=[4]}"
    lines = [f"i0 = s32[8,8] iota(), iota_dimension=0, {rows}"]
    lines += [f"i{n} = s32[8,8] add(i{n - 1}, i{n // 2}), {rows}" for n in range(1, ops)]
    text = "\n".join(["HloModule m, num_partitions=4", "ENTRY e {", *lines,
                      f"ROOT r = s32[8,8] copy(i{ops - 1}), {columns}", "}"])  # fmt: skip
    local = partition(parse(text))
    assert len(collectives(local)) == sent
    np.testing.assert_array_equal(simulate(local, [])[0], evaluate(parse(text), [])[0])


ROWS, COLUMNS = "sharding={devices=[4,1]<=[4]}", "sharding={devices=[1,4]<=[4]}"


@pytest.mark.parametrize("body", [
    f"t = f32[8,6] copy(x), {ROWS}\n ROOT r = f32[8,6] copy(t), {COLUMNS}",
    f"t = f32[8,6] reverse(x), dimensions={{0}}, {ROWS}\n ROOT r = f32[8,6] add(t, x), {COLUMNS}",
    f"t = f32[5,6] slice(x), slice={{[2:7], [0:6]}}, {ROWS}\n ROOT r = f32[5,6] reverse(t), dimensions={{0}}, {ROWS}",
    f"t = f32[6,8] reshape(x), {ROWS}\n u = f32[6,8] sine(t), {ROWS}\n ROOT r = f32[48] reshape(u)",
    f"t = f32[8,6] sine(x), {ROWS}\n u = f32[8,12] concatenate(t, x), dimensions={{1}}, {ROWS}\n"
    f"ROOT r = f32[12,8] transpose(u), dimensions={{1,0}}, {ROWS}",
])  # fmt: skip
def test_what_comes_from_whole_values_is_not_sent(body: str) -> None:
    head = "HloModule m, num_partitions=4\nENTRY e { x = f32[8,6] parameter(0), sharding={replicated}"
    module = parse(f"{head}\n {body}\n}}")
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    local = partition(module)
    assert collectives(local) == []
    np.testing.assert_array_equal(simulate(local, [x])[0], evaluate(module, [x])[0])


def test_nothing_is_made_whole_that_is_larger_than_what_is_whole() -> None:
    """Tiles of columns are no tiles of the flat array."""
    module = parse(f"""HloModule m, num_partitions=4
    ENTRY e {{
      x = f32[16] parameter(0), sharding={{replicated}}
      b = f32[6,16] broadcast(x), dimensions={{1}}, {COLUMNS}
      s = f32[6,16] sine(b), {COLUMNS}
      ROOT r = f32[96] reshape(s), sharding={{devices=[4]<=[4]}}
    }}""")
    x = np.arange(16, dtype=np.float32)
    local = partition(module)
    assert max(i.shape.num_elements for c in local for i in c if i.shape.is_array) < 96
    np.testing.assert_array_equal(np.concatenate(simulate(local, [x])), np.concatenate(evaluate(module, [x])))
