"""Donated parameters stay donated where the tiles of both ends agree."""

from __future__ import annotations

import hloom
from hloom.codegen import replica_module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition

TEXT = """
HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[8,4] parameter(1), sharding={devices=[4,1]<=[4]}
  a = f32[8,4] negate(x)
  b = f32[8,4] negate(y)
  ROOT t = (f32[8,4], f32[8,4]) tuple(a, b), sharding={{devices=[4,1]<=[4]}, {replicated}}
}
"""


def test_only_equal_tiles_stay_aliased() -> None:
    context = PassContext()
    local = partition(hloom.parse(TEXT), context)
    assert local.input_output_alias == "{ {0}: (0, {}, may-alias) }"
    messages = [d.message for d in context.diagnostics.found]
    assert messages == ["parameter 1 is no longer donated to result {1}: per device they are f32[2,4] and f32[8,4]"]
    assert "input_output_alias={ {0}: (0, {}, may-alias) }" in replica_module(local).to_text()
