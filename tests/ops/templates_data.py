"""Templates of the ops that move, hold or compare elements, whatever they mean (see `typed_programs`)."""

from __future__ import annotations

from ops.template import one, whole

_STARTS = "s32[] s32[]"
_GATHER = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}"
_SUM = "f { a = E[] parameter(0) b = E[] parameter(1) ROOT r = add(a, b) }\n"
_SUMMED = "positive\n// as: reduce"
_DOMAIN = 'domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}'


def _ways(opcode: str, *ways: tuple[str, str, str]) -> tuple[str, ...]:
    """One program per operands, result and attributes."""
    return tuple(one(opcode, operands, attributes, result) for operands, result, attributes in ways)


TEMPLATES: dict[str, tuple[str, ...]] = {
    "broadcast": _ways("broadcast", ("E[3]", "E[2,3,4]", "dimensions={1}"), ("E[]", "E[5]", "dimensions={}")),
    "reshape": _ways("reshape", ("E[4,6]", "E[3,8]", ""), ("E[2,1,5]", "E[10]", "")),
    "transpose": _ways("transpose", ("E[3,4,2]", "", "dimensions={2,0,1}"), ("E[3,5]", "", "dimensions={1,0}")),
    "reverse": _ways("reverse", ("E[3,4]", "", "dimensions={1}"), ("E[7]", "", "dimensions={0}")),
    "concatenate": _ways(
        "concatenate", ("E[2,3] E[2,4]", "", "dimensions={1}"), ("E[2] E[0] E[3]", "", "dimensions={0}")
    ),
    "slice": _ways("slice", ("E[6,5]", "", "slice={[1:5:2], [0:4]}"), ("E[9]", "", "slice={[2:7]}")),
    "pad": _ways("pad", ("E[3,4] E[]", "", "padding=1_2x0_-1_1"), ("E[5] E[]", "", "padding=-1_2")),
    "dynamic-slice": _ways(
        "dynamic-slice",
        (f"E[6,5] {_STARTS}", "", "dynamic_slice_sizes={2,5}"),
        ("E[9] s64[]", "", "dynamic_slice_sizes={3}"),
    ),
    "dynamic-update-slice": _ways(
        "dynamic-update-slice", (f"E[6,5] E[2,3] {_STARTS}", "", ""), ("E[9] E[4] u8[]", "", "")
    ),
    "gather": _ways("gather", ("E[6,5] s32[4,1]", "", _GATHER), ("E[7,5] u8[2,1]", "", _GATHER)),
    "select": _ways("select", ("pred[3,4] E[3,4] E[3,4]", "", ""), ("pred[] E[7] E[7]", "", "")),
    "copy": _ways("copy", ("E[3,5]", "", ""), ("E[]", "", "")),
    "iota": _ways("iota", ("", "E[2]", "iota_dimension=0"), ("", "E[3,2]", "iota_dimension=1")),
    "compare": tuple(
        one("compare", "E[40] E[40]", f"direction={d}", inputs="special") for d in ("NE", "LT", "GT, type=TOTALORDER")
    ),
    "clamp": (one("clamp", "E[40] E[40] E[40]", inputs="special"), one("clamp", "E[] E[7,5] E[]")),
    "constant": (
        whole("", "ROOT c = E[2] constant(LIST)"),
        whole("", "c = E[2] constant(LIST)", "x = E[3] parameter(0)", "ROOT r = tuple(c, x)"),
    ),
    "parameter": (whole("", "ROOT x = E[3] parameter(0)"), whole("", "ROOT x = (E[], (E[2,3])) parameter(0)")),
    "tuple": (one("tuple", "E[3] s32[] E[2,2]"), one("tuple", "E[]")),
    "get-tuple-element": (
        one("get-tuple-element", "(s32[],E[3])", "index=1"),
        one("get-tuple-element", "(E[2,2],E[])", "index=0"),
    ),
    "opt-barrier": (one("opt-barrier", "E[3]"), one("opt-barrier", "(E[2,2],s32[])")),
    "add-dependency": (
        whole("", "x = E[3] parameter(0)", "t = after-all()", "ROOT r = add-dependency(x, t)"),
        whole("", "x = E[2,2] parameter(0)", "t = after-all()", "u = after-all(t, t)", "ROOT r = add-dependency(x, u)"),
    ),
    "domain": (one("domain", "E[6]", _DOMAIN), one("domain", "E[2,2]", _DOMAIN)),
    "get-dimension-size": (
        one("get-dimension-size", "E[4,5]", "dimensions={1}"),
        one("get-dimension-size", "E[3]", "dimensions={0}"),
    ),
    "set-dimension-size": (
        whole(
            "",
            "x = E[4,3] parameter(0)",
            "n = s32[] constant(2)",
            "d = E[<=4,3] set-dimension-size(x, n), dimensions={0}",
            "y = E[3,<=4] transpose(d), dimensions={1,0}",
            "ROOT r = get-dimension-size(y), dimensions={1}",
        ),
        whole(
            _SUM,
            "x = E[8,3] parameter(0)",
            "n = s32[] constant(5)",
            "z = E[] constant(ZERO)",
            "d = E[<=8,3] set-dimension-size(x, n), dimensions={0}",
            "ROOT r = reduce(d, z), dimensions={0}, to_apply=f",
            inputs=_SUMMED,
        ),
    ),
    "dynamic-reshape": (
        whole(
            "",
            "x = E[6,4] parameter(0)",
            "n = s32[] constant(24)",
            "d = E[<=24] dynamic-reshape(x, n)",
            "ROOT r = get-dimension-size(d), dimensions={0}",
        ),
        whole(
            _SUM,
            "x = E[3,4] parameter(0)",
            "n = s32[] constant(12)",
            "z = E[] constant(ZERO)",
            "d = E[<=12] dynamic-reshape(x, n)",
            "ROOT r = reduce(d, z), dimensions={0}, to_apply=f",
            inputs=_SUMMED,
        ),
    ),
    "bitcast": (one("bitcast", "E[4,6]", "", "E[24]"), one("bitcast", "E[3]", "", "E[1,3]")),
    "bitcast-convert": (
        one("bitcast-convert", "E[40]", "", "B[40]", "special"),
        one("bitcast-convert", "B[40]", "", "E[40]", "special"),
    ),
    "convert": tuple(
        one("convert", f"{a}[40]", "", f"{b}[40]", "special")
        # Not to integers: XLA takes the greatest f4e2m1fn for infinity there.
        for a, b in (("E", "f32"), ("f32", "E"), ("E", "bf16"), ("s32", "E"))
    ),
}
