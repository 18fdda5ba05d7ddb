"""StableHLO in and out through jaxlib: the same numbers, names, shardings and donation; errors at their places."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.frontends import stablehlo
from hloom.frontends.kinds import is_mlir_text
from hloom.ir.graph.module import Module, Stage
from programs.jax_programs import PROGRAMS
from support.command_line import EXAMPLES, NAMED
from support.command_line import hloom as command
from support.sharded_jax import jax_program_names

jax: Any = pytest.importorskip("jax")
modules: dict[str, Any] = sys.modules
NAMES = jax_program_names()
QUICK = NAMES[::6]

SINE = """module @waves {
  // a comment
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.sine %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


def lowered(name: str) -> tuple[Any, list[Any]]:
    """A program of the tests as JAX lowers it, and its inputs."""
    function, arguments = PROGRAMS[name]()
    return function.lower(*arguments), [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]


def assert_same_numbers(one: Module, other: Module, inputs: list[Any]) -> None:
    for a, b in zip(hloom.evaluate(one, inputs), hloom.evaluate(other, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", QUICK)
def test_same_numbers_after_a_round_trip(name: str) -> None:
    program, inputs = lowered(name)
    module = hloom.jax.from_jax(program)
    assert_same_numbers(module, hloom.parse(module.to_stablehlo()), inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_same_numbers_after_a_round_trip_of_the_others(name: str) -> None:
    test_same_numbers_after_a_round_trip(name)


@pytest.mark.parametrize("name", ["scan", "layer_norm_and_attention"])
def test_all_forms_of_a_file(name: str, tmp_path: Path) -> None:
    program, inputs = lowered(name)
    wanted = hloom.jax.from_jax(program)
    text = program.as_text()
    (tmp_path / "text").write_text(text)
    (tmp_path / "portable").write_bytes(hloom.parse(text).to_stablehlo_bytecode())
    (tmp_path / "bytecode").write_bytes(importlib.import_module("jax.extend.mlir").hlo_to_stablehlo(wanted.to_proto()))
    for file in tmp_path.iterdir():
        assert_same_numbers(wanted, hloom.load(file), inputs)


def test_exported_functions(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    exported = importlib.import_module("jax.export").export(jax.jit(jax.numpy.sin))(np.zeros(4, np.float32))
    (tmp_path / "sine.bin").write_bytes(exported.serialize())
    inputs = [np.arange(4, dtype=np.float32)]
    assert_same_numbers(hloom.load(tmp_path / "sine.bin"), hloom.jax.from_jax(exported), inputs)
    (tmp_path / "half.bin").write_bytes(exported.serialize()[:-200])
    with pytest.raises(hloom.CompileError, match=r"half\.bin"):
        hloom.load(tmp_path / "half.bin")


def test_names_and_shardings_stay() -> None:
    module = hloom.load(EXAMPLES / "transformer_train.hlo")
    again = hloom.parse(module.to_stablehlo())
    assert again.meshes == module.meshes
    for a, b in zip(module.entry.parameters, again.entry.parameters, strict=True):
        assert (a.metadata and a.metadata.op_name) == (b.metadata and b.metadata.op_name)
        assert a.annotation == b.annotation
    sent = [sum(c.sent_bytes for c in hloom.collectives(hloom.partition(m))) for m in (module, again)]
    assert sent[0] == sent[1]


@pytest.mark.parametrize("header", ["input_output_alias={ {1}: (0, {}, may-alias) }", "buffer_donor={ (1, {}) }"])
def test_donation_stays(header: str) -> None:
    text = f"""HloModule m, {header}
    ENTRY e {{
      a = f32[4] parameter(0)
      b = f32[4] parameter(1)
      c = f32[4] add(a, b)
      d = f32[4] multiply(a, b)
      ROOT r = (f32[4], f32[4]) tuple(c, d)
    }}"""
    again = hloom.parse(hloom.parse(text).to_stablehlo()).to_text()
    assert header.replace(" ", "") in again.replace(" ", "")


def test_partitioned_programs_stay_partitioned() -> None:
    local = hloom.partition(hloom.load(NAMED))
    again = hloom.parse(local.to_stablehlo())
    assert (again.stage, again.num_partitions) == (Stage.LOCAL, 8)
    inputs = [np.random.default_rng(0).normal(size=p.dims).astype(np.float32) for p in local.global_layout.parameters]  # pyright: ignore[reportOptionalMemberAccess]
    for a, b in zip(hloom.simulate(local, inputs), hloom.simulate(again, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_places_are_those_of_the_text() -> None:
    module = hloom.parse(SINE, "waves.mlir")
    sine = next(i for i in module.entry if i.opcode == "sine")
    assert str(sine.location) == "waves.mlir:4:10"
    assert sine.metadata is not None
    assert sine.metadata.source_file == "waves.mlir"


def test_parameters_have_their_places_in_the_text() -> None:
    module = hloom.parse(SINE, "waves.mlir")
    assert str(module.entry.parameters[0].location) == "waves.mlir:3:19"


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_places_after_a_comment_that_holds_other_line_breaks(line_break: str) -> None:
    """MLIR ends lines where Hloom's messages do, and not at a form feed or a line separator."""
    text = SINE.replace("a comment", "a \f comment \u2028").replace("\n", line_break)
    sine = next(i for i in hloom.parse(text, "waves.mlir").entry if i.opcode == "sine")
    assert sine.location is not None
    assert sine.location.source.line_text(sine.location.line).strip().startswith("%0 = stablehlo.sine")


@pytest.mark.parametrize(("old", "new", "wanted"), [
    (": tensor<4xf32>\n", ": tensor<5xf32>\n",
     ["w.mlir:4:25: error: use of value '%a' expects different type", "w.mlir:3:19: note: prior use here"]),
    ("stablehlo.sine", "stablehlo.sinus", ["w.mlir:4:10: error: custom op 'stablehlo.sinus' is unknown"]),
    ("@main", "@other", ["w.mlir:1:1: error: conversion requires module with `main` function"]),
])  # fmt: skip
def test_mistakes(old: str, new: str, wanted: list[str]) -> None:
    with pytest.raises(hloom.CompileError) as error:
        hloom.parse(SINE.replace(old, new), "w.mlir")
    for part in wanted:
        assert part in str(error.value)


def test_bytes_that_are_no_program(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(stablehlo.BYTECODE + bytes(40))
    with pytest.raises(hloom.CompileError, match="broken is not a valid StableHLO program"):
        hloom.load(tmp_path / "broken")


@pytest.mark.parametrize(("text", "found"), [
    (SINE, True), ("// c\n#loc = loc(unknown)\n" + SINE, True), ("!t = tuple<tensor<4xf32>>\n" + SINE, True),
    ('"builtin.module"() ({ "func.func"', True), ("func.func @main() { return }", True),
    ("HloModule module\nENTRY func { }", False), ("", False),
    ("module (a: f32[]) -> f32[] {", False), ("  //" * 4000, False),
])  # fmt: skip
def test_text_is_recognised(text: str, found: bool) -> None:
    assert is_mlir_text(text) is found


def test_show_as_stablehlo(tmp_path: Path) -> None:
    shown = command("show", NAMED, "--as", "stablehlo", cwd=tmp_path)
    assert shown.code == 0
    assert "stablehlo.tanh" in shown.out
    again = command("show", "-", cwd=tmp_path, text=shown.out)
    assert again.code == 0
    assert " tanh(" in again.out
    assert command("show", NAMED, "--as", "stablehlo", "--computation", "sum", cwd=tmp_path).code == 65


def test_without_jaxlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jax", "jaxlib"):
        monkeypatch.setitem(modules, name, None)
    (tmp_path / "w.mlir").write_text(SINE)
    for arguments in (("show", NAMED, "--as", "stablehlo"), ("verify", "w.mlir")):
        done = command(*arguments, cwd=tmp_path)
        assert done.code == 65
        assert "is missing, which is needed to read and write StableHLO" in done.err
        assert "pip install 'hloom[xla]'" in done.err


def test_copies_become_reshapes() -> None:
    """StableHLO has no copies. A program per device copies a parameter that it returns."""
    local = hloom.partition(hloom.parse("ENTRY e { ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]} }"))
    copies = [i.opcode for i in local.entry]
    assert "copy" in copies
    text = local.to_stablehlo()
    assert "stablehlo.reshape" in text
    assert hloom.parse(text).num_partitions == 2
    assert [i.opcode for i in local.entry] == copies


@pytest.mark.parametrize(
    "body",
    [
        "x = f32[2,3]{1,0} parameter(0)  ROOT y = f32[3,2]{0,1} bitcast(x)",
        "x = f32[2,3]{0,1} parameter(0)  ROOT y = f32[6]{0} bitcast(x)",
        "x = f32[2,3,4]{1,2,0} parameter(0)  ROOT y = f32[4,6]{0,1} bitcast(x)",
        "x = f32[2,3]{0,1} parameter(0)  ROOT y = s32[6]{0} bitcast(x)",
        "x = f32[2,4]{0,1} parameter(0)  ROOT y = u8[16,2]{1,0} bitcast(x)",
        "x = u8[2,8]{0,1} parameter(0)  ROOT y = u32[2,2]{1,0} bitcast(x)",
        "ROOT x = f32[2,3]{1,0} parameter(0)  y = f32[2,3]{1,0} bitcast(x)",
    ],
)
def test_bitcasts_become_ops_that_stablehlo_has(body: str) -> None:
    """Programs that XLA has compiled are full of them."""
    module = hloom.parse(f"ENTRY e {{ {body} }}")
    (x,) = module.entry.parameters
    numbers = np.arange(x.shape.num_elements).reshape(x.shape.dims)
    inputs = [numbers.astype("u1" if "u8" in str(x.shape) else "f4")]
    assert_same_numbers(module, hloom.parse(module.to_stablehlo()), inputs)


@pytest.mark.parametrize("element", ["s4", "u4", "s8", "u8", "s16", "s32", "u32", "s64", "u64"])
def test_upper_halves_of_products_become_ops_that_stablehlo_has(element: str) -> None:
    module = hloom.parse(f"""HloModule m
ENTRY e {{
  x = {element}[300] parameter(0)
  y = {element}[300] parameter(1)
  ROOT r = {element}[300] mulhi(x, y)
}}
""")
    kind = module.entry.root.shape.element
    low, high = kind.least, kind.greatest
    draw = random.Random(0)
    x, y = ([*extremes, *(draw.randint(low, high) for _ in range(294))] for extremes in (
        [low, low, high, high, 0, 1], [low, high, high, 1, low, low],
    ))  # fmt: skip
    again = hloom.parse(module.to_stablehlo())
    found = hloom.evaluate(again, [np.array(v, kind.numpy) for v in (x, y)])[0]
    assert [int(v) for v in found] == [(a * b) >> kind.bits for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize("groups", ["{{0,2},{1,3}}", "mesh['a'=2,'b'=2] {'a'}"])
def test_all_to_alls_of_an_operand_per_device_become_one_of_an_array(groups: str) -> None:
    module = hloom.parse(f"""HloModule m, num_partitions=4, is_scheduled=true
    ENTRY e {{
      x = f32[3,2] parameter(0), sharding={{devices=[4,1]<=[4]}}
      two = f32[] constant(2)
      b = f32[3,2] broadcast(two), dimensions={{}}
      y = f32[3,2] multiply(x, b)
      t = (f32[3,2], f32[3,2]) all-to-all(x, y), channel_id=1, replica_groups={groups}
      p = f32[3,2] get-tuple-element(t), index=0
      q = f32[3,2] get-tuple-element(t), index=1
      ROOT r = (f32[3,2], f32[3,2]) tuple(p, q)
    }}""")
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    again = hloom.parse(module.to_stablehlo())
    for have, want in zip(hloom.simulate(again, [x]), hloom.simulate(module, [x]), strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize(("left", "right"), [("2,3", "3,4"), ("3", "3,4"), ("2,3", "3"), ("3", "3")])
def test_algorithms_of_products_stay(left: str, right: str) -> None:
    """That of jax.default_matmul_precision, also where jaxlib would write a product as `stablehlo.dot`."""
    result = ",".join([*left.split(",")[:-1], *right.split(",")[1:]])
    module = hloom.parse(f"""ENTRY e {{
      x = f32[{left}] parameter(0)
      y = f32[{right}] parameter(1)
      ROOT z = f32[{result}] dot(x, y), lhs_contracting_dims={{{left.count(",")}}}, rhs_contracting_dims={{0}},
        algorithm=dot_bf16_bf16_f32
    }}""")
    again = stablehlo.read_binary(module.to_stablehlo_bytecode())
    assert "algorithm=dot_bf16_bf16_f32" in again.to_text()
