"""Programs as later versions of XLA print them (JAX 0.11) mean what they mean in the spelling of today's."""

from __future__ import annotations

import hloom
import pytest

BEGIN = """ENTRY e { x = f32[4,8] parameter(0)
  y = f32[4,8] parameter(1)
  """
SUM = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"


@pytest.mark.parametrize(("theirs", "ours"), [
    ("ROOT c = pred[4,8] compare(x, y), direction=LT, order=TOTAL }",
     "ROOT c = pred[4,8] compare(x, y), direction=LT, type=TOTALORDER }"),
    ("ROOT c = pred[4,8] compare(x, y), direction=LT, order=PARTIAL }",
     "ROOT c = pred[4,8] compare(x, y), direction=LT }"),
    ("ROOT t = (f32[4,2], s32[4,2]) topk(x), k=2, largest=true, is_stable=true }",
     "ROOT t = (f32[4,2], s32[4,2]) topk(x), k=2, largest=true }"),
    ("ROOT b = f32[4,8] collective-broadcast(x), replica_groups={{0,1}}, has_dynamic_root=false }",
     "ROOT b = f32[4,8] collective-broadcast(x), replica_groups={{0,1}} }"),
])  # fmt: skip
def test_attributes_of_another_name(theirs: str, ours: str) -> None:
    assert hloom.parse(BEGIN + theirs).to_text() == hloom.parse(BEGIN + ours).to_text()


def test_values_that_mean_something_else_are_errors() -> None:
    with pytest.raises(hloom.CompileError, match="has_dynamic_root=true is not known here"):
        hloom.parse(BEGIN + "ROOT b = f32[4,8] collective-broadcast(x), replica_groups={{0}}, has_dynamic_root=true }")


def test_starts_that_say_where_their_results_lie() -> None:
    text = (SUM + BEGIN + "s = ((f32[4,8]), f32[4,8]) all-reduce-start(x), replica_groups={{0,1}}, to_apply=add, "
            "output_to_operand_aliasing={{1}: (0, {})}\n  ROOT d = f32[4,8] all-reduce-done(s) }")  # fmt: skip
    module = hloom.parse(text)
    assert "output_to_operand_aliasing={{1}: (0, {})}" in module.to_text()
    assert [c.kind for c in hloom.collectives(module)] == ["all-reduce"]
