"""Samples of select-and-scatter: overlapping windows, padding, other comparisons and combiners."""

from __future__ import annotations


def _scatter(element: str, dims: str, windows: str, window: str, direction: str = "GE", body: str = "add(a, b)") -> str:
    return f"""
HloModule m
s {{ a = {element}[] parameter(0) b = {element}[] parameter(1) ROOT r = pred[] compare(a, b), direction={direction} }}
f {{ a = {element}[] parameter(0) b = {element}[] parameter(1) ROOT r = {element}[] {body} }}
ENTRY e {{
  x = {element}[{dims}] parameter(0)
  u = {element}[{windows}] parameter(1)
  i = {element}[] constant(1)
  ROOT r = {element}[{dims}] select-and-scatter(x, u, i), window={{{window}}}, select=s, scatter=f
}}
"""


SAMPLES: dict[str, list[str]] = {
    "select-and-scatter": [
        _scatter("f32", "2,6,6,3", "2,3,3,3", "size=1x2x2x1 stride=1x2x2x1"),
        _scatter("f32", "5,7", "3,6", "size=3x3 stride=2x1 pad=1_1x1_0"),
        _scatter("s32", "9", "4", "size=3 stride=2", "LT"),
        _scatter("s32", "9", "10", "size=3 pad=2_1", "GE", "maximum(a, b)"),
        _scatter("s32", "3,5", "3,3", "size=1x3", "GT", "subtract(a, b)"),
        _scatter("bf16", "4,6", "4,3", "size=1x2 stride=1x2"),
        _scatter("f32", "4", "0", "size=6"),
    ]
}
