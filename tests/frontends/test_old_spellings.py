"""Spellings that XLA's parser takes beside the usual ones: each means the usual one, on the whole way of a program."""

from __future__ import annotations

from dataclasses import dataclass

import hloom
import numpy as np
import pytest
from hloom.frontends.proto import read_module
from hloom.ir.tools.difference import differences
from hloom.runtime.inputs.inputs import make_inputs
from ops.oracle import run_xla

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"
ADD_TUPLE = "add { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] add(a, b) ROOT t = (f32[]) tuple(s) }"
GE = "ge { c = f32[] parameter(0) d = f32[] parameter(1) ROOT p = pred[] compare(c, d), direction=GE }"
GE_TUPLE = GE.replace("ROOT p", "p").replace(" }", " ROOT t = (pred[]) tuple(p) }")
SCATTER = (
    "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
    "to_apply=add"
)
LINES = {
    "reduce": ("f32[4]", "reduce(x, z), dimensions={1}, to_apply=add"),
    "reduce-window": ("f32[4,5]", "reduce-window(x, z), window={size=1x2}, to_apply=add"),
    "scatter": ("f32[4,6]", f"scatter(x, i, u), {SCATTER}"),
    "map": ("f32[4,6]", "map(x, x), dimensions={0,1}, to_apply=add"),
    "sort": ("f32[4,6]", "sort(x), dimensions={1}, to_apply=ge"),
    "all-reduce": ("f32[4,6]", "all-reduce(x), to_apply=add"),
    "reduce-scatter": ("f32[4,6]", "reduce-scatter(x), replica_groups={{0}}, dimensions={1}, to_apply=add"),
    "select-and-scatter": (
        "f32[4,6]", "select-and-scatter(x, v, z), window={size=1x2 stride=1x2}, select=ge, scatter=add"
    ),
}  # fmt: skip


def _program(result: str, line: str, computations: str) -> str:
    return f"""HloModule m, num_partitions=2
{computations}
ENTRY e {{
  x = f32[4,6] parameter(0), sharding={{devices=[2,1]<=[2]}}
  u = f32[6] parameter(1)
  v = f32[4,3] parameter(2), sharding={{devices=[1,2]<=[2]}}
  z = f32[] constant(0)
  i = s32[1] constant({{1}})
  ROOT r = {result} {line}
}}
"""


@dataclass(frozen=True)
class Spelling:
    """A text, and the text that says the same in the usual words."""

    text: str
    usual: str


TUPLES = [
    pytest.param(Spelling(_program(declared, line, computations), _program(shape, line, f"{ADD}\n{GE}")),
                 id=f"{opcode}-{declared}-{'tuple' if computations != usual else 'plain'}")
    for opcode, (shape, line) in LINES.items()
    for usual in (f"{ADD}\n{GE}",)
    for declared in (shape, f"({shape})")
    for computations in (usual, f"{ADD_TUPLE}\n{GE_TUPLE}")
    if (declared, computations) != (shape, usual)
]  # fmt: skip


@pytest.mark.parametrize("spelling", TUPLES)
def test_a_tuple_of_one_stands_for_its_element(spelling: Spelling) -> None:
    module, usual = hloom.parse(spelling.text), hloom.parse(spelling.usual)
    text = module.to_text()
    assert hloom.parse(text).to_text() == text
    assert not differences(module, read_module(module.to_proto()))
    inputs = make_inputs([p.shape for p in module.entry.parameters])
    wanted = hloom.evaluate(usual, inputs)
    for found in (hloom.evaluate(module, inputs), hloom.simulate(hloom.partition(module), inputs)):
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    assert module.entry.root.shape.is_tuple == spelling.text.count("r = (")
    assert not any(callee.root.shape.is_tuple for i in module.entry for callee in i.called())


# XLA dies converting others of which the text declares a tuple.
BOTH = ("reduce-f32", "reduce-(", "reduce-window", "all-reduce", "scatter-f32", "map-f32", "sort-f32")


@pytest.mark.share(2)
@pytest.mark.parametrize("spelling", [p for p in TUPLES if str(p.id).startswith(BOTH)])
def test_xla_computes_the_same(spelling: Spelling) -> None:
    pytest.importorskip("jax")
    text = (
        spelling.text.replace(", num_partitions=2", "")
        .replace("sharding={devices=[2,1]<=[2]}", "")
        .replace("sharding={devices=[1,2]<=[2]}", "")
        .replace("parameter(0), ", "parameter(0)")
        .replace("parameter(2), ", "parameter(2)")
    )
    module = hloom.parse(text)
    inputs = make_inputs([p.shape for p in module.entry.parameters])
    np.testing.assert_allclose(hloom.evaluate(module, inputs)[0], run_xla(text, inputs)[0], rtol=1e-5)


def test_a_computation_that_is_also_called_keeps_its_tuple() -> None:
    text = f"""{ADD_TUPLE}
      ENTRY e {{ x = f32[4,6] parameter(0) z = f32[] constant(0)
        c = (f32[]) call(z, z), to_apply=add g = f32[] get-tuple-element(c), index=0
        ROOT r = f32[4] reduce(x, g), dimensions={{1}}, to_apply=add }}"""
    module = hloom.parse(text)
    assert [c.name for c in module.computations] == ["add", "add.1", "e"]
    assert hloom.parse(module.to_text()).to_text() == module.to_text()
    assert hloom.evaluate(module, [np.ones((4, 6), np.float32)])[0].tolist() == [6.0] * 4


def test_computations_written_in_place_lose_their_tuple_too() -> None:
    inside = ADD_TUPLE.removeprefix("add ")
    module = hloom.parse(f"""ENTRY e {{ x = f32[4,6] parameter(0) z = f32[] constant(0)
      ROOT r = f32[4] reduce(x, z), dimensions={{1}}, to_apply={inside} }}""")
    assert len(module.computations) == 2
    assert hloom.evaluate(module, [np.ones((4, 6), np.float32)])[0].tolist() == [6.0] * 4


STARTS = [
    ("(f32[4], f32[4])", "x", "f32[4]"),
    ("(f32[4], f32[4], u32[], u32[])", "x", "f32[4]"),
    ("((f32[4], f32[3]), (f32[4], f32[3]))", "x, y", "(f32[4], f32[3])"),
    ("(f32[4], f32[4])", "x, x", "(f32[4], f32[4])"),
]


@pytest.mark.parametrize(("declared", "operands", "result"), STARTS)
def test_all_reduce_start_may_show_its_operands(declared: str, operands: str, result: str) -> None:
    text = f"""HloModule m, replica_count=2
{ADD}
ENTRY e {{
  x = f32[4] parameter(0)
  y = f32[3] parameter(1)
  s = {declared} all-reduce-start({operands}), replica_groups={{}}, to_apply=add
  ROOT d = {result} all-reduce-done(s)
}}
"""
    module = hloom.parse(text)
    assert not hloom.verify(module)
    assert str(module.entry.root.operands[0].shape) == result
    assert hloom.parse(module.to_text()).to_text() == module.to_text()
    assert not differences(module, read_module(module.to_proto()))


OUTFEED = """HloModule m
ENTRY e {{
  x = f32[4] parameter(0)
  y = s32[2] parameter(1)
  d = (f32[4], s32[2]) tuple(x, y)
  t = token[] after-all()
  ROOT r = {declared} outfeed(d, t), outfeed_shape=(f32[4], s32[2]){sharding}
}}
"""


@pytest.mark.parametrize("declared", ["token[]", "(f32[4]{0}, s32[2])", "()"])
@pytest.mark.parametrize("count", [0, 2, 3])
def test_outfeed_of_old_texts(declared: str, count: int) -> None:
    one = "{maximal device=0}"
    sharding = f", sharding={{{', '.join([one] * count)}}}" if count else ""
    module = hloom.parse(OUTFEED.format(declared=declared, sharding=sharding))
    usual = hloom.parse(OUTFEED.format(declared="token[]", sharding=f", sharding={one}" if count else ""))
    assert module.to_text() == usual.to_text()
    assert not differences(module, read_module(module.to_proto()))


@pytest.mark.parametrize(("declared", "sharding", "message"), [
    ("s32[7]", "", "declared shape s32[7] but operands give token[]"),
    ("token[]", ", sharding={{maximal device=0}, {maximal device=1}}", "sharding has 2 entries, token[] has 1 leaves"),
    ("token[]", ", sharding={{replicated}, {replicated}, {replicated}, {replicated}}", "sharding has 4 entries"),
])  # fmt: skip
def test_outfeed_that_contradicts_itself(declared: str, sharding: str, message: str) -> None:
    with pytest.raises(hloom.CompileError) as caught:
        hloom.parse(OUTFEED.format(declared=declared, sharding=sharding))
    assert message in caught.value.diagnostics[0].message


@pytest.mark.parametrize("sizes", ["s32[2] constant({4, 3})", "s64[2] constant({4, 3})"])
def test_rng_of_sizes_draws_the_same(sizes: str) -> None:
    text = f"""HloModule m, num_partitions=2
      ENTRY e {{ a = f32[] constant(0) b = f32[] constant(1) s = {sizes}
        ROOT r = f32[4,3] rng(a, b, s), distribution=rng_uniform, sharding={{devices=[2,1]<=[2]}} }}"""
    module, usual = hloom.parse(text), hloom.parse(text.replace("rng(a, b, s)", "rng(a, b)"))
    np.testing.assert_array_equal(hloom.evaluate(module, []), hloom.evaluate(usual, []))
    np.testing.assert_array_equal(hloom.simulate(hloom.partition(module), []), hloom.evaluate(usual, []))
    assert not differences(module, read_module(module.to_proto()))


def test_rng_of_other_sizes_is_refused() -> None:
    with pytest.raises(hloom.CompileError, match=r"operand 2 must be the 2 sizes of the result, it is s32\[3\]"):
        hloom.parse("""ENTRY e { a = f32[] constant(0) s = s32[3] constant({4, 3, 1})
          ROOT r = f32[4,3] rng(a, a, s), distribution=rng_uniform }""")


def test_all_to_all_of_several_operands_needs_several_replicas() -> None:
    module = hloom.parse("""ENTRY e { x = f32[4] parameter(0) y = f32[4] parameter(1)
      ROOT r = (f32[4], f32[4]) all-to-all(x, y), replica_groups={} }""")
    with pytest.raises(hloom.CompileError, match="all-to-all in a program that is not partitioned yet"):
        hloom.partition(module)
