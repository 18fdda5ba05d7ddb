"""Constants whose values a text leaves out: what needs no values works, what needs them says so before it runs."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.codegen import manual_module, replica_module
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.difference import differences
from hloom.ir.tools.extract import find_instruction, isolate
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from support.command_line import hloom as command

TEXT = """HloModule m, num_partitions=4
add { p = f32[16] parameter(0) c = f32[16] constant({...}) ROOT s = f32[16] add(p, c) }
ENTRY e {
  x = f32[16] parameter(0), sharding={devices=[4]<=[4]}
  w = f32[16,6] constant({...})
  a = f32[16] constant({...})
  b = f32[16] constant({...})
  t = (f32[16], s32[2]) constant(({...}, {1, 2}))
  u = f32[16] get-tuple-element(t), index=0
  y = f32[16] add(x, a)
  z = f32[16] subtract(y, b)
  v = f32[16] multiply(z, u)
  h = f32[16] call(v), to_apply=add
  d = f32[6] dot(h, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (f32[16], f32[6]) tuple(h, d)
}
"""
VECTOR = "{" + ", ".join(map(str, range(16))) + "}"
MATRIX = "{" + ", ".join(f"{{{n}, 1, {n}, 2, {n}, 3}}" for n in range(16)) + "}"


def _filled(text: str) -> str:
    """The text with values of ours: one and the same for each shape."""
    return text.replace("f32[16,6] constant({...})", f"f32[16,6] constant({MATRIX})").replace("{...}", VECTOR)


@pytest.mark.parametrize("make", [clone_module, hloom.propagate, hloom.partition], ids=["read", "shard", "partition"])
def test_prints_as_it_was_read(make: Callable[[Module], Module]) -> None:
    text = make(hloom.parse(TEXT)).to_text()
    assert text.count("{...}") == 5
    assert hloom.parse(text).to_text() == text


def test_partitioned_means_the_same() -> None:
    x = np.linspace(0, 1, 16).astype(np.float32)
    local = hloom.partition(hloom.parse(TEXT))
    assert not hloom.verify(local)
    found = hloom.simulate(hloom.parse(_filled(local.to_text())), [x])
    for ours, wanted in zip(found, hloom.evaluate(hloom.parse(_filled(TEXT)), [x]), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)


def test_two_that_look_alike_stay_two() -> None:
    module = hloom.parse(TEXT)
    run_pipeline(parse_pipeline("call-inliner,cse,dce"), module, PassContext())
    assert sum(i.opcode == "constant" for i in module.entry) == 5
    first, second = (find_instruction(module, name).attributes for name in "ab")
    assert first != second
    copies = pickle.loads(pickle.dumps((first, first)))
    assert copies[0] == copies[1] != first


def test_copies_of_one_are_one() -> None:
    module = hloom.parse(
        TEXT.replace("multiply(z, u)", "multiply(z, k)")
        .replace("h = ", "i = ")
        .replace("  d = f32[6] dot", "  h = f32[16] call(i), to_apply=add\n  d = f32[6] dot")
        .replace("  v = f32[16] m", "  k = f32[16] call(u), to_apply=add\n  v = f32[16] m")
    )
    run_pipeline(parse_pipeline("call-inliner,cse"), module, PassContext())
    assert sum(i.opcode == "constant" for i in module.entry) == 5


def test_counted_compared_and_taken_apart() -> None:
    module = hloom.parse(TEXT)
    assert [c.kind for c in hloom.collectives(hloom.partition(module))] == ["all-reduce"]
    assert not differences(module, hloom.parse(TEXT))
    assert len(differences(module, hloom.parse(_filled(TEXT)))) == 5
    assert "constant({...})" in isolate(module, find_instruction(module, "y"), depth=1).to_text()
    local = hloom.partition(module)
    assert all(form(local).to_text().count("{...}") == 5 for form in (manual_module, replica_module))


def test_xla_reads_what_is_printed() -> None:
    pytest.importorskip("jax")
    read = importlib.import_module("jaxlib._hlo").hlo_module_from_text
    assert read(manual_module(hloom.partition(hloom.parse(TEXT))).to_text())


@pytest.mark.parametrize("use", [
    lambda m: hloom.evaluate(m, [np.zeros(16, np.float32)]),  # pyright: ignore
    lambda m: hloom.simulate(hloom.partition(m), [np.zeros(16, np.float32)]),  # pyright: ignore
    Module.to_proto,
], ids=["evaluate", "simulate", "serialize"])  # fmt: skip
def test_what_needs_values_says_where_they_are_missing(use: Callable[[Module], object]) -> None:
    with pytest.raises(hloom.CompileError) as caught:
        use(hloom.parse(TEXT))
    (error,) = caught.value.diagnostics
    assert error.line > 1
    assert "the text leaves them out, here and in 4 more" in error.message
    assert "print_large_constants" in (error.help or "")


def test_unused_constants_need_no_values() -> None:
    module = hloom.parse("ENTRY e { x = f32[2] parameter(0) c = f32[9] constant({...}) ROOT r = f32[2] negate(x) }")
    assert hloom.evaluate(module, [np.ones(2, np.float32)])[0].tolist() == [-1, -1]


@pytest.mark.parametrize("options", [["eval"], ["run"], ["run", "--check"], ["run", "--ranks", "2"]], ids=" ".join)
def test_commands_refuse_before_they_run(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "f.hlo"
    path.write_text(TEXT)
    outcome = command(*options, path, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (65, "")
    assert "f.hlo:2:32: error: the values of c are needed to run the program" in outcome.err
    assert outcome.err.count("error:") == 1


def test_the_help_names_options_that_exist() -> None:
    pytest.importorskip("jax")
    hlo = importlib.import_module("jaxlib._hlo")
    module = hlo.hlo_module_from_text(_filled(TEXT))
    options = hlo.HloPrintOptions()
    assert "{...}" in module.to_string(options)
    options.print_large_constants = True
    assert "{...}" not in module.to_string(options)
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    assert "{...}" not in computation.as_hlo_text(print_large_constants=True)
