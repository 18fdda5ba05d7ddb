"""Samples of scan: outputs and carries, along other dimensions, backwards, without arrays, without outputs."""

from __future__ import annotations


def _scan(body: str, parameters: str, scan: str) -> str:
    return f"HloModule m\nf {{\n{body}\n}}\nENTRY e {{\n{parameters}\n  ROOT r = {scan}, to_apply=f\n}}\n"


_ROWS = """
  x = f32[3] parameter(0)
  c = f32[3] parameter(1)
  s = f32[3] add(c, x)
  d = f32[3] multiply(s, x)
  ROOT t = (f32[3], f32[3]) tuple(d, s)"""
_GROWING = """
  x = s32[] parameter(0)
  y = s32[4] parameter(1)
  c = s32[] parameter(2)
  s = s32[] add(c, x)
  b = s32[4] broadcast(s), dimensions={}
  m = s32[4] multiply(b, y)
  ROOT t = (s32[4], s32[], s32[]) tuple(m, x, s)"""
_ALONE = "  x = s32[] parameter(0)\n  c = s32[] parameter(1)\n  ROOT s = s32[] subtract(x, c)"
_COUNTING = "  c = s32[] parameter(0)\n  s = s32[] add(c, c)\n  ROOT t = (s32[], s32[]) tuple(c, s)"
_MATRICES = "  x = f32[3,5] parameter(0)\n  c = f32[3] parameter(1)"

SAMPLES: dict[str, list[str]] = {
    "scan": [
        _scan(_ROWS, _MATRICES, "(f32[3,5], f32[3]) scan(x, c), dimensions={1}, num_carries=1, is_associative=false"),
        _scan(_ROWS, _MATRICES,
              "(f32[3,5], f32[3]) scan(x, c), dimensions={1}, num_carries=1, is_reverse=true, is_associative=false"),
        _scan(_GROWING, "  x = s32[6] parameter(0)\n  y = s32[6,4] parameter(1)\n  c = s32[] parameter(2)",
              "(s32[6,4], s32[6], s32[]) scan(x, y, c), dimensions={0}, num_carries=1, is_associative=false"),
        _scan(_ALONE, "  x = s32[5] parameter(0)\n  c = s32[] parameter(1)",
              "s32[] scan(x, c), dimensions={0}, num_carries=1, is_associative=false"),
        _scan(_COUNTING, "  c = s32[] parameter(0)",
              "(s32[4], s32[]) scan(c), dimensions={0}, num_carries=1, is_associative=false"),
        _scan(_COUNTING, "  x = s32[4] parameter(0)",
              "(s32[4], s32[4]) scan(x), dimensions={0}, num_carries=0, is_associative=false"),
    ]
}
