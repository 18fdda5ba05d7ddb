"""Element-wise ops write over an operand that nothing reads later."""

from __future__ import annotations

import hloom
import pytest


def curve(body: str) -> list[int]:
    module = hloom.parse(f"HloModule m\nENTRY main {{\n{body}\n}}\n")
    return [moment.bytes for moment in hloom.live_memory(module).curve]


@pytest.mark.parametrize(("op", "later", "size"), [
    ("f32[256] negate(a)", "c, c", 0), ("f32[256] multiply(a, a)", "c, c", 0), ("f32[256] add(x, a)", "c, c", 0),
    ("f32[256] negate(a)", "c, a", 1024),  # which is read later
    ("f32[256] negate(x)", "c, a", 1024),  # the parameter stays what it is
    ("f32[256] convert(s)", "c, a", 0), ("f32[256] convert(h)", "c, a", 1024),  # another type, of another size
    ("f32[256] reverse(a), dimensions={0}", "c, c", 1024),  # reads what it would have written
])  # fmt: skip
def test_an_operand_ends_with_an_element_wise_op(op: str, later: str, size: int) -> None:
    found = curve(f"""x = f32[256] parameter(0)
      a = f32[256] reverse(x), dimensions={{0}}
      h = f16[256] convert(a)
      s = s32[256] convert(a)
      b = f32[] constant(0)
      c = {op}
      ROOT r = f32[256] add({later})""")
    assert found[5] - found[4] == size


def test_not_into_another_layout() -> None:
    text = """x = f32[8,4] parameter(0)
      a = f32[8,4]{{1,0}} reverse(x), dimensions={{0}}
      ROOT b = f32[8,4]{{{}}} negate(a)"""
    assert [max(curve(text.format(order))) for order in ("1,0", "0,1")] == [256, 384]
