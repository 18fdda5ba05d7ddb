"""Samples of topk: of floats, integers and small types, the greatest and the least."""

from __future__ import annotations


def _topk(element: str, dims: str, k: int, result: str, largest: str = ", largest=true") -> str:
    return f"""
HloModule m
ENTRY e {{
  x = {element}[{dims}] parameter(0)
  ROOT r = ({element}[{result}], s32[{result}]) topk(x), k={k}{largest}
}}
"""


SAMPLES: dict[str, list[str]] = {
    "topk": [
        _topk("f32", "3,8", 2, "3,2"),
        _topk("f32", "2,3,5", 5, "2,3,5"),
        "// inputs: special" + _topk("f32", "4,30", 30, "4,30"),
        "// inputs: special" + _topk("f16", "4,30", 30, "4,30", ", largest=false"),
        _topk("f32", "9", 1, "1"),
        _topk("s32", "4,9", 3, "4,3"),
        _topk("bf16", "4,9", 3, "4,3"),
        _topk("u8", "4,9", 3, "4,3"),
        _topk("f32", "3,8", 2, "3,2", ", largest=false"),
        _topk("s32", "3,8", 3, "3,3", ", largest=false"),
    ]
}
