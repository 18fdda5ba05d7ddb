"""`hloom memory`: totals, the largest buffers, the curve, JSON; and the arena of native code."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hloom import parse
from hloom.codegen.native.compile_llvm import is_available
from hloom.driver.backend import Backend
from hloom.runtime.evaluator import UnpartitionedProgram
from support.command_line import EXAMPLES, NAMED, hloom


def test_text(tmp_path: Path) -> None:
    done = hloom("memory", NAMED, "--largest", "3", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    head, totals, largest, curve, *_ = done.out.split("\n\n")
    assert head == "mlp: 8 devices; bytes of each"
    assert [line.split() for line in totals.splitlines()[1:]] == [
        ["parameters", "960"], ["constants", "8"], ["results", "68"], ["temporary,", "at", "most", "192"],
        ["all", "together,", "at", "most", "1,160", "at", "y"],
    ]  # fmt: skip
    assert [line.split() for line in largest.splitlines()[2:]] == [
        ["512", "w1", "parameter", "f32[16,8]"], ["256", "x", "parameter", "f32[4,16]"],
        ["128", "w2", "parameter", "f32[8,4]"], ["264", "5", "smaller"],
    ]  # fmt: skip
    bars = [line.split() for line in curve.splitlines()[1:]]
    assert len(bars) == 16
    assert max(bars, key=lambda bar: len(bar[1])) == ["1,160", "#" * 40, "y"]


def test_partitioned_programs_and_meshes(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path).out
    assert hloom("memory", "-", cwd=tmp_path, text=local).out == hloom("memory", NAMED, cwd=tmp_path).out
    assert "mlp: 15 devices" in hloom("memory", NAMED, "--mesh", "x=3,y=5", cwd=tmp_path).out


def test_json_and_lines_of_the_source(tmp_path: Path) -> None:
    found = json.loads(hloom("memory", EXAMPLES / "mlp_train.hlo", "--json", cwd=tmp_path).out)
    assert found["peak"] == sum(b["bytes"] for b in found["buffers"]) == max(m["bytes"] for m in found["curve"])
    assert found["at"] in {m["name"] for m in found["curve"]}
    assert any(b["source"].startswith("make_mlp.py:") for b in found["buffers"])


def test_equal_buffers_are_one_line() -> None:
    step = EXAMPLES / "transformer_train.hlo"
    found = json.loads(hloom("memory", step, "--json", cwd=EXAMPLES).out)
    table = hloom("memory", step, "--largest", "1000", cwd=EXAMPLES).out.partition("largest at the peak\n")[2]
    rows = table.partition("\n\n")[0].splitlines()[1:]
    sizes = [int(row.split()[0].replace(",", "")) for row in rows]
    more = sum(int(n) for row in rows for n in re.findall(r" \(\+(\d+)\) ", row))
    assert sum(sizes) == found["peak"]
    assert sizes == sorted(sizes, reverse=True)
    assert len(rows) + more == len(found["buffers"])
    assert more > 20


def test_native_arena(tmp_path: Path) -> None:
    if not is_available():
        pytest.skip("needs native code")
    found = json.loads(hloom("memory", EXAMPLES / "mlp_train.hlo", "--json", cwd=tmp_path).out)["native_arena"]
    assert 0 < found["bound"] <= found["bytes"]
    lines = hloom("memory", EXAMPLES / "mlp_train.hlo", cwd=tmp_path).out.splitlines()
    assert lines[-2] == f"native arena: {found['bytes']:,} bytes, bound {found['bound']:,}"
    assert lines[-1] == f"native run: {found['run']:,} bytes, with parameters, constants and results"


PRODUCTS = """HloModule products, num_partitions=1
ENTRY main {
  x = f32[512,512] parameter(0)
  a = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[512,512] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT c = f32[512,512] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


def test_bytes_of_a_native_run(tmp_path: Path) -> None:
    """The arena keeps the room of two products when the result is made, which has memory of its own."""
    if not is_available():
        pytest.skip("needs native code")
    (tmp_path / "p.hlo").write_text(PRODUCTS)
    found = json.loads(hloom("memory", "p.hlo", "--json", cwd=tmp_path).out)
    said = found["native_arena"]
    assert found["peak"] < said["run"]
    backend = Backend("native")
    program = UnpartitionedProgram(backend.prepared(parse(PRODUCTS)), backend.kernels())
    x = np.ones((512, 512), np.float32)
    program.run([x])
    tracemalloc.start()
    program.run([x])
    measured = x.nbytes + said["bytes"] + tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert measured == pytest.approx(said["run"], rel=0.02)


def test_without_native_code(tmp_path: Path) -> None:
    assert "native" not in hloom("memory", NAMED, cwd=tmp_path, HLOOM_CPU="-fma").out
    assert json.loads(hloom("memory", NAMED, "--json", cwd=tmp_path, HLOOM_CPU="-fma").out)["native_arena"] is None


OMITTED = """HloModule omitted
ENTRY main {
  x = f32[100] parameter(0)
  c = f32[100] constant({...})
  ROOT y = f32[100] add(x, c)
}
"""


def test_programs_that_cannot_run_have_memory(tmp_path: Path) -> None:
    done = hloom("memory", "-", "--devices", "2", cwd=tmp_path, text=OMITTED)
    assert done.code == 0
    assert "all together, at most  1,200" in done.out
    assert "native arena" not in done.out


@pytest.mark.parametrize(("text", "code"), [("HloModule broken\nENTRY main {", 65), ("", 65)])
def test_errors(tmp_path: Path, text: str, code: int) -> None:
    done = hloom("memory", "-", cwd=tmp_path, text=text)
    assert (done.code, done.out) == (code, "")
    assert "error: " in done.err
    assert "Traceback" not in done.err


def test_werror(tmp_path: Path) -> None:
    text = """HloModule falls
ENTRY main {
  x = f32[8,8] parameter(0), sharding={mesh['a'=4], [{'a'}, {}]}
  ROOT y = f32[8,8] cholesky(x), lower=true, sharding={mesh['a'=4], [{'a'}, {}]}
}
"""
    assert hloom("memory", "-", "--werror", cwd=tmp_path, text=text).code == 65
    assert hloom("memory", "-", cwd=tmp_path, text=text).code == 0
