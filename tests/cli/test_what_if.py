"""`hloom comm --what-if` and `--close`: decisions that other times turn."""

from __future__ import annotations

import json
from pathlib import Path

from support.command_line import ROOT, hloom

PROGRAM = """HloModule m
ENTRY e {
  x = f32[256,64] parameter(0), sharding={devices=[2,1]<=[2]}
  w = f32[64,4096] parameter(1), sharding={replicated}
  ROOT r = f32[256,4096] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
}"""
SLOW, FAST, BETWEEN = "work=f32:1T", "work=f32:100T", "work=f32:1.75T"


def test_decisions_that_another_machine_turns(tmp_path: Path) -> None:
    path = tmp_path / "p.hlo"
    path.write_text(PROGRAM)
    done = hloom("comm", path, "--machine", SLOW, "--what-if", FAST, "--remarks", "none", cwd=tmp_path)
    assert f"{FAST} turns 1 decision\n" in done.out
    result, operand = (f"all-gather of {size} bytes over 1 of 2, " for size in ("4,194,304", "65,536"))
    assert f"dot r  {result}result  {operand}operand" in done.out
    found = json.loads(hloom("comm", path, "--machine", SLOW, "--what-if", SLOW, "--json", cwd=tmp_path).out)
    assert found["what_if"] == []
    assert "close" not in found


def test_close_decisions_are_remarks(tmp_path: Path) -> None:
    path = tmp_path / "p.hlo"
    path.write_text(PROGRAM)
    found = json.loads(hloom("comm", path, "--machine", FAST, "--close", "--json", cwd=tmp_path).out)
    assert found["close"] == []
    done = hloom("comm", path, "--machine", BETWEEN, "--close", cwd=tmp_path)
    assert "remark: close: all-gather of " in done.err


def test_a_program_of_a_device_has_no_decisions_left() -> None:
    local = hloom("partition", "examples/mlp_named.hlo", "--remarks", "none", cwd=ROOT).out
    done = hloom("comm", "-", "--what-if", "h100", cwd=ROOT, text=local)
    assert done.code == 65
    assert "--what-if compares how a program is divided" in done.err
