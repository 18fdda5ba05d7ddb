"""What propagation gives small programs: priorities, restrictions, groups, barriers, regions, data flow, disputes."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.factors.sharding_rule import replicated_rule
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.sharding.sharding import REPLICATED, Sharding, ShardingKind, leaf_shardings
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.pipelines import PROPAGATE
from hloom.passes.propagation.causes import trace
from hloom.passes.propagation.propagate import propagation
from hloom.passes.propagation.values import ValueGraph

HEADER = 'HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=4]>}}\n'


def sdy(body: str) -> str:
    return f'frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, {body}>"}}'.replace("'", '\\"')


def short(sharding: Sharding) -> str:
    """`[x y:(1)2, -]`, with the axes that are unreduced or manual behind it."""
    if sharding.kind is not ShardingKind.TILED:
        return str(sharding)
    dims = [" ".join(str(a).replace("'", "") for a in d.axes) or "-" for d in sharding.dims]
    marks = [f" {word}={' '.join(a.name for a in axes)}"
             for word, axes in (("unreduced", sharding.unreduced), ("manual", sharding.manual)) if axes]
    return f"[{', '.join(dims)}]{''.join(marks)}"


def shardings(text: str) -> dict[str, str]:
    """The shardings of all instructions of a program, by name; those of tuples in parentheses."""
    found: dict[str, str] = {}
    for computation in hloom.propagate(hloom.parse(text)):
        for i in computation:
            parts = [short(s) for s in leaf_shardings(i.sharding, i.shape.num_leaves) if s is not None]
            found[i.name] = f"({', '.join(parts)})" if i.shape.is_tuple else "".join(parts)
    return found


def solved(text: str) -> tuple[Module, ValueGraph]:
    module, context = hloom.parse(text), PassContext()
    run_pipeline(PROPAGATE[:-1], module, context)
    return module, propagation(module, context)


def instruction(module: Module, name: str) -> Instruction:
    return next(i for c in module for i in c if i.name == name)


def test_priorities() -> None:
    def found(a: str, b: str) -> tuple[str, str, str]:
        got = shardings(f"""{HEADER} ENTRY e {{
          a = f32[8,8] parameter(0), {sdy(a)}
          b = f32[8,8] parameter(1), {sdy(b)}
          ROOT c = f32[8,8] add(a, b)
        }}""")
        return got["a"], got["b"], got["c"]

    assert found("[{'x'}p1, {?}]", "[{?}p1, {'x'}]") == ("[x, -]", "[-, x]", "[-, x]")
    assert found("[{'x'}, {?}]", "[{?}, {'x'}p2]") == ("[x, -]", "[-, x]", "[x, -]")
    assert found("[{'x'}p1, {?}]", "[{?}, {'y'}]") == ("[x, y]", "[x, y]", "[x, y]")
    assert found("[{'x'}p1, {'y'}p2]", "[{'x'}p1, {'y'}p2]") == ("[x, y]",) * 3  # equal annotations wait on their own


def test_explicitly_replicated_axes_are_not_used() -> None:
    found = shardings(HEADER + f"""ENTRY e {{
      a = f32[8,8] parameter(0), {sdy("[{'x'}, {'y'}]")}
      b = f32[8,8] parameter(1), {sdy("[{?}, {?}], replicated={'y'}")}
      ROOT c = f32[8,8] add(a, b)
    }}""")
    assert (found["b"], found["c"]) == ("[x, -]", "[x, y]")


def test_unreduced_axes_stay_and_are_not_used() -> None:
    found = shardings(HEADER + f"""ENTRY e {{
      a = f32[8,8] parameter(0), {sdy("[{'x'}, {'y'}]")}
      b = f32[8,8] negate(a), {sdy("[{?}, {?}], unreduced={'x'}")}
      ROOT c = f32[8,8] negate(b)
    }}""")
    assert (found["b"], found["c"]) == ("[-, y] unreduced=x", "[-, y]")


def test_sums_to_be_reduced_spread_no_further_in_shardy_either() -> None:
    """Not even through ops that could run on the parts; whether they do is for the partitioner to choose."""
    pytest.importorskip("jax")
    from support import shardy_oracle

    text = HEADER + f"""ENTRY e {{
      a = f32[8,8] parameter(0), {sdy("[{'y'}, {}], unreduced={'x'}")}
      b = f32[8,8] parameter(1), {sdy("[{'y'}, {}], unreduced={'x'}")}
      c = f32[8,8] add(a, b)
      ROOT d = f32[8,8] transpose(c), dimensions={{1,0}}
    }}"""
    module, _ = shardy_oracle.prepare(text)
    theirs, ours = shardy_oracle.propagate(module), shardings(text)
    for name, expected in (("c", "[y, -]"), ("d", "[-, y]")):
        (sharding,) = theirs[name]
        assert sharding is not None
        assert short(sharding) == ours[name] == expected


@pytest.mark.parametrize("member", [
    "{side} = () custom-call({of}), custom_call_target=\"xla.sdy.ShardingGroup\", custom_call_has_side_effect=true, "
    "frontend_attributes={{xla.sdy.sharding_group_id=\"3 : i64\"}}",
    "{side} = f32[{dims}] custom-call({of}), custom_call_target=\"Sharding\", sharding={{unknown shard_as 3}}",
])  # fmt: skip
def test_groups(member: str) -> None:
    def program(dims: str) -> str:
        return HEADER + f"""ENTRY e {{
          a = f32[8,8] parameter(0), {sdy("[{'x'}, {'y'}]")}
          b = f32[{dims}] parameter(1)
          {member.format(side="ga", of="a", dims="8,8")}
          {member.format(side="gb", of="b", dims=dims)}
          ROOT t = (f32[8,8], f32[{dims}]) tuple(a, b)
        }}"""

    if "Sharding\"," in member:  # the annotated copies are the members; they have to be used
        text = program("8,8").replace("tuple(a, b)", "tuple(ga, gb)")
        assert shardings(text)["b"] == "[x, y]"
        return
    assert shardings(program("8,8"))["b"] == "[x, y]"
    with pytest.raises(hloom.CompileError, match="values of one sharding group must have the same dimensions"):
        shardings(program("4,4"))


BARRIER = HEADER + """ENTRY e {
  a = f32[8,8] parameter(0)UP
  b = f32[8,8] custom-call(a), custom_call_target=TARGET
  ROOT c = f32[8,8] negate(b)DOWN
}"""
DIRECTED = '"xla.sdy.PropagationBarrier", frontend_attributes={xla.sdy.allowed_direction="%d : i32"}'


@pytest.mark.parametrize(("target", "forward", "backward"), [
    ('"xla.sdy.PropagationBarrier"', False, False),
    (DIRECTED % 0, False, False),
    (DIRECTED % 1, True, False),
    (DIRECTED % 2, False, True),
    (DIRECTED % 3, True, True),
    ('"ShardBarrierTo"', True, False),
    ('"ShardBarrierFrom"', False, True),
])  # fmt: skip
def test_barriers(target: str, forward: bool, backward: bool) -> None:
    program, said = BARRIER.replace("TARGET", target), ", " + sdy("[{'x'}, {}]")
    down = shardings(program.replace("UP", said).replace("DOWN", ""))
    up = shardings(program.replace("DOWN", said).replace("UP", ""))
    assert (down["c"] == "[x, -]", up["a"] == "[x, -]") == (forward, backward)


def test_a_direction_must_be_a_number() -> None:
    program = BARRIER.replace("TARGET", DIRECTED.replace("%d : i32", "up") % ()).replace("UP", "").replace("DOWN", "")
    with pytest.raises(hloom.CompileError, match="allowed_direction is 'up', a number is expected"):
        shardings(program)


def test_single_devices_take_no_part() -> None:
    found = shardings("""ENTRY e {
      a = f32[8] parameter(0), sharding={mesh['x'=4], [{'x'}]}
      b = f32[8] negate(a), sharding={maximal device=2}
      ROOT c = f32[8] negate(b)
    }""")
    assert found["b"] == "{maximal device=2}"
    assert found["c"] == "[-]"


def test_meshes_with_a_common_refinement() -> None:
    found = shardings("""ENTRY e {
      a = f32[8,8] parameter(0), sharding={mesh['a'=8], [{'a':(1)4,?}, {?}]}
      b = f32[8,8] parameter(1), sharding={mesh['p'=2,'q'=4], [{'p',?}, {'q':(2)2,?}]}
      ROOT c = f32[8,8] add(a, b)
    }""")
    assert found["c"] == "[a:(1)4, a:(4)2]"


def test_the_dispute_is_decided_by_bytes_and_noted() -> None:
    program = """ENTRY e {
      x = f32[64,32] parameter(0), sharding={mesh['d'=4], [{'d'}, {}]}
      w = f32[32,16] parameter(1), sharding={mesh['d'=4], [{}, {'d'}]}
      ROOT y = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    module, graph = solved(program)
    assert str(instruction(module, "y").sharding) == "{mesh['d'=4], [{'d'}, {}]}"
    (conflict,) = graph.conflicts
    assert (conflict.via.name, conflict.lost.leaf.instruction.name, conflict.lost.dim) == ("y", "w", 1)
    assert conflict.received == 3 * 32 * 4 * 4  # three more tiles of f32[32,4]
    basic = hloom.parse(program)
    run_pipeline(parse_pipeline("propagate{strategy=basic}"), basic, PassContext())
    assert str(instruction(basic, "y").sharding) == "{mesh['d'=4], [{}, {}]}"
    with pytest.raises(hloom.CompileError, match="there is no strategy 'bold'"):
        run_pipeline(parse_pipeline("propagate{strategy=bold}"), hloom.parse(program), PassContext())


def test_the_cause_of_every_digit() -> None:
    module, graph = solved("""ENTRY e {
      a = f32[8,4] parameter(0), sharding={mesh['x'=2,'y'=2], [{'x'}, {}]}
      b = f32[4,8] parameter(1), sharding={mesh['x'=2,'y'=2], [{}, {'y'}]}
      n = f32[8,4] negate(a)
      d = f32[8,8] dot(n, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = f32[64] reshape(d)
    }""")
    (leaf,) = graph.leaves[instruction(module, "r")]
    (digits,) = leaf.dims
    ways = [[place.instruction.name for place, _, _ in trace(leaf, 0, digit)] for digit in digits]
    assert str(instruction(module, "r").sharding) == "{mesh['x'=2,'y'=2], [{'x'}]}"
    assert ways == [["r", "d", "n", "a"]]
    (d,) = graph.leaves[instruction(module, "d")]
    assert [p.instruction.name for p, _, _ in trace(d, 1, d.dims[1][0])] == ["d", "b"]


def test_boundary_flags() -> None:
    program = """HloModule m, allow_spmd_sharding_propagation_to_output={FLAGS}
    ENTRY e {
      a = f32[8] parameter(0), sharding={mesh['x'=4], [{'x'}]}
      b = f32[8] negate(a)
      c = f32[8] tanh(a)
      ROOT t = (f32[8], f32[8]) tuple(b, c)
    }"""
    assert shardings(program.replace("FLAGS", "true"))["t"] == "([x], [x])"
    assert shardings(program.replace("FLAGS", "false,true"))["t"] == "([-], [x])"


def test_data_flow() -> None:
    found = shardings("""
    yes { p = (f32[8], f32[8]) parameter(0)
      u = f32[8] get-tuple-element(p), index=0
      ROOT n = f32[8] negate(u) }
    no { q = (f32[8], f32[8]) parameter(0)
      ROOT v = f32[8] get-tuple-element(q), index=1 }
    twice { z = f32[8] parameter(0)
      ROOT s = f32[8] add(z, z) }
    ENTRY e {
      c = pred[] parameter(0)
      a = f32[8] parameter(1), sharding={mesh['x'=4], [{'x'}]}
      b = f32[8] parameter(2)
      t = (f32[8], f32[8]) tuple(a, b)
      o = (f32[8], f32[8]) opt-barrier(t)
      i = f32[8] conditional(c, o, o), true_computation=yes, false_computation=no
      ROOT r = f32[8] call(i), to_apply=twice
    }""")
    assert found["o"] == "([x], [x])"  # the second through the other branch
    assert (found["i"], found["b"], found["s"]) == ("[x]", "[x]", "[x]")


def test_axes_travel_along_dimensions_that_exchange() -> None:
    found = shardings("""ENTRY e {
      a = f32[8,6] parameter(0), sharding={mesh['x'=2], [{'x'}, {}]}
      b = f32[8,6] parameter(1), sharding={mesh['x'=2], [{}, {'x'}]}
      s = f32[4,6] slice(a), slice={[2:6], [0:6]}
      r = f32[8,6] reverse(a), dimensions={0}
      zero = s32[] constant(0)
      one = f32[1,6] slice(b), slice={[0:1], [0:6]}
      u = f32[8,6] dynamic-update-slice(a, one, zero, zero)
      ROOT t = (f32[4,6], f32[8,6], f32[8,6], f32[1,6]) tuple(s, r, u, one)
    }""")
    assert (found["s"], found["r"], found["u"], found["one"]) == ("[x, -]", "[x, -]", "[x, -]", "[-, x]")


REGION = """HloModule m
ENTRY e {
  a = f32[8,8] parameter(0), sharding={mesh['x'=2,'y'=4], [{'y'}, {}]}
  b = f32[8,8] custom-call(a), custom_call_target="Sharding", sharding={mesh['x'=2,'y'=4], [{'y',?}, {?}]}
  c = f32[2,8] custom-call(b), custom_call_target="SPMDFullToShardShape", sharding={mesh['x'=2,'y'=4], INSIDE}
  k = f32[] constant(2)
  l = f32[2,8] broadcast(k), dimensions={}
  d = f32[2,8] multiply(c, l)
  f = f32[SIZE,8] custom-call(d), custom_call_target="SPMDShardToFullShape",
      sharding={mesh['x'=2,'y'=4], [{'y',?}, {?}]}
  ROOT g = f32[SIZE,8] negate(f), sharding={mesh['x'=2,'y'=4], [{'y'}, {'x'}]}
}"""


def test_free_axes_pass_through_a_manual_region() -> None:
    found = shardings(REGION.replace("INSIDE", "[{?}, {?}], manual={'y'}").replace("SIZE", "8"))
    assert [found[n] for n in "bcdf"] == ["[y, x]", "[-, x] manual=y", "[-, x] manual=y", "[y, x]"]
    assert found["l"] == "[-, x] manual=y"


def test_wholly_manual_regions_take_no_part() -> None:
    found = shardings(REGION.replace("INSIDE", "manual").replace("SIZE", "8"))
    assert [found[n] for n in "bcdlf"] == ["[y, -]", *["[-, -] manual=x y"] * 3, "[y, -]"]


def test_the_two_sides_of_a_manual_region_must_fit() -> None:
    with pytest.raises(hloom.CompileError, match=r"f32\[2,8\] inside do not fit its sharding by 4x1 along manual axes"):
        shardings(REGION.replace("INSIDE", "[{?}, {?}], manual={'y'}").replace("SIZE", "16"))


def test_shardy_regions() -> None:
    def per_value(key: str, *parts: str) -> str:
        body = ", ".join(f"<@mesh, {p}>" for p in parts)
        return f'xla.sdy.{key}="#sdy.sharding_per_value<[{body}]>"'.replace("'", '\\"')

    axes = 'xla.sdy.manual_axes="#sdy<manual_axes{\\"y\\"}>"'
    text = HEADER + f"""
    body {{ p = f32[2,8] parameter(0)
      q = f32[8,2] parameter(1)
      ROOT d = f32[2,2] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
    ENTRY e {{
      a = f32[8,8] parameter(0)
      b = f32[8,8] parameter(1)
      l = (f32[2,8], f32[8,2]) custom-call(a, b), custom_call_target="xla.sdy.GlobalToLocalShape",
          frontend_attributes={{{per_value("in_shardings", "[{'y', ?}, {?}]", "[{?}, {'y', ?}]")},{axes}}}
      m = f32[2,8] get-tuple-element(l), index=0
      n = f32[8,2] get-tuple-element(l), index=1
      c = f32[2,2] call(m, n), to_apply=body
      ROOT r = f32[8,2] custom-call(c), custom_call_target="xla.sdy.LocalToGlobalShape",
          frontend_attributes={{{per_value("out_shardings", "[{'y', ?}, {'x', ?}]")},{axes}}}
    }}"""
    with pytest.raises(hloom.CompileError, match="run the pass shardy-regions before propagation"):
        run_pipeline(parse_pipeline("call-inliner,propagate"), hloom.parse(text), PassContext())
    found = shardings(text)
    assert (found["d"], found["a"], found["b"], found["r"]) == ("[-, x] manual=y", "[y, -]", "[-, y x]", "[y, x]")
    assert {name for name in found if name.startswith("l.")} == {"l.a", "l.a.outside", "l.b", "l.b.outside"}


def test_an_element_of_a_tuple_may_be_annotated_otherwise_than_the_tuple() -> None:
    program = hloom.parse("""ENTRY e { x = f32[13,6] parameter(0), sharding={devices=[5,1]<=[5]}
      t = (f32[13,2], s32[13,2]) topk(x), k=2, largest=true, sharding={{devices=[5,1]<=[5]}, {devices=[5,1]<=[5]}}
      ROOT g = f32[13,2] get-tuple-element(t), index=0, sharding={replicated} }""")
    local = hloom.partition(program)
    assert str(local.module.entry.root.sharding) == "{replicated}"
    assert local.module.entry.root.shape.dims == (13, 2)
    x = np.random.default_rng(0).standard_normal((13, 6)).astype(np.float32)
    (found,) = hloom.simulate(local, [x])
    assert (found == -np.sort(-x)[:, :2]).all()


def test_rules_from_outside_steer_propagation() -> None:
    program = hloom.parse("""ENTRY e {
      a = f32[8,4] parameter(0), sharding={mesh['x'=2], [{'x'}, {}]}
      ROOT r = f32[8,4] negate(a)
    }""")

    def got(rule: Any) -> str:
        module = hloom.propagate(program, rules={"negate": rule})
        return short(next(iter(leaf_shardings(instruction(module, "r").sharding, 1))) or REPLICATED)

    assert got("([i j]) -> [i j]") == "[x, -]"
    assert got("([i k]) -> [j k]") == "[-, -]"
    assert got("([i]) -> [i]") == "[x, -]"  # it does not fit: the op's own rule
    assert got(lambda call: replicated_rule(call.operands, (call.shape,))) == "[-, -]"  # pyright: ignore
    assert got(lambda call: None) == "[x, -]"  # pyright: ignore
    with pytest.raises(hloom.CompileError, match="the sharding rule given for negate"):
        got("([i j) -> [i j]")
    with pytest.raises(hloom.CompileError, match="given for negate does not fit: rule has 0 operands, op has 1"):
        got(lambda call: replicated_rule((), (call.shape,)))  # pyright: ignore
    with pytest.raises(hloom.CompileError, match=r"3:12: error: the sharding rule given for negate raised Zero"):
        got(lambda call: 1 // 0)  # pyright: ignore
    with pytest.raises(hloom.CompileError, match=r"3:12: error: the sharding rule given for negate is a str, not a"):
        got(lambda call: "([i j]) -> [i j]")  # pyright: ignore


def test_gspmd_regions_with_free_axes() -> None:
    within = "sharding={devices=[1,1,4,2]<=[2,4]T(1,0) last_tile_dims={manual,replicated}}"
    outside = "sharding={devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
    opened = 'backend_config="unspecified_dims=[0,1]"'
    found = shardings(f"""HloModule m
    ENTRY e {{
      a = f32[8,8] parameter(0), {outside}
      b = f32[8,8] custom-call(a), custom_call_target="Sharding", {outside}, {opened}
      c = f32[2,8] custom-call(b), custom_call_target="SPMDFullToShardShape", {within}, {opened}
      d = f32[2,8] negate(c)
      f = f32[8,8] custom-call(d), custom_call_target="SPMDShardToFullShape", {outside}, {opened}
      ROOT g = f32[8,8] negate(f), sharding={{devices=[4,2]<=[2,4]T(1,0)}}
    }}""")
    assert [found[n] for n in "abcdf"] == [
        "[axis_1, -]", "[axis_1, axis_0]", "[-, axis_0] manual=axis_1", "[-, axis_0] manual=axis_1", "[axis_1, axis_0]"
    ]  # fmt: skip


def test_regions_within_regions() -> None:
    def border(name: str, operand: str, dims: str, target: str, sharding: str) -> str:
        mesh = "mesh['x'=2,'y'=4]"
        return (f'{name} = f32[{dims}] custom-call({operand}), custom_call_target="{target}", '
                f"sharding={{{mesh}, {sharding}}}\n")

    found = shardings("ENTRY e {\n a = f32[8,8] parameter(0)\n"
                      + border("b", "a", "8,8", "Sharding", "[{'x',?}, {?}]")
                      + border("c", "b", "4,8", "SPMDFullToShardShape", "[{?}, {?}], manual={'x'}")
                      + border("d", "c", "4,8", "Sharding", "[{?}, {'y',?}]")
                      + border("f", "d", "4,2", "SPMDFullToShardShape", "[{?}, {?}], manual={'y'}")
                      + "g = f32[4,2] negate(f)\n"
                      + border("h", "g", "4,8", "SPMDShardToFullShape", "[{?}, {'y',?}]")
                      + "i = f32[4,8] negate(h)\n"
                      + border("j", "i", "8,8", "SPMDShardToFullShape", "[{'x',?}, {?}]")
                      + "ROOT r = f32[8,8] negate(j)\n}")  # fmt: skip
    assert [found[n] for n in "acdfghijr"] == [
        "[x, y]", "[-, y] manual=x", "[-, y] manual=x", "[-, -] manual=x y", "[-, -] manual=x y",
        "[-, y] manual=x", "[-, y] manual=x", "[x, y]", "[x, y]",
    ]  # fmt: skip
