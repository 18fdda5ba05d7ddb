"""`hloom run`: simulated and on MPI ranks, inputs and outputs, the check."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hloom.__main__ import main
from support.command_line import EXAMPLES, NAMED, have_mpi, hloom, process

PLAIN = """HloModule plain
ENTRY main {
  x = f32[6,4] parameter(0)
  n = s32[] parameter(1)
  y = f32[6,4] exponential(x)
  ROOT out = (f32[6,4], s32[]) tuple(y, n)
}
"""
SHARDED = PLAIN.replace("parameter(0)", "parameter(0), sharding={mesh['a'=2], [{'a'}, {}]}")


def write_inputs(path: Path) -> tuple[Any, Any]:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
    n = np.array(7, np.int32)
    np.savez(path, arr_0=x, arr_1=n)
    return x, n


def test_check_says_what_it_ran_and_passes(tmp_path: Path) -> None:
    done = hloom("run", NAMED, "--devices", "8", "--check", cwd=tmp_path)
    assert done.code == 0, done.err
    first, verdict, *errors, last = done.out.splitlines()
    assert first == "mlp: 8 simulated devices; 2 all-reduce; 100 bytes sent per device"
    assert verdict == "0/2 outputs differ from those of one device"
    assert [line.split(":")[0] for line in errors] == ["  in f64", "  in f32"]
    assert last == "check passed"
    assert done.err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["mlp_train.hlo", pytest.param("transformer_train.hlo", marks=pytest.mark.slow), "transformer_scan_train.hlo"],
)
def test_examples_pass_their_check(name: str, tmp_path: Path) -> None:
    done = hloom("run", EXAMPLES / name, "--check", cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert re.match(r"jit_train_step: 8 simulated devices; ", done.out)
    assert done.out.endswith("check passed\n")


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("mlp_named.hlo", "x=3,y=5"),
        ("mlp_train.hlo", "data=5"),
        pytest.param("transformer_train.hlo", "data=3,model=3", marks=pytest.mark.slow),
        ("transformer_scan_train.hlo", "data=3,model=2"),
    ],
)
def test_examples_pass_on_meshes_that_do_not_divide_them(name: str, mesh: str, tmp_path: Path) -> None:
    done = hloom("run", EXAMPLES / name, "--mesh", mesh, "--check", cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    devices = int(np.prod([int(part.split("=")[1]) for part in mesh.split(",")]))
    assert f": {devices} simulated devices; " in done.out


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_ranks(ranks: int, tmp_path: Path) -> None:
    done = process("run", NAMED, "--ranks", str(ranks), "--check", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].startswith(f"mlp: 8 devices on {ranks} MPI ranks; 2 all-reduce; ")
    assert done.out.splitlines()[-1] == "check passed"
    assert "\n  in f64: error " in done.out


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_ranks_read_standard_input_and_write_outputs(tmp_path: Path) -> None:
    x, n = write_inputs(tmp_path / "in.npz")
    done = process("run", "-", "--ranks", "2", "--inputs", "in.npz", "--out", "out", cwd=tmp_path, text=SHARDED)
    assert done.code == 0, done.err
    np.testing.assert_allclose(np.load(tmp_path / "out" / "output_0.npy"), np.exp(x), rtol=1e-6)
    assert np.load(tmp_path / "out" / "output_1.npy") == n


def test_inputs_from_a_file_and_outputs_to_a_folder(tmp_path: Path) -> None:
    x, n = write_inputs(tmp_path / "in.npz")
    done = hloom("run", "-", "--devices", "2", "--inputs", "in.npz", "--out", "a/b", cwd=tmp_path, text=SHARDED)
    assert done.code == 0, done.err
    folder = tmp_path / "a" / "b"
    np.testing.assert_allclose(np.load(folder / "output_0.npy"), np.exp(x), rtol=1e-6)
    assert np.load(folder / "output_1.npy") == n
    arrays = json.loads((folder / "manifest.json").read_text())["arrays"]
    assert [(a["type"], a["dims"]) for a in arrays] == [("f32", [6, 4]), ("s32", [])]
    # What one run writes, another reads: the outputs have the types of the inputs here.
    again = hloom("run", "-", "--inputs", "a/b", "--out", "c", cwd=tmp_path, text=SHARDED)
    assert again.code == 0, again.err
    np.testing.assert_allclose(np.load(tmp_path / "c" / "output_0.npy"), np.exp(np.exp(x)), rtol=1e-6)


def test_zeros_and_seeds(tmp_path: Path) -> None:
    def outputs(*options: str) -> list[str]:
        done = hloom("run", "-", *options, cwd=tmp_path, text=PLAIN)
        assert done.code == 0, done.err
        return done.out.splitlines()

    zeros = outputs("--inputs", "zeros")
    assert zeros[0].startswith("plain: 1 simulated devices; no collectives; 0 bytes")
    assert zeros[1:] == ["output 0 y: float32[6,4] min 1 mean 1 max 1", "output 1 n: int32[] 0"]
    first, same, other = outputs(), outputs("--seed", "0"), outputs("--seed", "1")
    assert first == same != other


def test_devices_of_a_program_that_names_no_mesh(tmp_path: Path) -> None:
    done = hloom("run", "-", "--devices", "3", "--check", cwd=tmp_path, text=PLAIN)
    assert done.code == 0, done.err
    assert done.out.startswith("plain: 3 simulated devices; no collectives; ")


def test_local_program_runs_as_it_is(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path)
    (tmp_path / "local.hlo").write_text(local.out)
    done = hloom("run", "local.hlo", "--seed", "3", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "output 0 all-reduce: " in done.out  # what is left of its name
    assert done.out.replace(" all-reduce: ", " y: ") == hloom("run", NAMED, "--seed", "3", cwd=tmp_path).out
    refused = hloom("run", "local.hlo", "--check", cwd=tmp_path)
    assert refused.code == 2
    assert "--check needs the unpartitioned program" in refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--devices", "4"], "shardings are over 8 devices, 4 are asked for"),
        (["--ranks", "9"], "the program runs on 8 devices, too few for 9 ranks"),
        (["--mesh", "z=2"], "no mesh of the program has an axis 'z'"),
        (["--inputs", "nowhere.npz"], "inputs cannot be read from nowhere.npz: No such file or directory\n"),
    ],
)
def test_options_that_contradict_the_program(options: list[str], message: str, tmp_path: Path) -> None:
    done = hloom("run", NAMED, *options, cwd=tmp_path)
    assert done.code == 65
    assert message in done.err
    assert done.out == ""


def test_contradicted_mesh_is_shown_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "p.hlo").write_text(SHARDED)
    done = hloom("run", "p.hlo", "--devices", "4", cwd=tmp_path)
    assert done.code == 65
    assert done.err.startswith("p.hlo:3:3: error: shardings are over 2 devices, 4 are asked for\n  3 |   x = f32[6,4]")
    assert "help: shardings give the number of devices; for another one resize their axes" in done.err


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", np.zeros((6, 4), np.float32))
    np.savez(tmp_path / "wrong.npz", x=np.zeros((4, 6), np.float32), n=np.array(1, np.int32))
    np.savez(tmp_path / "named.npz", x=np.zeros((6, 4), np.float32), m=np.array(1, np.int32))
    few = hloom("run", "-", "--inputs", "few.npz", cwd=tmp_path, text=PLAIN)
    assert few.code == 65
    assert "<stdin>:4:3: error: few.npz has 1 arrays, the program takes 2: none is left for input n" in few.err
    wrong = hloom("run", "-", "--inputs", "wrong.npz", cwd=tmp_path, text=PLAIN)
    assert wrong.code == 65
    assert "<stdin>:3:3: error: wrong.npz: 'x' is float32[4,6], input x is f32[6,4]" in wrong.err
    named = hloom("eval", "-", "--inputs", "named.npz", cwd=tmp_path, text=PLAIN)
    assert (named.code, named.err.splitlines()[0]) == (65, "hloom: error: named.npz: no input is called 'm'")


def test_arrays_go_by_their_names(tmp_path: Path) -> None:
    text = """HloModule swap
        ENTRY main {
          weights = f32[2,2] parameter(0), sharding={devices=[2,1]<=[2]}
          bias = f32[2,2] parameter(1), sharding={devices=[2,1]<=[2]}
          ROOT l = f32[2,2] subtract(weights, bias)
        }"""
    np.savez(tmp_path / "in.npz", weights=np.full((2, 2), 10, np.float32), bias=np.ones((2, 2), np.float32))
    for command in ("run", "eval"):
        done = hloom(command, "-", "--inputs", "in.npz", cwd=tmp_path, text=text)
        assert done.out.splitlines()[-1] == "output 0 l: float32[2,2] min 9 mean 9 max 9", done.err


def test_settings_of_single_inputs(tmp_path: Path) -> None:
    done = hloom("run", "-", "--inputs", "n=int[5,6); x=zeros", "--devices", "2", cwd=tmp_path, text=PLAIN)
    assert done.out.splitlines()[1:] == ["output 0 y: float32[6,4] min 1 mean 1 max 1", "output 1 n: int32[] 5"]
    wrong = hloom("run", "-", "--inputs", "x=zeros; m=int[5,6)", cwd=tmp_path, text=PLAIN)
    assert wrong.code == 65
    assert wrong.err.splitlines() == [
        "--inputs:1:10: error: no input is called 'm'",
        "  1 | x=zeros; m=int[5,6)",
        "    |          ^^^^^^^^^^",
        "  help: inputs: n, x",
    ]
    help = " ".join(hloom("run", "--help", cwd=tmp_path).out.split())
    assert "--inputs example|random|zeros|NAME=KIND;..|FILE" in help


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk"])
def test_inputs_that_are_no_arrays(content: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "junk.npz"
    path.write_bytes(content)
    assert main(["run", NAMED, "--inputs", str(path)]) == 65
    shown = capsys.readouterr().err
    assert f"inputs cannot be read from {path}: " in shown
    assert "pickle" not in shown  # numpy's advice, which would run what the file says


@pytest.mark.parametrize("content", ["", "[1]", '{"arrays": [{"file": "none.npy", "type": "f32"}]}', '{"arrays": 3}'])
def test_inputs_with_a_manifest_that_is_none(
    content: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert main(["run", NAMED, "--inputs", str(tmp_path)]) == 65
    assert f"inputs cannot be read from {tmp_path}: " in capsys.readouterr().err


def test_one_array_by_the_name_of_an_archive(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    assert main(["run", NAMED, "--inputs", str(tmp_path / "one.npz")]) == 65
    assert "it holds one array; rename it to .npy" in capsys.readouterr().err


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    """That is found out before anything is computed, so that nothing is said of a run."""
    (tmp_path / "file").write_text("")
    for command in ("run", "eval"):
        done = hloom(command, "-", "--out", "file/b", cwd=tmp_path, text=PLAIN)
        assert (done.code, done.out) == (74, "")
        assert done.err == "hloom: error: outputs cannot be written to file/b: Not a directory\n"
    if have_mpi():
        done = hloom("run", NAMED, "--ranks", "2", "--out", "file", cwd=tmp_path)
        assert (done.code, done.out) == (74, "")
        assert done.err == "hloom: error: outputs cannot be written to file: File exists\n"


def test_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", NAMED, "--check", "--json", "--seeds", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(c["seed"], c["passed"], c["outputs"], c["types"]) for c in found["checks"]] == [
        (seed, True, 2, ["f32"]) for seed in (0, 1)
    ]
    assert 0 < found["checks"][0]["in_f64"]["error"] < 1e-15 < found["checks"][0]["own"]["error"] < 1e-6


@pytest.mark.parametrize(("options", "message"), [
    (["--seeds", "2"], "--seeds needs --check"),
    (["--tolerance", "0.1"], "--tolerance needs --check"),
    (["--allow-nan"], "--allow-nan needs --check"),
    (["--check", "--tolerance", "-1"], "'-1' is not a number of at least 0"),
    (["--check", "--seeds", "2", "--inputs", "zeros"], "--seeds 2: --inputs zeros are the same for each seed"),
])  # fmt: skip
def test_options_of_checks_that_say_nothing(options: list[str], message: str, tmp_path: Path) -> None:
    done = hloom("run", NAMED, *options, cwd=tmp_path)
    assert done.code == 2
    assert message in done.err


UNLIKE = """import hloom
@hloom.custom_call("unlike_its_rule", rule="([i j]) -> [i j]")
def unlike(x):
    y = x.copy()
    if len(y) == 8:
        y[3, 1] += 1
    return y
"""


def test_failing_check(tmp_path: Path) -> None:
    """A custom-call computes one element of the whole array otherwise than in a tile."""
    (tmp_path / "unlike.py").write_text(UNLIKE)
    text = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[8,4] custom-call(x), custom_call_target="unlike_its_rule"
  z = f32[8,4] negate(x)
  ROOT t = (f32[8,4], f32[8,4]) tuple(y, z)
}"""
    done = hloom("run", "-", "--import", "unlike.py", "--check", cwd=tmp_path, text=text)
    assert done.code == 1
    out = done.out.splitlines()
    assert out[1] == "1/2 outputs differ from those of one device"
    assert out[2].startswith("  output 0: 1 of 32 elements differ in f64, most at [3, 1]: ")
    assert out[-1] == "check FAILED"


MANUAL = """HloModule manual, num_partitions=4
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  a = f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}
  b = f32[2] negate(a), sharding={manual}
  ROOT r = f32[8] custom-call(b), custom_call_target="SPMDShardToFullShape", sharding={devices=[4]<=[4]}
}
"""


@pytest.mark.parametrize("command", [["eval", "-"], ["run", "-", "--check"]])
def test_manual_regions_run_on_all_their_devices(command: list[str], tmp_path: Path) -> None:
    done = hloom(*command, cwd=tmp_path, text=MANUAL)
    assert done.code == 0, done.err
    last = "check passed" if "--check" in command else "output 0 r: float32[8] min "
    assert done.out.splitlines()[-1].startswith(last)


def test_bad_program_is_reported_once_before_there_are_ranks(tmp_path: Path) -> None:
    done = hloom("run", "bad.hlo", "--ranks", "2", cwd=tmp_path, HLOOM_MPIEXEC="no-such-launcher")
    assert (done.code, done.err) == (65, "hloom: error: bad.hlo cannot be read: No such file or directory\n")


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_bad_standard_input_is_reported_by_one_rank(tmp_path: Path) -> None:
    done = hloom("run", "-", "--ranks", "2", cwd=tmp_path, text=PLAIN.replace("exponential", "exponent"))
    assert done.code == 65
    assert done.err.count("<stdin>:5:16: error: opcode 'exponent' is not supported") == 1


def test_inputs_may_be_in_the_folder_of_the_outputs(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4)
    folder = tmp_path / "a"
    folder.mkdir()
    np.save(folder / "output_0.npy", x)
    np.save(folder / "output_1.npy", np.int32(3))
    done = hloom("run", "-", "--inputs", "a", "--out", "a", cwd=tmp_path, text=SHARDED)
    assert done.code == 0, done.err
    np.testing.assert_allclose(np.load(folder / "output_0.npy"), np.exp(x), rtol=1e-6)


def test_mpi_missing(tmp_path: Path) -> None:
    done = hloom("run", NAMED, "--ranks", "2", cwd=tmp_path, HLOOM_MPIEXEC="no-such-launcher")
    assert done.code == 69
    assert done.err.startswith("hloom: error: HLOOM_MPIEXEC=no-such-launcher cannot be run")


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_a_failure_on_ranks_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "foreign.hlo").write_text(
        "HloModule m\nENTRY e {\n  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\n"
        '  ROOT r = f32[4] custom-call(x), custom_call_target="nobody"\n}\n'
    )
    done = process("run", "foreign.hlo", "--ranks", "2", cwd=tmp_path)
    assert done.code == 65
    assert done.err.count("error:") == 1
    assert "nobody" in done.err
    assert "MPI_ABORT" not in done.err


def test_timeouts_have_to_be_numbers(tmp_path: Path) -> None:
    done = hloom("run", NAMED, "--ranks", "2", cwd=tmp_path, HLOOM_TIMEOUT="soon")
    assert (done.code, done.err) == (65, "hloom: error: HLOOM_TIMEOUT=soon is not a number of seconds\n")
    assert hloom("run", NAMED, "--ranks", "2", "--timeout", "0", cwd=tmp_path).code == 2


def test_ranks_that_never_report_count_as_dead(tmp_path: Path) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text(f"#!{sys.executable}\nraise SystemExit(9)\n")
    launcher.chmod(0o755)
    pytest.importorskip("mpi4py")
    done = hloom("run", NAMED, "--ranks", "2", cwd=tmp_path, HLOOM_MPIEXEC=str(launcher))
    assert done.code == 75
    assert done.out == ""
