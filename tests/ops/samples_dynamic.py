"""Samples of dynamic sizes, stochastic-convert and domain."""

from __future__ import annotations


def _program(*lines: str, kind: str = "plain", xla: bool = True) -> str:
    head = f"// inputs: {kind}\n" + ("" if xla else "// xla: no\n")
    return head + "HloModule m\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


# The sum of the first elements only.
_PREFIX = """
HloModule m
f { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }
ENTRY e {
  x = s32[8,3] parameter(0)
  n = s32[] constant(5)
  d = s32[<=8,3] set-dimension-size(x, n), dimensions={0}
  y = s32[<=8,3] add(d, d)
  z = s32[] constant(0)
  ROOT r = s32[3] reduce(y, z), dimensions={0}, to_apply=f
}
"""
_SIZE = _program(
    "x = f32[4] parameter(0)",
    "s = s32[] constant(3)",
    "d = f32[<=4] set-dimension-size(x, s), dimensions={0}",
    "y = f32[<=4] negate(d)",
    "ROOT g = s32[] get-dimension-size(y), dimensions={0}",
)
_STATIC_AGAIN = _program(
    "x = f32[4,2] parameter(0)",
    "s = s32[] constant(4)",
    "ROOT d = f32[4,2] set-dimension-size(x, s), dimensions={0}",
    xla=False,
)
_RESHAPE = _program(
    "x = f32[6,4] parameter(0)",
    "n = s32[] constant(24)",
    "r = f32[<=24] dynamic-reshape(x, n)",
    "ROOT g = s32[] get-dimension-size(r), dimensions={0}",
)
_RESHAPE_STATIC = _program(
    "x = f32[6,4] parameter(0)",
    "n = s32[] constant(8)",
    "m = s32[] constant(3)",
    "ROOT r = f32[8,3] dynamic-reshape(x, n, m)",
    xla=False,
)


def _stochastic(source: str, target: str, kind: str, xla: bool = True) -> str:
    bits = source[1:].split("[")[0]
    dims = source[source.index("[") :]
    return _program(f"x = {source} parameter(0)", f"n = u{bits}{dims} parameter(1)",
                    f"ROOT r = {target}{dims} stochastic-convert(x, n)", kind=kind, xla=xla)  # fmt: skip


def _domain(kind: str, entry: str, leave: str) -> str:
    return _program(f"x = {kind} parameter(0)",
                    f'ROOT r = {kind} domain(x), domain={{kind="sharding", entry={entry}, exit={leave}}}')  # fmt: skip


SAMPLES: dict[str, list[str]] = {
    "get-dimension-size": [
        _SIZE, _program("x = f32[4,5] parameter(0)", "ROOT g = s32[] get-dimension-size(x), dimensions={1}")
    ],
    "set-dimension-size": [_PREFIX, _SIZE, _STATIC_AGAIN],
    "dynamic-reshape": [_RESHAPE, _RESHAPE_STATIC],
    "stochastic-convert": [
        _stochastic("f32[4,5]", "s8", "special"),
        _stochastic("f32[40]", "s32", "special"),
        _stochastic("f32[40]", "u16", "positive", xla=False),
    ],
    "domain": [_domain("f32[6]", "{maximal device=0}", "{maximal device=1}"),
               _domain("s32[6,2]", "{devices=[2,1]0,1}", "{replicated}")],
}
