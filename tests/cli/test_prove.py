"""`hloom prove`: exit codes, its line and its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hloom.cli import prove as command
from hloom.ir.graph.module import Module
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from support.command_line import NAMED, hloom

KEYS = {
    "program", "devices", "outcome", "outputs", "trials", "chance", "difference", "problem", "undefined", "uncovered",
    "origin", "shown",
}  # fmt: skip

UNCOVERED = """HloModule m
ENTRY e { x = c64[2,1025] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = c64[2,1025] fft(x), fft_type=FFT, fft_length={1025} }"""


def test_a_right_program_is_equal(tmp_path: Path) -> None:
    done = hloom("prove", NAMED, cwd=tmp_path)
    assert (done.code, done.out) == (0, "equal: 2 outputs, 4 trials; value flow: wrong with probability <= 9e-22\n")


def test_an_uncovered_op_is_named_with_its_place(tmp_path: Path) -> None:
    done = hloom("prove", "-", cwd=tmp_path, text=UNCOVERED)
    assert done.code == 3
    assert done.out.startswith("unproved: fft y of the original program (<stdin>:3): a transform of 1025")


def test_a_wrong_program_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(module: Module, context: PassContext) -> None:
        partition(module, context)
        multiply = next(i for i in module.entry if i.opcode == "multiply")
        module.entry.replace_all_uses(multiply, multiply.operands[0])

    monkeypatch.setattr(command, "partition", wrong)
    done = hloom("prove", NAMED, "--json", cwd=tmp_path)
    found = json.loads(done.out)
    assert done.code == 1
    assert set(found) == KEYS | {"tested", "never_run"}
    assert found["outcome"] == "differs"
    assert found["difference"]["what"] == "another value"
    assert found["origin"]["name"] == "total"


def test_a_program_per_device_has_no_original(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path).out
    done = hloom("prove", "-", cwd=tmp_path, text=local)
    assert done.code == 2
    assert "hloom prove ORIGINAL LOCAL" in done.err


def test_the_work_of_another_partitioner(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path).out
    assert " multiply(" in local
    (tmp_path / "right.hlo").write_text(local)
    (tmp_path / "wrong.hlo").write_text(local.replace(" multiply(", " subtract("))
    done = hloom("prove", NAMED, "right.hlo", cwd=tmp_path)
    assert done.code == 0
    assert done.out.startswith("equal: 2 outputs, 4 trials")
    assert hloom("prove", NAMED, "wrong.hlo", cwd=tmp_path).code == 1
    assert hloom("prove", NAMED, "right.hlo", "--devices", "4", cwd=tmp_path).code == 2
