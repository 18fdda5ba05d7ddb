"""`hloom run` and `hloom eval` of programs per device that Hloom did not make, and of what text does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import have_mpi, hloom, process

PER_DEVICE = """HloModule ring, num_partitions=2
ENTRY e {
  x = f32[2] parameter(0)
  p = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}
  n = u32[] partition-id()
  f = f32[] convert(n)
  b = f32[2] broadcast(f), dimensions={}
  s = f32[2] add(p, b)
  ROOT r = (f32[2], f32[2]) tuple(s, x)
}
"""


@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_programs_per_device_of_others_run_and_say_what_is_assumed(ranks: int, tmp_path: Path) -> None:
    if ranks and not have_mpi():
        pytest.skip("there is no mpiexec")
    more = ["--ranks", str(ranks)] if ranks else []
    done = (process if ranks else hloom)("run", "-", "--inputs", "zeros", *more, cwd=tmp_path, text=PER_DEVICE)
    assert done.code == 0
    assert done.err.count("<stdin>:2:7: remark: input 0 has no sharding: every device gets the same") == 1
    assert "help: an array with a first dimension of 2 gives each device its own" in done.err
    assert done.err.count("2 outputs have no sharding: they are shown for each device") == 1
    assert done.out.splitlines()[1:] == [
        "output 0 s, device 0: float32[2] min 0 mean 0 max 0",
        "output 0 s, device 1: float32[2] min 1 mean 1 max 1",
        "output 1 x, alike on 2 devices: float32[2] min 0 mean 0 max 0",
    ]


def test_programs_per_device_have_no_meaning_on_one(tmp_path: Path) -> None:
    done = hloom("eval", "-", cwd=tmp_path, text=PER_DEVICE)
    assert (done.code, done.out) == (65, "")
    assert "ring is a per-device program for 2 devices and cannot run on one" in done.err
    done = hloom("run", "-", "--check", cwd=tmp_path, text=PER_DEVICE)
    assert (done.code, done.out) == (2, "")
    assert "--check needs the unpartitioned program" in done.err


def test_devices_that_the_header_does_not_name_are_asked_for(tmp_path: Path) -> None:
    text = PER_DEVICE.replace(", num_partitions=2", "")
    for command in ("run", "eval"):
        done = hloom(command, "-", cwd=tmp_path, text=text)
        assert (done.code, done.out) == (65, "")
        assert "help: the header names no devices: say num_partitions=N, or replica_count=N" in done.err


CALLBACK = """HloModule calls
ENTRY e {
  x = f32[2] parameter(0)
  p = RESULT custom-call(x), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true,
    api_version=API_VERSION_TYPED_FFI, sharding=PLACE, backend_config={index = 3 : ui64}
  ROOT r = f32[2] ROOT
}
"""


def callback(result: str) -> str:
    place = "{{maximal device=0}}" if result == "()" else "{maximal device=0}"
    root = "negate(x)" if result == "()" else "add(x, p)"
    return CALLBACK.replace("RESULT", result).replace("PLACE", place).replace("ROOT\n", root + "\n")


@pytest.mark.parametrize("command", [["eval", "-"], ["run", "-", "--devices", "2"]])
def test_callbacks_without_results_are_left_out(command: list[str], tmp_path: Path) -> None:
    done = hloom(*command, "--inputs", "zeros", cwd=tmp_path, text=callback("()"))
    assert done.code == 0
    assert done.err.count("remark: p calls a Python function that is not in the program: it has no results") == 1
    assert "output 0 r: float32[2]" in done.out


@pytest.mark.parametrize("command", [["eval", "-"], ["run", "-", "--devices", "2"]])
def test_callbacks_with_results_need_a_meaning(command: list[str], tmp_path: Path) -> None:
    """Though the call stands in a branch, which one device takes: that is known before the program runs."""
    text = callback("f32[2]")
    done = hloom(*command, cwd=tmp_path, text=text)
    assert (done.code, done.out) == (65, "")
    assert "the Python function called by xla_ffi_python_cpu_callback is not part of the program" in done.err
    assert "--import: @hloom.custom_call(\"xla_ffi_python_cpu_callback\")" in done.err
    assert "'{index = 3 : ui64}'" in done.err
    (tmp_path / "calls.py").write_text("""import hloom
@hloom.custom_call("xla_ffi_python_cpu_callback")
def f(x, config):
    return x + ("3" in config)
""")
    done = process(*command, "--import", "calls.py", "--inputs", "zeros", cwd=tmp_path, text=text)
    assert (done.code, done.out.splitlines()[-1]) == (0, "output 0 r: float32[2] min 1 mean 1 max 1")


def test_tokens_are_no_outputs(tmp_path: Path) -> None:
    text = """HloModule m
ENTRY e { x = f32[2] parameter(0)  t = token[] after-all()  ROOT r = (token[], f32[2]) tuple(t, x) }"""
    for command in (["eval", "-"], ["run", "-"], ["run", "-", "--check"]):
        done = hloom(*command, "--inputs", "zeros", cwd=tmp_path, text=text)
        assert done.code == 0, done.err
