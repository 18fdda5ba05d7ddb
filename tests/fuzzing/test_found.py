"""What fuzzing found, made small: each input goes as far now as it should, or is refused with the right words."""

from __future__ import annotations

import hloom
import pytest
from fuzz import Crash, attempt
from fuzzing.programs import entry
from fuzzing.targets import TARGETS

X = "x = f32[8] parameter(0)"
PARTS = (
    "f { p = f32[8] parameter(0) ROOT n = f32[8] negate(p) }\n"
    "g { p = f32[8] parameter(0) ROOT c = f32[8] copy(p) }\n"
)

# What it is: the target, the input, and how far it comes.
FOUND: dict[str, tuple[str, str, str]] = {
    "names of parameters repeat": (
        "text", entry("p = f32[8] parameter(0)", "c = f32[8] call(p), to_apply=f",
                      "ROOT d = f32[8] call(c), to_apply=g", before=PARTS), "serialized",
    ),
    "token of another order of devices": (
        "sweep", entry("t = token[] parameter(0)", "x = f32[3] parameter(1), sharding={mesh['x'=2,'y'=4], "
                       "device_ids=(1,5,7,0,4,6,2,3), [{'y'}], manual={'x'}}",
                       "ROOT r = token[] outfeed(x, t), outfeed_shape=f32[3]"), "partitioned",
    ),
    "axis named by a space": (
        "sweep", entry("ROOT x = f32[8] parameter(0), sharding={mesh[' '=8], [{' '}]}"), "partitioned",
    ),
    "least elements": ("text", entry(X, "ROOT r = (f32[1], s32[1]) topk(x), k=1, largest=false"), "serialized"),
    "numbers that are no f32": (
        "text", entry("x = f32[2,3] parameter(0)", "s = f32[3] parameter(1)",
                      "ROOT r = f32[2,3] batch-norm-inference(x, s, s, s, s), epsilon=4294967296, feature_index=1"),
        "serialized",
    ),
    "shardings of a border without values": (
        "sweep", entry(
            X, 'l = f32[4] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={'
            'xla.sdy.in_shardings="#sdy.sharding_per_value<[<mesh<[\\"x\\"=2]>, [{\\"x\\"}]>]>",'
            'xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>"}', "n = () tuple()",
            'ROOT g = () custom-call(n), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={'
            'xla.sdy.out_shardings="#sdy.sharding_per_value<[<mesh<[\\"x\\"=2]>, [{\\"x\\"}]>]>",'
            'xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>"}'), "parsed",
    ),
    "initial value of a narrower type in cumulative windows": (
        "sweep", entry("x = f32[3,256] parameter(0), sharding={devices=[4,1]<=[4]}", "i = f6e3m2fn[] constant(-2)",
                       "ROOT y = f32[3,256] reduce-window(x, i), window={size=64x1 pad=0_63x0_0}, to_apply=max, "
                       "sharding={devices=[4,1]<=[4]}",
                       before="max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }\n"),
        "partitioned",
    ),
    "padding beyond 64 bits": (
        "sweep", entry("x = f8e8m0fnu[1,9223372036854775807] parameter(0), sharding={devices=[8,1]<=[8]}",
                       "s = ((f8e8m0fnu[1,9223372036854775807]), f8e8m0fnu[1,9223372036854775807], u32[]) "
                       "copy-start(x), sharding={replicated}",
                       "ROOT y = f8e8m0fnu[1,9223372036854775807] copy-done(s)"), "parsed",
    ),
    "domain that names the exit first": (
        "sweep", entry(X, 'ROOT r = f32[8] domain(x), domain={kind="sharding", exit={replicated}, '
                       "entry={devices=[2]0,1}}"), "partitioned",
    ),
    "channel 0": (
        "text", entry("t = token[] parameter(0)", "x = f32[3] parameter(1)",
                      "s = (f32[3], u32[], token[]) send(x, t), channel_id=0",
                      "ROOT d = token[] send-done(s), channel_id=0"), "serialized",
    ),
    "negative device": (
        "text", entry(X, "ROOT r = f32[8] collective-permute(x), source_target_pairs={{0,-1}}"), "serialized",
    ),
    "computation with the name of a type": (
        "text", "HloModule s4\n%f16 { ROOT x = f32[] parameter(0) }\n"
                "ENTRY pred { x = f32[] parameter(0) ROOT r = f32[] call(x), to_apply=f16 }", "serialized",
    ),
    "calls of a done alone": (
        "text", entry(X, "s = ((f32[8]), f32[8], s32[]) async-start(x), calls=g",
                      "ROOT d = f32[8] async-done(s), calls=g", before=PARTS.replace("copy(p)", "add(p, p)")),
        "serialized",
    ),
    "keys that are no words": (
        "text", 'HloModule m, frontend_attributes={""="a","{}\\""={b}}\n' + entry(X).partition("\n")[2], "serialized",
    ),
    "custom-call of no version": (
        "text", entry(X, 'ROOT r = f32[8] custom-call(x), custom_call_target="t", api_version=API_VERSION_UNSPECIFIED'),
        "serialized",
    ),
    "sizes of an empty array": ("pipeline", entry("ROOT x = f8e4m3fnuz[0,9223372036854775807] parameter(0)"),
                                "partitioned"),
    "memory space 0": ("text", entry("ROOT x = f32[8]{0:T(8)L(1)E(0)S(0)} parameter(0)"), "serialized"),
    "copy of a tuple": ("sweep", entry("x = (f32[8], (s32[8,2], token[])) parameter(0)",
                                       "ROOT c = (f32[8], (s32[8,2], token[])) copy(x)"), "partitioned"),
    "copy of nothing": ("sweep", entry("x = () parameter(0)", "ROOT c = () copy(x)"), "partitioned"),
    "two dones of a start": (
        "sweep", entry(X, "s = (f32[8], f32[8], u32[]) copy-start(x)", "d = f32[8] copy-done(s)",
                       "c = f32[8] copy-done(s)", "ROOT r = f32[8] add(c, d)"), "partitioned",
    ),
    "two updates of a start": (
        "sweep", entry(X, 's = ((f32[8]), f32[8]) custom-call-start(x), custom_call_target="t"',
                       "u = ((f32[8]), f32[8]) custom-call-update(s)", "v = ((f32[8]), f32[8]) custom-call-update(s)",
                       "d = f32[8] custom-call-done(v)", "ROOT r = f32[8] custom-call-done(u)"), "partitioned",
    ),
    "start that is the result": (
        "sweep", entry(X, "ROOT s = ((f32[8]), f32[8], (u32[], token[], s8[3])) call-start(x), to_apply=f",
                       before=PARTS), "partitioned",
    ),
    "done in another spelling": (
        "sweep", entry(X, "s = ((f32[8]), f32[8]) negate-start(x)", "u = ((f32[8]), f32[8]) async-update(s)",
                       "ROOT d = f32[8] async-done(u)"), "partitioned",
    ),
    "exchange of several operands in a region": (
        "sweep", entry("x = f32[8,6] parameter(0), sharding={replicated}",
                       "y = f32[8,6] parameter(1), sharding={devices=[1,4,2]<=[8] last_tile_dims={manual}}",
                       "ROOT r = (f32[8,6], f32[8,6]) all-to-all(x, y), replica_groups={{0,1},{2,3},{4,5},{6,7}}"),
        "partitioned",
    ),
    "start of an element": (
        "sweep", entry("x = (f32[8], s32[3]) parameter(0), sharding={{replicated}, {devices=[4]<=[4]}}",
                       "ROOT s = (((f32[8], s32[3])), f32[8]) get-tuple-element-start(x), index=0"), "partitioned",
    ),
    "start of a computation of one op": (
        "sweep", entry(X, "s = ((f32[8]), f32[8], s32[]) async-start(x), calls=f",
                       "ROOT d = f32[8] async-done(s), calls=f", before=PARTS), "partitioned",
    ),
    "bits that no literal holds": (
        "sweep", entry("x = u1[7,5] parameter(0), sharding={devices=[4,1]<=[4]}", "y = u1[] parameter(1)",
                       "c = u1[7,5] copy(x), sharding={devices=[1,4]<=[4]}", "i = s32[] parameter(2)",
                       "s = u1[7,5] sort(x), dimensions={0}, to_apply=lt",
                       "d = u1[2,5] dynamic-slice(s, i, i), dynamic_slice_sizes={2,5}",
                       "m = u1[5] reduce(x, y), dimensions={0}, to_apply=most",
                       "ROOT r = (u1[7,5], u1[2,5], u1[5]) tuple(c, d, m)",
                       before="most { a = u1[] parameter(0) b = u1[] parameter(1) ROOT c = u1[] maximum(a, b) }\n"
                              "lt { a = u1[] parameter(0) b = u1[] parameter(1) "
                              "ROOT c = pred[] compare(a, b), direction=LT }\n"), "partitioned",
    ),
    "shape of what lies in memory": ("sweep", entry("ROOT x = f32[2]{0:P((f32[2]{0:T(8)(2)}, u32[]))} parameter(0)"),
                                     "partitioned"),
    "number of a table beyond 32 bits": (
        "text", "HloModule m\n\nFileNames\n1 \"a\"\n\nFunctionNames\n1 \"f\"\n\nFileLocations\n"
                "1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=0 end_column=1000000000000}\n\n"
                "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\n" + entry(X).partition("\n")[2],
        "not serialized",
    ),
    "nested infeed": (
        "pipeline", entry("t = token[] parameter(0), sharding={replicated}",
                          "ROOT r = ((f32[3], pred[]), token[]) infeed(t)"), "partitioned",
    ),
}  # fmt: skip

# The program, and what is said about it.
REFUSED: dict[str, tuple[str, str]] = {
    "pairs of a manual region that name no device": (
        "HloModule m, num_partitions=2\nENTRY e { x = s32[] parameter(0), sharding={manual}\n"
        "  ROOT r = s32[] collective-permute(x), source_target_pairs={{0,7}}, sharding={manual} }",
        "3:8: error: collective-permute r: source-target pairs name device 7, the module has 2",
    ),
    "bits beyond 32": (
        entry(X, "ROOT r = f32[8] reduce-precision(x), exponent_bits=4294967297, mantissa_bits=1"), "fit 32 bits",
    ),
    "integer beyond 64 bits": (
        entry(X, "ROOT r = f32[8] reduce-precision(x), exponent_bits=99999999999999999999, mantissa_bits=1"),
        "does not fit 64 bits",
    ),
    "domain": (
        entry(X, 'ROOT r = f32[8] domain(x), domain={kind="sharding", entry={devices=[2]0,1},{}exit={}}'),
        "expected",
    ),
    "single instruction that takes itself": ("x = f32[] copy(x)", "instruction 'x' is its own operand"),
    "devices of a mesh": (
        entry("ROOT x = f32[8] parameter(0), sharding={mesh['x'=3], device_ids=(2,0,3), [{'x'}]}"),
        "the mesh has 3 places, the list device 3",
    ),
    "places beyond s32": (
        entry("x = f64[2147483648] parameter(0), sharding={devices=[8]<=[8]}",
              "ROOT r = f64[2147483648] sort(x), dimensions={0}, to_apply=lt",
              before="lt { a = f64[] parameter(0) b = f64[] parameter(1) ROOT r = compare(a, b), direction=LT }\n"),
        "s32",
    ),
    "layout that names a dimension twice": (
        entry("ROOT x = f32[2,3]{0,0:T(2)} parameter(0)"), "names a dimension twice",
    ),
    "negative dimension of a layout": (entry("ROOT x = f32[2,3]{-1,0} parameter(0)"), "layout names dimension -1"),
    "garbage in a layout": (entry("ROOT x = f32[2]{0:P(#)} parameter(0)"), "shape expected"),
    "parts of nothing": (
        entry("x = f32[0,3] parameter(0)",
              "ROOT r = f32[4,3] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=add",
              before="add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"),
        "changes from 0 to 4, which is not a multiple",
    ),
    "done of no start, converted": (
        entry("x = bf16[8] parameter(0)", "ROOT r = f32[8] all-reduce-done(x)"), "must be its all-reduce-start",
    ),
    "groups of more devices than there are": (
        entry("x = f32[8] parameter(0), sharding={manual}",
              "ROOT r = f32[32] all-gather(x), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}, "
              "use_global_device_ids=true", header=", num_partitions=4"), "are over 8 devices, the module has 4",
    ),
    "barrier that converts": (
        entry("x = bf16[8] parameter(0)", "t = (bf16[8]) tuple(x)", "ROOT r = (f8e5m2[8]) opt-barrier(t)"),
        "but operands give",
    ),
    "element that converts": (
        entry("x = (bf16[8]) parameter(0)", "ROOT r = f32[8] get-tuple-element(x), index=0"), "but operands give",
    ),
    "start of a bitcast to another size": (
        entry("x = bf16[9,32] parameter(0)", "s = ((bf16[9,32]), f8e4m3[9,32], s32[]) bitcast-start(x)",
              "ROOT r = f8e4m3[9,32] bitcast-done(s)"), r"bf16\[9,32\] has 4608 bits, but f8e4m3\[9,32\] has 2304",
    ),
    "start of what nothing stands for": (
        entry(X, "ROOT s = ((f32[8]), f32[8], opaque[]) abs-start(x)"), "no value can stand for its context",
    ),
    "axis with a quote": (
        entry(r"ROOT x = f32[8] parameter(0), sharding={mesh['it\'s'=8], [{'it\'s'}]}"), "has no quotes, backslashes",
    ),
    "axis without a name": (
        entry("ROOT x = f32[8] parameter(0), sharding={mesh[''=8], [{}]}"), "name of an axis is not empty",
    ),
    "tuple at the border of a region": (
        entry("x = f32[8] parameter(0)", "t = (f32[8]) tuple(x)",
              'ROOT r = (f32[4]) custom-call(t), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes='
              '{xla.sdy.in_shardings="#sdy.sharding_per_value<[<mesh<[\\"x\\"=2]>, [{\\"x\\"}]>]>",'
              'xla.sdy.manual_axes="\\"x\\""}'), "on the other side of the region's border",
    ),
    "nothing at the border of a region": (
        entry("x = f32[8] parameter(0), sharding={mesh['x'=2], [{}], manual={'x'}}", "t = () tuple()",
              "ROOT r = () custom-call(t), custom_call_target=\"SPMDShardToFullShape\", "
              "sharding={mesh['x'=2], [{'x'}]}"),
        "a manual region for 1 operands and the result",
    ),
    "devices of lists": (
        entry("x = f32[14] parameter(0), sharding={devices=[7]4,6,5,1,0,2,8}",
              "ROOT y = f32[14] negate(x), sharding={devices=[7]<=[7]}"), "sharding names device 8, the module has 7",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    target, text, reached = FOUND[name]
    result = attempt(TARGETS[target], text)
    assert not isinstance(result, Crash), result.report
    assert result == reached


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, message = REFUSED[name]
    assert attempt(TARGETS["pipeline"], text) in ("refused", "parsed", "propagated")
    with pytest.raises(hloom.CompileError, match=message):
        hloom.partition(hloom.parse(text))
