"""The commands that print a program (show, verify, opt, shard, partition), usage, and errors of all kinds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hloom import CompileError, parse
from hloom.__main__ import main
from hloom.ir.graph.module import Stage
from hloom.passes.propagation.propagate import Propagate
from support.command_line import EXAMPLES, NAMED, environment, hloom, process

BAD = """HloModule bad
ENTRY main {
  x = f32[4,6] parameter(0)
  w = f32[8,8] parameter(1)
  ROOT y = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
LIBRARY = """HloModule library
double {
  p = f32[8] parameter(0)
  ROOT d = f32[8] add(p, p)
}
ENTRY main {
  x = f32[8] parameter(0), sharding={mesh['a'=4], [{'a'}]}
  y = f32[8] call(x), to_apply=double
  again = f32[8] add(x, x)
  unused = f32[8] negate(y)
  ROOT z = f32[8] multiply(y, again)
}
"""


def test_show_prints_what_it_reads_again(tmp_path: Path) -> None:
    done = hloom("show", NAMED, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.startswith("HloModule mlp, entry_computation_layout=")
    assert "%h = f32[8,32] tanh(%xw)" in done.out
    again = hloom("show", "-", cwd=tmp_path, text=done.out)
    assert (again.code, again.out) == (0, done.out)


def test_verify(tmp_path: Path) -> None:
    done = hloom("verify", NAMED, cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "mlp: ok, 2 computations, 17 instructions\n", "")


@pytest.mark.parametrize("command", [["verify"], ["show"], ["shard"], ["partition"], ["run"], ["opt", "--passes=dce"]])
def test_bad_program(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.hlo").write_text(BAD)
    done = hloom(*command, "bad.hlo", cwd=tmp_path)
    assert (done.code, done.out) == (65, "")
    lines = done.err.splitlines()
    assert lines[0] == (
        "bad.hlo:5:8: error: dot: contracting dimensions differ: lhs dimension 1 is 6, rhs dimension 0 is 8"
    )
    assert lines[1] == "  5 |   ROOT y = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert lines[2].startswith("    |        ^")
    assert [line for line in lines if "note:" in line] == [
        "bad.hlo:3:3: note: x is f32[4,6] here", "bad.hlo:4:3: note: w is f32[8,8] here"
    ]  # fmt: skip


def test_standard_input_has_a_name(tmp_path: Path) -> None:
    done = hloom("verify", "-", cwd=tmp_path, text=BAD.replace("f32[8,8]", "f99[8,8]"))
    assert done.code == 65
    assert re.match(r"<stdin>:4:7: error: .*f99", done.err)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    missing = hloom("verify", "nothing.hlo", cwd=tmp_path)
    assert (missing.code, missing.err) == (
        65, "hloom: error: nothing.hlo cannot be read: No such file or directory\n"
    )  # fmt: skip
    (tmp_path / "binary.hlo").write_bytes(b"HloModule m\n\xff\xfe")
    binary = hloom("verify", "binary.hlo", cwd=tmp_path)
    assert binary.code == 65
    assert binary.err.startswith("binary.hlo:2:1: error: not UTF-8: byte 0xff")


def test_shard_tells_each_sharding_and_its_cause(tmp_path: Path) -> None:
    done = hloom("shard", NAMED, cwd=tmp_path)
    assert done.code == 0, done.err
    rows = {line.split()[0]: re.split(r"  +", line) for line in done.out.splitlines() if line}
    assert rows["value"] == ["value", "shape", "sharding", "per device", "work", "because of"]
    assert rows["x"] == ["x", "f32[8,16]", "[x, -]", "f32[4,16]", "annotation"]
    assert rows["h"] == ["h", "f32[8,32]", "[x, y]", "f32[4,8]", "xw"]
    assert rows["xw"] == ["xw", "f32[8,32]", "[x, y]", "f32[4,8]", "512", "x, w1"]  # 4 * 8 * 16 multiply-adds
    assert rows["loss"] == ["loss", "f32[]", "replicated", "f32[]"]
    assert done.out.endswith("\n15 values: 4 annotated (26.7 %), 6 sharded by propagation, 5 replicated\n")


def test_shard_as_text_is_a_sharded_program(tmp_path: Path) -> None:
    done = hloom("shard", NAMED, "--text", cwd=tmp_path)
    assert done.code == 0, done.err
    module = parse(done.out)
    assert module.stage is Stage.SHARDED
    assert all(i.sharding is not None for i in module.entry)
    partitioned = hloom("partition", "-", cwd=tmp_path, text=done.out)
    assert partitioned.code == 0, partitioned.err
    assert partitioned.out.count(" all-reduce(") == 2


@pytest.mark.parametrize("other", ["--text", "--all", "x"])
def test_the_fewest_annotations_are_shown_alone(other: str, tmp_path: Path) -> None:
    done = hloom("shard", NAMED, "--minimal", other, cwd=tmp_path)
    assert (done.code, "--minimal shows no other values" in done.err) == (2, True)


def test_partition(tmp_path: Path) -> None:
    done = process("partition", NAMED, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    module = parse(done.out)
    assert module.stage is Stage.LOCAL
    assert module.num_partitions == 8
    assert "%h = f32[4,8] tanh(%xw)" in done.out
    assert 'hloom.cause="result of dot y"' in done.out
    # A program that is partitioned already is only printed.
    again = hloom("partition", "-", cwd=tmp_path, text=done.out)
    assert (again.code, again.out) == (0, done.out)


def test_partition_for_another_mesh(tmp_path: Path) -> None:
    done = hloom("partition", NAMED, "--mesh", "x=4,y=1", cwd=tmp_path)
    assert done.code == 0, done.err
    assert parse(done.out).num_partitions == 4
    assert "%h = f32[2,32] tanh(%xw)" in done.out


def test_remarks_go_to_standard_error(tmp_path: Path) -> None:
    drawn = "constant(1)\n  unused = f32[8] rng(one, one), distribution=rng_uniform, sharding={mesh['a'=4], [{'a'}]}"
    text = LIBRARY.replace("unused = f32[8] negate(y)", f"one = f32[] {drawn}")
    text = text.replace("multiply(y, again)", "multiply(y, unused)")
    done = hloom("partition", "-", cwd=tmp_path, text=text)
    assert done.code == 0, done.err
    assert done.err.startswith("<stdin>:11:3: remark: rng unused computes its whole result on every device")
    assert done.out.startswith("HloModule library")


@pytest.mark.parametrize("command", ["verify", "run", "eval", "show", "comm", "partition", "shard"])
def test_warnings_about_the_text(command: str, tmp_path: Path) -> None:
    text = "HloModule m\nENTRY e { c = f32[2,3] constant(7) ROOT r = f32[2,3] negate(c) }"
    done = hloom(command, "-", cwd=tmp_path, text=text)
    assert done.code == 0
    assert done.err.startswith("<stdin>:2:33: warning: constant of shape f32[2,3]: a single number is the first")
    assert done.err.count("[constant]") == 1
    if command not in ("eval", "show"):
        failed = hloom(command, "--werror=constant", "-", cwd=tmp_path, text=text)
        assert (failed.code, failed.out, failed.err) == (65, "", done.err.replace(": warning: ", ": error: "))
        assert hloom(command, "--werror=gather", "-", cwd=tmp_path, text=text) == done


def test_opt_runs_the_passes_named(tmp_path: Path) -> None:
    done = hloom("opt", "-", "--passes=call-inliner,cse,dce", cwd=tmp_path, text=LIBRARY)
    assert done.code == 0, done.err
    module = parse(done.out)
    assert [i.opcode for i in module.entry] == ["parameter", "add", "multiply"]
    assert len(module.computations) == 1


def test_opt_explains_what_fusion_decided(tmp_path: Path) -> None:
    done = hloom("opt", "-", "--passes=call-inliner,dce,fusion", "--explain=again", cwd=tmp_path, text=LIBRARY)
    assert done.code == 0, done.err
    assert "remark: again is fused with d, z" in done.err


def test_opt_dumps_and_times(tmp_path: Path) -> None:
    passes = "call-inliner,propagate,spmd-partition"
    done = hloom("opt", "-", "--passes", passes, "--dump-after=propagate", "--time", cwd=tmp_path, text=LIBRARY)
    assert done.code == 0, done.err
    assert parse(done.out).stage is Stage.LOCAL
    dump, _, rest = done.err.partition("}\n\ncall-inliner: ")
    assert dump.startswith("// after propagate\nHloModule library")
    assert parse(dump.partition("\n")[2] + "}").stage is Stage.SHARDED
    assert re.fullmatch(r"[\d.]+ ms\npropagate: [\d.]+ ms\nspmd-partition: [\d.]+ ms\n", rest)
    everything = hloom("opt", "-", "--passes", passes, "--dump-after=all", cwd=tmp_path, text=LIBRARY)
    assert re.findall(r"// after (\S+)", everything.err) == passes.split(",")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--passes=nothing"], "there is no pass 'nothing'"),
        (["--passes=dce{limit=3}"], "pass dce has no option 'limit'"),
        (["--passes=dce cse"], "cannot read pipeline at 'dce cse'"),
        (["--passes=spmd-partition"], "pass spmd-partition needs a SHARDED module, this one is GLOBAL"),
        (["--passes=propagate,call-inliner"], "pass call-inliner must come before propagate"),
        (["--passes=fusion", "--explain=nothing"], "no pass explains a decision about 'nothing'"),
        (["--passes=dce", "--dump-after=nothing"], "there is no pass 'nothing' to dump after"),
    ],
)
def test_opt_refuses(options: list[str], message: str, tmp_path: Path) -> None:
    done = hloom("opt", "-", *options, cwd=tmp_path, text=LIBRARY)
    assert (done.code, done.out) == (65, "")
    assert done.err.startswith(f"hloom: error: {message}")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly", "x.hlo"],
        ["run"],
        ["opt", "x.hlo"],
        ["run", "x.hlo", "--devices", "0"],
        ["run", "x.hlo", "--mesh", "x=2,x=3"],
        ["run", "x.hlo", "--seed", "one"],
        ["run", "x.hlo", "--seed", "-1"],
        ["partition", "x.hlo", "--form", "other"],
        ["verify", "x.hlo", "--check"],
    ],
)
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("usage: hloom")
    assert "error: " in shown.err


def test_usage_error_of_a_process(tmp_path: Path) -> None:
    assert process("fly", cwd=tmp_path).code == 2
    helped = process("--help", cwd=tmp_path)
    assert (helped.code, helped.err) == (0, "")
    assert all(name in helped.out for name in ("run", "partition", "shard", "opt", "show", "verify"))


def test_internal_error_leaves_a_reproducer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pass is made to fail in a way that no input should bring about."""

    def broken(*_: Any) -> bool:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(Propagate, "run", broken)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "library.hlo").write_text(LIBRARY)
    assert main(["partition", "library.hlo"]) == 70
    assert main(["partition", "library.hlo"]) == 70
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "hloom: internal error: pass propagate: raised ZeroDivisionError: on purpose\n" in shown.err
    assert "with hloom-reproducer-0.hlo" in shown.err
    assert "with hloom-reproducer-1.hlo" in shown.err
    kept = (tmp_path / "hloom-reproducer-0.hlo").read_text()
    assert kept.startswith("// hloom partition library.hlo\n")
    assert "// ZeroDivisionError: on purpose\n" in kept
    assert parse(kept).to_text() == parse(LIBRARY).to_text()


def test_pass_that_leaves_a_broken_module_is_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`opt` verifies after every pass."""

    def idle(*_: Any) -> bool:
        return False

    monkeypatch.setattr(Propagate, "run", idle)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "library.hlo").write_text(LIBRARY)
    assert main(["opt", "library.hlo", "--passes=propagate"]) == 70
    error = capsys.readouterr().err
    assert "hloom: internal error: pass propagate: left an invalid module: " in error
    assert "x: sharding is over " in error


def test_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """A closed pipe is no error (`hloom show F | head -1`)."""
    with subprocess.Popen(
        [sys.executable, "-m", "hloom", "show", str(EXAMPLES / "transformer_train.hlo")],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as job:  # fmt: skip
        assert job.stdout is not None
        assert job.stderr is not None
        assert os.read(job.stdout.fileno(), 9) == b"HloModule"
        job.stdout.close()
        assert job.stderr.read() == b""
    assert job.returncode == 0


def test_bad_input_raises_only_inside(tmp_path: Path) -> None:
    """The same error from Python is an exception with the same text."""
    with pytest.raises(CompileError) as error:
        parse(BAD, filename="bad.hlo")
    (tmp_path / "bad.hlo").write_text(BAD)
    assert hloom("verify", "bad.hlo", cwd=tmp_path).err == f"{error.value}\n"
