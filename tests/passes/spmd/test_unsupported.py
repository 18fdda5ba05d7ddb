"""What partitioning refuses (effects, dynamic dimensions, exchange along manual axes), with places; tokens, which it
does not.
"""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.runtime import evaluate, simulate

HEAD = "HloModule m, num_partitions=4\n"
X = "  x = f32[10] parameter(0), sharding={devices=[4]<=[4]}\n  t = token[] after-all()\n"


def _entry(*lines: str) -> str:
    return HEAD + "ENTRY e {\n" + X + "".join(f"  {line}\n" for line in lines) + "}\n"


_WORD = "has an effect outside the program, and cannot be partitioned"
REFUSED = {
    "infeed": (_entry("i = (f32[10], token[]) infeed(t)", "y = f32[10] get-tuple-element(i), index=0",
                      "ROOT r = f32[10] add(x, y)"), [f"5:3: error: infeed i {_WORD}"]),
    "outfeed": (_entry("o = token[] outfeed(x, t), outfeed_shape=f32[10]", "ROOT r = f32[10] negate(x)"),
                [f"5:3: error: outfeed o {_WORD}"]),
    "send": (_entry("s = (f32[10], u32[], token[]) send(x, t), channel_id=1",
                    "d = token[] send-done(s), channel_id=1", "ROOT r = f32[10] negate(x)"),
             [f"5:3: error: send s {_WORD}"]),
    "recv": (_entry("s = (f32[10], u32[], token[]) recv(t), channel_id=1",
                    "d = (f32[10], token[]) recv-done(s), channel_id=1", "y = f32[10] get-tuple-element(d), index=0",
                    "ROOT r = f32[10] add(x, y)"), [f"5:3: error: recv s {_WORD}"]),
    "two custom-calls": (
        _entry('c = () custom-call(x), custom_call_target="print", custom_call_has_side_effect=true',
               'd = (f32[10], token[]) custom-call(x, t), custom_call_target="log", custom_call_has_side_effect=true',
               "ROOT r = f32[10] negate(x)"),
        [f'5:3: error: custom-call c ("print") {_WORD}', f'6:3: error: custom-call d ("log") {_WORD}']),
    "within a loop": (
        HEAD + """c { p = (s32[], token[]) parameter(0) ROOT r = pred[] constant(false) }
b { p = (s32[], token[]) parameter(0) t = token[] get-tuple-element(p), index=1
  ROOT i = (s32[], token[]) infeed(t) }
ENTRY e { x = s32[] parameter(0) t = token[] after-all() i = (s32[], token[]) tuple(x, t)
  w = (s32[], token[]) while(i), condition=c, body=b ROOT r = s32[] get-tuple-element(w), index=0 }
""", [f"4:8: error: infeed i {_WORD}"]),
    "dynamic parameter": (
        HEAD + "ENTRY e { x = f32[<=8,4] parameter(0), sharding={devices=[4,1]<=[4]} ROOT y = f32[<=8,4] negate(x) }",
        ["2:11: error: parameter x has a dynamic dimension, which cannot be partitioned"]),
    "dynamic value in a loop": (
        HEAD + """c { p = (s32[], f32[<=10]) parameter(0) ROOT r = pred[] constant(false) }
b { ROOT p = (s32[], f32[<=10]) parameter(0) }
ENTRY e { x = f32[10] parameter(0), sharding={devices=[4]<=[4]} z = s32[] constant(3)
  d = f32[<=10] set-dimension-size(x, z), dimensions={0} i = (s32[], f32[<=10]) tuple(z, d)
  w = (s32[], f32[<=10]) while(i), condition=c, body=b ROOT r = s32[] get-tuple-element(w), index=0 }
""", ["5:3: error: set-dimension-size d has a dynamic dimension, which cannot be partitioned"]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_with_place(name: str) -> None:
    text, messages = REFUSED[name]
    with pytest.raises(CompileError) as caught:
        hloom.partition(hloom.parse(text))
    found = [line.split(":", 1)[1] for line in str(caught.value).splitlines() if ": error: " in line]
    assert found == messages
    assert all(d.help for d in caught.value.diagnostics)


MESH = "mesh['x'=2,'y'=2]"


@pytest.mark.parametrize(
    ("operand", "result", "what"),
    [("{'y'}, {}", "{'x'}, {}], manual={'y'}", "operand"), ("{'x'}, {}], manual={'y'}", "{'y'}, {}", "result"),
     ("{}, {}], manual={'x'}", "{}, {}], manual={'y'}", "result")],
)  # fmt: skip
def test_nothing_moves_along_manual_axes(operand: str, result: str, what: str) -> None:
    first, second = (f"{{{MESH}, [{s if 'manual' in s else s + ']'}}}" for s in (operand, result))
    text = (f"HloModule m\nENTRY e {{\n  x = f32[8,8] parameter(0), sharding={first}\n"
            f"  ROOT r = f32[8,8] negate(x), sharding={second}\n}}\n")  # fmt: skip
    with pytest.raises(CompileError, match=f"4:8: error: {what} of negate r: data would have to move between devices"):
        hloom.partition(hloom.parse(text))


@pytest.mark.parametrize("sharding", ["{devices=[4]<=[4]}", "{unreduced}"])
def test_axes_of_a_region_are_taken_in_it(sharding: str) -> None:
    text = f"""HloModule m, num_partitions=4
ENTRY e {{
  x = f32[8] parameter(0), sharding={{devices=[4]<=[4]}}
  a = f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={{manual}}
  b = f32[2] negate(a), sharding={sharding}
  ROOT r = f32[8] custom-call(b), custom_call_target="SPMDShardToFullShape", sharding={{devices=[4]<=[4]}}
}}
"""
    with pytest.raises(CompileError, match="5:3: error: b is divided or summed along axes of the manual region"):
        hloom.partition(hloom.parse(text))


def test_tuples_of_effects_in_manual_regions() -> None:
    """A context stays one operand, and its parts have nothing to do with what comes out."""
    text = f"""HloModule m
ENTRY e {{
  x = f32[8] parameter(0), sharding={{{MESH}, [{{}}], manual={{'x','y'}}}}
  t = token[] parameter(1)
  s = (f32[8], u32[], token[]) send(x, t), channel_id=1
  d = token[] send-done(s), channel_id=1, sharding={{{MESH}, [], manual={{'x','y'}}}}
  p = (f32[8], f32[8]) tuple(x, x)
  ROOT o = token[] outfeed(p, d), outfeed_shape=(f32[8], f32[8]), sharding={{{MESH}, [], manual={{'x','y'}}}}
}}
"""
    local = hloom.partition(hloom.parse(text))
    hloom.verify(local)
    opcodes = [i.opcode for i in local.entry]
    assert [o for o in opcodes if o in ("send", "send-done", "outfeed")] == ["send", "send-done", "outfeed"]


def test_effects_on_one_device() -> None:
    """One device runs the program as it is."""
    text = REFUSED["outfeed"][0].replace("num_partitions=4", "num_partitions=1").replace("[4]<=[4]", "[1]<=[1]")
    assert "outfeed(" in hloom.partition(hloom.parse(text)).to_text()


def test_effects_of_targets_with_a_rule() -> None:
    """Who gives a target a rule says that devices may run it on their tiles."""
    hloom.custom_call("test.unsupported.note", rule="([i]) -> [i]")(lambda x: -x)  # pyright: ignore
    text = _entry('ROOT c = f32[10] custom-call(x), custom_call_target="test.unsupported.note", '
                  "custom_call_has_side_effect=true")
    assert "f32[3] custom-call(" in hloom.partition(hloom.parse(text)).to_text()


TOKENS = {
    "barrier": _entry("i = (f32[10], token[]) tuple(x, t)", "w = (f32[10], token[]) opt-barrier(i)",
                      "y = f32[10] get-tuple-element(w), index=0", "u = token[] get-tuple-element(w), index=1",
                      "v = token[] after-all(u, t)", "n = f32[10] negate(y)", "ROOT r = f32[10] add-dependency(n, v)"),
    "loop": HEAD + """
c { p = (s32[], token[], f32[10]) parameter(0) n = s32[] get-tuple-element(p), index=0
  k = s32[] constant(2) ROOT r = pred[] compare(n, k), direction=LT }
b { p = (s32[], token[], f32[10]) parameter(0) n = s32[] get-tuple-element(p), index=0
  t = token[] get-tuple-element(p), index=1 x = f32[10] get-tuple-element(p), index=2
  o = s32[] constant(1) u = token[] after-all(t) y = f32[10] add-dependency(x, u) z = f32[10] add(y, x)
  a = s32[] add(n, o) ROOT r = (s32[], token[], f32[10]) tuple(a, u, z) }
ENTRY e {""" + "\n" + X + """  z = s32[] constant(0)
  i = (s32[], token[], f32[10]) tuple(z, t, x)
  w = (s32[], token[], f32[10]) while(i), condition=c, body=b
  ROOT r = f32[10] get-tuple-element(w), index=2
}""",
    "branches": HEAD + """
f { p = (f32[10], token[]) parameter(0) x = f32[10] get-tuple-element(p), index=0
  t = token[] get-tuple-element(p), index=1 n = f32[10] negate(x) ROOT r = (f32[10], token[]) tuple(n, t) }
g { p = (f32[10], token[]) parameter(0) x = f32[10] get-tuple-element(p), index=0
  t = token[] after-all() n = f32[10] abs(x) ROOT r = (f32[10], token[]) tuple(n, t) }
ENTRY e {""" + "\n" + X + """  q = pred[] constant(true)
  i = (f32[10], token[]) tuple(x, t)
  w = (f32[10], token[]) conditional(q, i, i), true_computation=f, false_computation=g
  y = f32[10] get-tuple-element(w), index=0
  u = token[] get-tuple-element(w), index=1
  ROOT r = f32[10] add-dependency(y, u)
}""",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TOKENS))
def test_tokens(name: str) -> None:
    """Tokens pass through everything, on tiles of three of ten elements."""
    module = hloom.parse(TOKENS[name])
    inputs = [np.arange(10, dtype=np.float32) - 4]
    local = hloom.partition(module)
    assert local.entry.parameters[0].shape.dims == (3,)
    for ours, expected in zip(simulate(local, inputs, poison=True), evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_aliases_and_donors_stay() -> None:
    text = HEAD.replace("=4", "=4, input_output_alias={ {0}: (0, {}, may-alias) }, buffer_donor={ (1, {}) }") + """
ENTRY e {
  x = f32[10] parameter(0), sharding={devices=[4]<=[4]}
  y = f32[10] parameter(1), sharding={devices=[4]<=[4]}
  z = f32[10] add(x, y), sharding={devices=[4]<=[4]}
  ROOT r = (f32[10], f32[10]) tuple(z, y)
}"""
    printed = hloom.partition(hloom.parse(text)).to_text()
    assert "input_output_alias={ {0}: (0, {}, may-alias) }, buffer_donor={ (1, {}) }" in printed


def test_nothing_without_a_zero_is_unreduced() -> None:
    x = "x = f8e8m0fnu[8] parameter(0), sharding={mesh['a'=4], [{}], unreduced={'a'}}"
    text = f"HloModule m\nENTRY e {{\n  {x}\n  ROOT r = f32[8] convert(x)\n}}\n"
    with pytest.raises(CompileError, match="3:3: error: f8e8m0fnu has no zero, so that x cannot be unreduced"):
        hloom.partition(hloom.parse(text))


@pytest.mark.parametrize(("size", "op"), [(12, "concatenate(x, u), dimensions={0}"),
                                          (10, "dynamic-update-slice(x, u, i)")])  # fmt: skip
def test_mixed_precision_is_written_out_before(size: int, op: str) -> None:
    """The pipeline does so; a pass by itself says what it needs, where its form of an op would not fit."""
    text = _entry("u = bf16[2] parameter(1)", "i = s32[] parameter(2)",
                  f"ROOT r = f64[{size}] {op}, sharding={{devices=[4]<=[4]}}")  # fmt: skip
    with pytest.raises(CompileError, match=f"7:8: error: pass spmd-partition cannot divide {op[:3]}") as error:
        hloom.run_passes(hloom.parse(text), "propagate,spmd-partition")
    assert error.value.diagnostics[0].help == "run pass uniform-precision before it"
    assert hloom.run_passes(hloom.parse(text), "uniform-precision,propagate,spmd-partition").stage is hloom.Stage.LOCAL
