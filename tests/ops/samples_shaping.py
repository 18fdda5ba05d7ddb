"""Samples of the ops that move elements: shaping and slicing."""

from __future__ import annotations

from ops.samples_elementwise import sample


def _rows(opcode: str, rows: list[tuple[str, str, str]]) -> list[str]:
    return [sample(opcode, operands, result, attributes, "plain") for operands, result, attributes in rows]


def _only_here(texts: list[str]) -> list[str]:
    """XLA reads these samples; the way from text to its compiler does not know such operands."""
    return ["// xla: no\n" + text for text in texts]


def _edge_starts(opcode: str, operands: str, result: str, attributes: str) -> str:
    return sample(opcode, operands, result, attributes, "special")


SAMPLES: dict[str, list[str]] = {
    "broadcast": _rows("broadcast", [
        ("f32[]", "f32[2,3]", "dimensions={}"),
        ("f32[3]", "f32[2,3,4]", "dimensions={1}"),
        ("s32[2,4]", "s32[2,3,4]", "dimensions={0,2}"),
        ("bf16[4,2]", "bf16[2,3,4]", "dimensions={2,0}"),
        ("f32[1,5]", "f32[1,5]", "dimensions={0,1}"),
        ("pred[]", "pred[]", "dimensions={}"),
        ("f32[0]", "f32[3,0]", "dimensions={1}"),
    ]),
    "reshape": _rows("reshape", [
        ("f32[6,4]", "f32[24]", ""),
        ("f32[24]", "f32[2,3,4]", ""),
        ("s32[8,6]", "s32[4,12]", ""),
        ("f32[6,4]", "f32[8,3]", ""),
        ("f32[1,6,1]", "f32[6]", ""),
        ("f32[]", "f32[1,1]", ""),
        ("f32[1]", "f32[]", ""),
        ("f32[5,2,3,7]", "f32[5,3,2,7]", ""),
        ("f32[4,0]", "f32[0,3]", ""),
        ("f32[4,6]", "f32[24]", "inferred_dimension=0"),
    ]),
    "transpose": _rows("transpose", [
        ("f32[2,3]", "f32[3,2]", "dimensions={1,0}"),
        ("f32[2,3,4]", "f32[4,2,3]", "dimensions={2,0,1}"),
        ("f32[]", "f32[]", "dimensions={}"),
    ]),
    "reverse": _rows("reverse", [
        ("f32[2,3]", "f32[2,3]", "dimensions={1}"),
        ("s8[2,3,4]", "s8[2,3,4]", "dimensions={0,2}"),
        ("f32[3]", "f32[3]", "dimensions={}"),
    ]),
    "concatenate": _rows("concatenate", [
        ("f32[2,3] f32[4,3]", "f32[6,3]", "dimensions={0}"),
        ("f32[2,3] f32[2,1] f32[2,5]", "f32[2,9]", "dimensions={1}"),
        ("bf16[3]", "bf16[3]", "dimensions={0}"),
        ("s32[0] s32[2]", "s32[2]", "dimensions={0}"),
    ]),
    "slice": _rows("slice", [
        ("f32[8,6]", "f32[3,6]", "slice={[2:5], [0:6]}"),
        ("f32[8,6]", "f32[3,2]", "slice={[1:7:2], [1:6:3]}"),
        ("s32[4]", "s32[0]", "slice={[2:2]}"),
        ("f32[]", "f32[]", "slice={}"),
    ]),
    "pad": _rows("pad", [
        ("f32[3,4] f32[]", "f32[6,4]", "padding=1_2x0_0"),
        ("f32[3,4] f32[]", "f32[2,5]", "padding=-1_0x2_-1"),
        ("s32[4] s32[]", "s32[12]", "padding=1_1_2"),
        ("s32[4] s32[]", "s32[7]", "padding=-2_-1_2"),
        ("s32[4] s32[]", "s32[7]", "padding=-1_-2_2"),
        ("bf16[5] bf16[]", "bf16[2]", "padding=-6_-1_1"),
        ("f32[3] f32[]", "f32[1]", "padding=-4_2"),
        ("f32[3] f32[]", "f32[1]", "padding=2_-4"),
        ("f32[0] f32[]", "f32[3]", "padding=1_2_4"),
    ]),
    "iota": [
        sample("iota", "", f"{e}[3,5]", f"iota_dimension={d}") for e in ("s32", "f32", "bf16", "u8") for d in (0, 1)
    ] + [sample("iota", "", "s8[300]", "iota_dimension=0"), sample("iota", "", "c64[4]", "iota_dimension=0")],
    "dynamic-slice": [
        *_rows("dynamic-slice", [
            ("f32[8,6] s32[] s32[]", "f32[3,6]", "dynamic_slice_sizes={3,6}"),
            ("f32[8,6] u32[] u32[]", "f32[3,2]", "dynamic_slice_sizes={3,2}"),
            ("f32[]", "f32[]", "dynamic_slice_sizes={}"),
        ]),
        _edge_starts("dynamic-slice", "f32[8,6] s32[] s32[]", "f32[3,2]", "dynamic_slice_sizes={3,2}"),
        _edge_starts("dynamic-slice", "s32[8] u8[]", "s32[3]", "dynamic_slice_sizes={3}"),
        *_only_here(_rows("dynamic-slice", [("f32[8,6] s32[2]", "f32[3,6]", "dynamic_slice_sizes={3,6}")])),
    ],
    "dynamic-update-slice": [
        *_rows("dynamic-update-slice", [
            ("f32[8,6] f32[3,6] s32[] s32[]", "f32[8,6]", ""),
            ("f32[8,6] f32[3,2] u32[] u32[]", "f32[8,6]", ""),
            ("bf16[5] bf16[5] s32[]", "bf16[5]", ""),
        ]),
        *_only_here(_rows("dynamic-update-slice", [("f32[8,6] f32[3,2] u32[2]", "f32[8,6]", "")])),
        _edge_starts("dynamic-update-slice", "f32[8,6] f32[3,2] s32[] s32[]", "f32[8,6]", ""),
    ],
}  # fmt: skip
