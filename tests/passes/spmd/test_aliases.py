"""What a program carries besides its numbers stays: donation where tiles agree, configurations of foreign calls."""

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


def test_a_foreign_call_keeps_its_configuration() -> None:
    text = """
    ENTRY e {
      x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
      ROOT y = f32[8,4] custom-call(x), custom_call_target="mine", backend_config={uplo = 76 : ui8}
    }"""
    local = hloom.partition(hloom.parse(text))
    calls = [i for i in local.entry if i.opcode == "custom-call"]
    assert [str(i.backend_config) for i in calls] == ["{uplo = 76 : ui8}"]


def test_only_equal_tiles_stay_aliased() -> None:
    context = PassContext()
    local = partition(hloom.parse(TEXT), context)
    assert local.input_output_alias == "{ {0}: (0, {}, may-alias) }"
    messages = [d.message for d in context.diagnostics.found]
    assert messages == ["parameter 1 is no longer donated to result {1}: their local shapes are f32[2,4] and f32[8,4]"]
    assert "input_output_alias={ {0}: (0, {}, may-alias) }" in replica_module(local).to_text()
