"""Names of results: paths of donated parameters, names of what the root is made of."""

from __future__ import annotations

import hloom
from hloom.ir.tools.names import result_names

STEP = """HloModule step, input_output_alias={ {0}: (0, {}, may-alias), {2,1}: (1, {0}, may-alias) }
ENTRY e {
  p0 = f32[4] parameter(0), metadata={op_name="state['w']"}
  p1 = (f32[4], s32[]) parameter(1)
  new = f32[4] negate(p0)
  a = f32[4] get-tuple-element(p1), index=0
  loss = f32[] constant(1)
  pair = (s32[], f32[4]) custom-call(a), custom_call_target="names_test"
  ROOT r = (f32[4], f32[], (s32[], f32[4])) tuple(new, loss, pair)
}
"""


def test_result_names() -> None:
    assert result_names(hloom.parse(STEP)) == ["state['w']", "loss", "pair[0]", "p1[0]"]
    assert result_names(hloom.parse("ENTRY e { ROOT x = f32[] parameter(0) }")) == ["x"]
    assert result_names(hloom.parse("ENTRY e { ROOT x = (f32[], s32[2]) parameter(0) }")) == ["x[0]", "x[1]"]
    tokens = "ENTRY e { t = token[] after-all() x = f32[] parameter(0) ROOT y = (token[], f32[]) tuple(t, x) }"
    assert result_names(hloom.parse(tokens)) == ["x"]
    assert result_names(hloom.parse("ENTRY e { x = f32[] parameter(0) ROOT y = () tuple() }")) == []
