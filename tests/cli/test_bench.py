"""`hloom bench`: the parts of a run, what they reach, and the peaks of the machine."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.driver import backend as backends
from hloom.runtime.measure import Part, StepTimes, peak_bytes, peak_flops
from hloom.runtime.simulator import SimulatedProgram
from support.command_line import NAMED, have_mpi, process
from support.command_line import hloom as command

LINES = [
    r"mlp: 8 simulated devices, backend (native|reference) \(as asked for\)",
    r"reading \S+ s, partitioning \S+ s, compiling \S+ s(; machine code of kernels is kept from earlier runs, .*)?",
    r"first step \S+ ms, median of 2 \S+ ms", r"part +ms +share +reached +of the peak",
    *(rf"{part.value} +\S+ +\S+( %)? +(-|\S+ G[FB]/s) +\S+( %)?" for part in Part),
    r"peak here: \S+ GF/s \(product of f32 matrices\), \S+ GB/s \(copy\)",
]  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_the_table_has_all_parts(backend: str, tmp_path: Path) -> None:
    done = command("bench", NAMED, "--repeat", "2", "--backend", backend, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    for line, pattern in zip(done.out.splitlines(), LINES, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.parametrize(("there", "text"), [
    (True, "backend native (the fastest for a program that runs for long)"),
    (False, "backend reference (there is no native code here: native code needs llvmlite"),
])  # fmt: skip
def test_a_short_benchmark_takes_what_runs_long(
    tmp_path: Path, there: bool, text: str
) -> None:
    if there and not backends.has_native_code():
        pytest.skip("there is no native code here")
    hidden = {} if there else {"HLOOM_CPU": "-fma"}
    done = command("bench", NAMED, "--repeat", "1", "--backend", "auto", cwd=tmp_path, **hidden)
    assert done.code == 0
    assert text in done.out
    assert backends.Backend.chosen("auto", hloom.load(NAMED), 1).name == "reference"


def record(*arguments: str, cwd: Path) -> Any:
    done = command("bench", NAMED, "--json", "--repeat", "2", *arguments, cwd=cwd)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_json(tmp_path: Path) -> None:
    found = record("--backend", "reference", cwd=tmp_path)
    assert list(found) == ["program", "devices", "backend", "seconds", "parts", "flops", "touched_bytes", "peak"]
    assert set(found["parts"]) == {part.value for part in Part}
    assert found["seconds"]["runs"] == 2
    # Two products of a device's tiles, [4,16] [16,8] and [4,8] [8,4], on eight devices.
    assert found["flops"] == 8 * 2 * (4 * 16 * 8 + 4 * 8 * 4)
    assert found["parts"]["products"] > 0
    assert found["parts"]["collectives"] > 0
    assert found["parts"]["fused loops"] == 0
    assert record("--backend", "native", cwd=tmp_path)["parts"]["fused loops"] > 0


@pytest.mark.parametrize(("options", "parts"), [
    (("--devices", "1"), ["reading", "simplifying", "compiling"]),
    (("--devices", "2"), ["reading", "partitioning", "compiling"]),
    (("--devices", "2", "--schedule"), ["reading", "partitioning", "scheduling", "compiling"]),
])  # fmt: skip
def test_times_of_making_are_told_apart(tmp_path: Path, options: tuple[str, ...], parts: list[str]) -> None:
    """One device has nothing to partition."""
    (tmp_path / "p.hlo").write_text(LOOP)
    made = command("bench", "p.hlo", "--json", "--repeat", "1", *options, cwd=tmp_path)
    assert made.code == 0, made.err
    seconds = json.loads(made.out)["seconds"]
    assert list(seconds["parts"]) == parts
    assert seconds["compile"] == sum(seconds["parts"].values())


LOOP = """HloModule loop
body {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[64,64]) tuple(n, y)
}
test {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = s32[] constant(500)
  ROOT r = pred[] compare(i, c), direction=LT
}
ENTRY e {
  x = f32[64,64] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[64,64]) tuple(zero, x)
  w = (s32[], f32[64,64]) while(s), condition=test, body=body
  ROOT r = f32[64,64] get-tuple-element(w), index=1
}
"""


def test_loops_count_once() -> None:
    """The time of a loop is that of its body, and not added to it."""
    program = SimulatedProgram(hloom.partition(hloom.parse(LOOP)))
    times, start = StepTimes(), time.perf_counter()
    program.simulate([np.eye(64, dtype=np.float32)], observer=times)
    elapsed = time.perf_counter() - start
    assert times.seconds[Part.PRODUCTS] > 0
    assert sum(times.seconds.values()) <= elapsed  # parts are apart from each other


def test_peaks_are_rates() -> None:
    assert 1e7 < peak_flops() < 1e15
    assert 1e6 < peak_bytes() < 1e14


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_ranks_and_what_they_wait_for(tmp_path: Path) -> None:
    done = process("bench", NAMED, "--ranks", "2", "--repeat", "2", "--json", "--trace", "t.json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["seconds"]["runs"] == 2
    assert len(found["ranks"]) == 2
    for rank in found["ranks"]:
        assert 0 < rank["computing"] + rank["starting"] + rank["waiting"] <= rank["whole"] < 60
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    traced = {e["name"] for e in events if e.get("cat") == "communication"}
    assert {c["name"] for c in found["collectives"]} == traced
    assert all(0 <= c["waited"] <= c["in_flight"] for c in found["collectives"])
