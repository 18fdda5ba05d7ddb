"""Vectors of start indices mean what scalars mean, on one device and on several."""

from __future__ import annotations

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.passes.api import partition
from hloom.passes.base import PassContext
from hloom.passes.cleanup.index_vectors import IndexVectors
from hloom.runtime import evaluate, simulate

PROGRAM = """HloModule m, num_partitions=4
ENTRY e {{
  x = f32[8,6] parameter(0), sharding={{devices=[4,1]<=[4]}}
  i = s32[2] parameter(1)
  u = f32[3,6] parameter(2){scalars}
  s = f32[3,6] dynamic-slice(x, {starts}), dynamic_slice_sizes={{3,6}}
  d = f32[8,6] dynamic-update-slice(x, u, {starts}), sharding={{devices=[4,1]<=[4]}}, control-predecessors={{s}}
  ROOT t = (f32[3,6], f32[8,6]) tuple(s, d)
}}"""
SCALARS = """
  a = s32[1] slice(i), slice={[0:1]}
  b = s32[1] slice(i), slice={[1:2]}
  first = s32[] reshape(a)
  second = s32[] reshape(b)"""
VECTOR = PROGRAM.format(scalars="", starts="i")
SEPARATE = PROGRAM.format(scalars=SCALARS, starts="first, second")


@pytest.mark.parametrize("start", [-3, 0, 4, 100])
def test_same_values(start: int) -> None:
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    inputs = [x, np.array([start, 0], np.int32), -x[:3]]
    expected = evaluate(parse(SEPARATE), inputs)
    for outputs in (evaluate(parse(VECTOR), inputs), simulate(partition(parse(VECTOR)), inputs)):
        for ours, theirs in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_scalars_take_the_place_of_the_vector() -> None:
    module = parse(VECTOR)
    assert IndexVectors().run(module, PassContext())
    instructions = {i.name: i for i in module.entry}
    for name, first in (("s", 1), ("d", 2)):
        starts = instructions[name].operands[first:]
        assert [(o.opcode, str(o.shape)) for o in starts] == [("reshape", "s32[]")] * 2
    assert instructions["d"].control_predecessors == (instructions["s"],)
    assert not IndexVectors().run(module, PassContext())
