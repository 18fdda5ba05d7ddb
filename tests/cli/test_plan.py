"""`hloom plan`: the table, JSON, the files that it writes, and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.command_line import NAMED, hloom

QUICK = ("--machine", "cpu-cluster", "--time", "1s")
PRODUCT = """HloModule product
ENTRY e {
  x = f32[64,32] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[32,64] parameter(1)
  ROOT y = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture(autouse=True)
def _needs_the_solver() -> None:
    pytest.importorskip("highspy")


def test_the_plan_its_files_and_time_against_memory(tmp_path: Path) -> None:
    out, strategy = tmp_path / "planned.hlo", tmp_path / "plan.toml"
    done = hloom("plan", NAMED, *QUICK, "-o", out, "--strategy-out", strategy, "--pareto", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "as annotated" in done.out
    assert "by the model no plan takes less than" in done.out
    assert f"{strategy}:" in done.out
    assert hloom("run", out, "--check", cwd=tmp_path).code == 0
    assert hloom("forecast", NAMED, "--strategy", strategy, "--machine", "cpu-cluster", cwd=tmp_path).code == 0
    candidates, _, table, *_ = done.out.split("\n\n")[1:]
    assert candidates.split()[:6] == ["candidate", "mesh", "time", "exposed", "peak", "ratio"]
    assert table.split()[:7] == ["time", "ratio", "exposed", "peak", "share", "mesh", "candidate"]
    assert "1.000" in table


def test_json_has_the_candidates_best_first(tmp_path: Path) -> None:
    (tmp_path / "product.hlo").write_text(PRODUCT)
    done = hloom("plan", "product.hlo", *QUICK, "--mesh", "all", "--devices", "4", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    seconds = [c["seconds"] for c in found["candidates"] if c["fits"]]
    assert seconds == sorted(seconds)
    assert found["seconds"] == seconds[0]
    assert {tuple(c["mesh"].values()) for c in found["candidates"]} == {(4,), (2, 2)}
    assert found["regrets"]
    assert found["pareto"] == []


def test_the_explanation(tmp_path: Path) -> None:
    (tmp_path / "product.hlo").write_text(PRODUCT)
    done = hloom("plan", "product.hlo", *QUICK, "--explain", cwd=tmp_path)
    assert done.code == 0, done.err
    assert re.search(r" limits? the plan: computation takes ", done.out)
    assert "memory at " in done.out
    assert "links twice as fast" in done.out
    data = json.loads(hloom("plan", "product.hlo", *QUICK, "--explain", "--json", cwd=tmp_path).out)
    assert sum(b["bytes"] for b in data["buffers"]) == data["peak"]
    assert {one["change"] for one in data["what_if"]} >= {"links twice as fast", "one more axis of 2"}
    assert all(one["ratio"] > 0 for one in data["what_if"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mesh", "8by4"), "'8by4' is no mesh"),
        (("--mesh", "x=2,x=4"), "'x=2,x=4' is no mesh"),
        (("--mesh", "x=0,y=4"), "'x=0,y=4' is no mesh"),
        (("--mesh", "8x2", "--devices", "4"), "the mesh has 16 devices, 4 are asked for"),
        (("--keep", "none=x,"), "'none' fits no value"),
        (("--memory", "100B"), "no sharding of mlp fits"),
        (("--machine", "abacus"), "abacus"),
    ],
)
def test_errors_are_named(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = hloom("plan", NAMED, *QUICK, *arguments, cwd=tmp_path)
    assert done.code in (2, 65)
    assert message in done.err
    assert "Traceback" not in done.err
