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
