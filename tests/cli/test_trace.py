"""`--trace`: what a run did and when, on simulated devices and on ranks."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hloom import live_memory, parse
from support.command_line import NAMED, have_mpi, hloom, process
from support.schedule_programs import SCAN, STEP
from support.trace_schema import check_schema

WITH_MPI = pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
Record = dict[str, Any]


def _read(path: Path) -> tuple[list[Record], list[Record]]:
    """The events of a trace, and what names processes and tracks."""
    trace = json.loads(path.read_text())
    check_schema(trace)
    records = trace["traceEvents"]
    return [r for r in records if r["ph"] == "X"], [r for r in records if r["ph"] == "M"]


def _check(events: list[Record], processes: int) -> None:
    """Times are those of one clock, events of one track do not overlap where one thread makes them, and waits are parts
    of collectives.
    """
    assert min(e["ts"] for e in events) == 0
    assert {e["pid"] for e in events} == set(range(processes))
    for pid in range(processes):
        compute = [e for e in events if (e["pid"], e["tid"]) == (pid, "compute")]
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in itertools.pairwise(compute))
    for event in (e for e in events if e["cat"] == "communication"):
        said = event["args"]
        assert 0 <= said["waited_us"] + said["started_us"] <= event["dur"] + 0.01
        assert said["bytes"] > 0


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_simulated_devices(backend: str, tmp_path: Path) -> None:
    done = hloom("run", "-", "--trace", "t.json", "--backend", backend, "--repeat", "2", cwd=tmp_path, text=STEP)
    assert done.code == 0, done.err
    events, names = _read(tmp_path / "t.json")
    _check(events, 1)
    found = Counter(e["name"] for e in events if e["cat"] == "communication")
    assert found == Counter(["w.1", "v.1", "t.1", "s.1"])  # of one run
    at = {e["name"]: e for e in events}
    assert at["w.1"]["ts"] < at["v.1"]["ts"] < at["t.1"]["ts"] < at["s.1"]["ts"]
    assert at["v.1"]["args"] == at["v.1"]["args"] | {"kind": "all-gather", "bytes": 72, "result_bytes": 144}
    assert any(e["tid"] == "compute" for e in events)
    assert {(n["name"], n["args"]["name"]) for n in names} >= {
        ("process_name", "2 simulated devices"), ("thread_name", "compute"), ("thread_name", "communication"),
    }  # fmt: skip


def test_live_bytes_are_those_of_the_program(tmp_path: Path) -> None:
    done = hloom("run", "-", "--trace", "t.json", "--backend", "reference", cwd=tmp_path, text=STEP)
    assert done.code == 0, done.err
    records = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    starts = {r["ts"]: r["name"] for r in records if r["ph"] == "X"}
    curve = {moment.name: moment.bytes for moment in live_memory(parse(STEP)).curve}
    counted = {starts[r["ts"]]: r["args"]["bytes"] for r in records if r["ph"] == "C"}
    assert set(counted) == set(starts.values())
    assert counted == {name: curve[name] for name in counted}


def test_each_trip_of_a_loop_has_its_events(tmp_path: Path) -> None:
    done = hloom("run", "-", "--trace", "t.json", cwd=tmp_path, text=SCAN)
    assert done.code == 0, done.err
    found = Counter(e["name"] for e in _read(tmp_path / "t.json")[0])
    assert (found["v.1"], found["next.1"], found["y"]) == (1, 3, 3)


def test_bench(tmp_path: Path) -> None:
    done = hloom("bench", NAMED, "--repeat", "1", "--trace", "t.json", cwd=tmp_path)
    assert done.code == 0, done.err
    _check(_read(tmp_path / "t.json")[0], 1)


def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    done = hloom("run", "-", "--trace", "no/t.json", cwd=tmp_path, text=STEP)
    assert (done.code, done.out) == (74, "")
    assert "error: the trace cannot be written to no/t.json: No such file or directory" in done.err


@WITH_MPI
@pytest.mark.parametrize("collectives", ["shared", pytest.param("mpi", marks=pytest.mark.slow)])
def test_ranks(collectives: str, tmp_path: Path) -> None:
    (tmp_path / "step.hlo").write_text(STEP)
    done = process("run", "step.hlo", "--ranks", "2", "--trace", "t.json", "--collectives", collectives, cwd=tmp_path)
    assert done.code == 0, done.err
    events, names = _read(tmp_path / "t.json")
    _check(events, 2)
    spans = {(e["pid"], e["name"]): (e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "communication"}
    assert len(spans) == 8
    for name in ("w.1", "v.1", "t.1", "s.1"):  # none ends on one rank before it began on the other
        (start, end), (other_start, other_end) = spans[0, name], spans[1, name]
        assert start < other_end + 0.01
        assert other_start < end + 0.01
    whole = json.loads((tmp_path / "t.json").read_text())
    assert whole["otherData"]["busy"] > 0
    arrows: dict[int, list[int]] = {}
    for record in whole["traceEvents"]:
        if record["ph"] in "sf":
            arrows.setdefault(record["id"], []).append(record["pid"])
    assert [sorted(ends) for ends in arrows.values()] == [[0, 1]] * 4  # one between the ranks per collective
    processes = [n["args"]["name"] for n in names if n["name"] == "process_name"]
    assert [name.split(": ")[-1] for name in processes] == ["device 0", "device 1"]
