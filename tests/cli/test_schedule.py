"""`hloom schedule`: the table, JSON, the trace for Perfetto, and the comparison with a measured run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hloom.report.measured import kendall
from support.command_line import EXAMPLES, NAMED, ROOT, hloom
from support.trace_schema import check_schema

SCAN = ROOT / "examples" / "transformer_scan_train.hlo"

# On a machine of 1 GB/s everywhere and 1 us per collective: the gather of 4 KB takes 5.096 us, a sort of 64 KB 131 us.
TEXT = """HloModule m, num_partitions=2, is_scheduled=true, frontend_attributes={hloom.schedule.bound="0.0001"}
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { x = f32[1024] parameter(0)
  z = f32[16384] parameter(1)
  g = f32[2048] all-gather(x), channel_id=1, replica_groups=[1,2]<=[2], dimensions={0}, use_global_device_ids=true,
    metadata={op_name="late"}, frontend_attributes={hloom.cause="operand of sort b"}
  h = f32[1024] collective-permute(x), channel_id=2, source_target_pairs={{0,1},{1,0}}
  a = f32[16384] sort(z), dimensions={0}, to_apply=less
  b = f32[2048] sort(g), dimensions={0}, to_apply=less
  p = f32[1024] collective-permute(x), channel_id=3, source_target_pairs={{0,1},{1,0}}
  ROOT t = (f32[16384], f32[2048], f32[1024], f32[1024]) tuple(a, b, h, p)
}
"""
MACHINE = ("--machine", "memory=1GB", "--links", "1us/1GB")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.hlo").write_text(TEXT)
    return tmp_path


def test_a_table(folder: Path) -> None:
    done = hloom("schedule", "p.hlo", *MACHINE, cwd=folder)
    assert done.code == 0, done.err
    gather, permute, late = done.out.splitlines()[1:4]
    assert gather.split() == ["all-gather", "g", "hidden", "0", "8,192", "operand", "of", "sort", "b", "1", "of", "2",
                              "1", "0", "0.005096", "0.1311", "late"]  # fmt: skip
    assert permute.split() == ["collective-permute", "h", "hidden", "0", "4,096", "2", "pairs", "1", "0.005096",
                               "0.01019", "0.1475"]  # fmt: skip
    assert late.split()[2] == "exposed"
    assert done.out.splitlines()[5:] == [
        "m: 2 devices; times in ms",
        "0.153 ms on the given machine: 0.147 ms of ops, 0.0051 ms exposed of 0.0153 ms of collectives",
        "collectives: 2 hidden, 1 exposed",
        "peak memory: 155,648 bytes at b",
        "at least 0.1 ms in any order; gap 52.6%",
    ]


def test_equal_layers_are_one_line_and_patterns_choose() -> None:
    program, options = EXAMPLES / "transformer_train.hlo", ("--machine", "h100", "--as-is", "--remarks", "none")

    def shown(*more: str) -> str:
        return hloom("schedule", program, *more, *options, cwd=EXAMPLES).out.partition("\n\n")[0]

    few, every = shown(), shown("--all")
    rows = few.splitlines()[1:]
    more = sum(int(n) for row in rows for n in re.findall(r"\(\+(\d+)\)", row))
    assert len(every.splitlines()) == 1 + more + len(rows)
    assert len(rows) < len(every.splitlines()) - 8
    kept = shown("all-reduce", "*dot_general.62", "--all")
    assert 0 < len(kept.splitlines()) - 1 < len(every.splitlines()) - 1
    assert all(row.startswith("all-reduce") or "dot_general.62" in row for row in kept.splitlines()[1:])
    done = hloom("schedule", EXAMPLES / "mlp_named.hlo", "nothing", *options, cwd=EXAMPLES)
    assert done.code == 65
    assert "error: no collective fits nothing" in done.err


def test_the_critical_path(folder: Path) -> None:
    done = hloom("schedule", "p.hlo", *MACHINE, "--critical", cwd=folder)
    assert done.code == 0, done.err
    table = done.out.split("\n\n")[1].splitlines()
    assert [line.split() for line in table] == [
        ["critical", "path", "runs", "ms", "each", "share", "source"],
        ["sort", "a", "1", "0.1311", "100.0%"],
        ["0.131", "ms", "along", "this", "path"],
    ]  # fmt: skip
    found = json.loads(hloom("schedule", "p.hlo", *MACHINE, "--critical", "--json", cwd=folder).out)["critical"]
    seconds = pytest.approx(131.072e-6)
    assert found == {"length": seconds, "path": [{"name": "a", "seconds": seconds, "runs": 1, "depth": 0}]}


def test_json(folder: Path) -> None:
    found = json.loads(hloom("schedule", "p.hlo", *MACHINE, "--json", cwd=folder).out)
    assert (found["program"], found["devices"], found["bound"], found["peak"]) == ("m", 2, 1e-4, 155648)
    assert found["exposed"] == pytest.approx(5.096e-6)
    assert [c["state"] for c in found["collectives"]] == ["hidden", "hidden", "exposed"]
    assert "measured" not in found
    assert found["collectives"][0] == {
        "name": "g", "kind": "all-gather", "bytes": 8192, "wire_bytes": 4096, "arrays": 1, "groups": "1 of 2",
        "engine": "communication", "runs": 1, "issued": 0.0, "start": 0.0, "done": pytest.approx(5.096e-6),
        "used": pytest.approx(131.072e-6), "seconds": pytest.approx(5.096e-6), "waited": 0.0, "hidden": 1.0,
        "state": "hidden", "cause": "operand of sort b", "op_name": "late", "source": "",
    }  # fmt: skip


def _events(path: Path, phase: str) -> list[dict[str, Any]]:
    return [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == phase]


def test_a_trace_has_a_row_per_engine(tmp_path: Path) -> None:
    line = ("schedule", EXAMPLES / "mlp_train.hlo", "--machine", "tpu-v4", "--trace", "t.json")
    assert hloom(*line, cwd=tmp_path).code == 0
    trace = json.loads((tmp_path / "t.json").read_text())
    check_schema(trace)
    rows = {r["tid"] for r in trace["traceEvents"] if r["name"] == "thread_name"}
    assert rows == {"compute", "axis 0", "axis 1", "axis 2"}


@pytest.mark.parametrize("name", ["mlp_train", pytest.param("transformer_scan_train", marks=pytest.mark.slow)])
def test_a_trace(name: str, folder: Path) -> None:
    program = SCAN.with_name(f"{name}.hlo")
    done = hloom("schedule", program, "--machine", "cpu-cluster", "--trace", "f.json", "--json", cwd=folder)
    found, path = json.loads(done.out), folder / "f.json"
    check_schema(json.loads(path.read_text()))
    rows: dict[str, list[dict[str, Any]]] = {}
    for event in _events(path, "X"):
        rows.setdefault(event["tid"], []).append(event)
    assert set(rows) == {"compute", "communication"} == {e["tid"] for e in _events(path, "M") if "tid" in e}
    for events in rows.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-2 for a, b in pairwise(events))
    assert {e["name"] for e in rows["communication"]} == {c["name"] for c in found["collectives"]}
    starts, ends = ({e["id"]: e for e in _events(path, phase)} for phase in "sf")
    assert set(starts) == set(ends)
    assert len(starts) == len(rows["communication"])
    assert all(starts[n]["ts"] <= ends[n]["ts"] and ends[n]["tid"] == "compute" for n in starts)
    live = _events(path, "C")
    assert max(e["args"]["bytes"] for e in live) == found["peak"]
    assert all(a["ts"] <= b["ts"] for a, b in pairwise(live))


def _measured(folder: Path, change: Callable[[float], float], ranks: int = 1) -> None:
    """Writes a trace of a run that went as forecast, with changed durations."""
    found = json.loads(hloom("schedule", "p.hlo", *MACHINE, "--json", cwd=folder).out)
    events = [
        {"ph": "X", "name": c["name"], "pid": rank, "tid": "communication", "ts": 1e6 * c["issued"],
         "dur": 1e6 * change(max(c["done"], c["used"]) - c["issued"]), "args": {"waited_us": 1e6 * c["waited"]}}
        for c in found["collectives"] for rank in range(ranks)
    ]  # fmt: skip
    facts = {"seconds": 2 * found["seconds"], "busy": 0.8 * found["seconds"]}
    (folder / "r.json").write_text(json.dumps({"traceEvents": events, "otherData": facts}))


@pytest.mark.parametrize(("factor", "error"), [(1.0, 0.0), (2.0, -0.5), (0.8, 0.25)])
def test_a_measured_run(folder: Path, factor: float, error: float) -> None:
    _measured(folder, lambda seconds: factor * seconds, ranks=3)
    done = hloom("schedule", "p.hlo", *MACHINE, "--measured", "r.json", "--json", cwd=folder)
    found = json.loads(done.out)["measured"]
    assert [c["name"] for c in found["collectives"]] == ["g", "h", "p"]
    assert [c["error"] for c in found["collectives"]] == pytest.approx([error] * 3)
    assert (found["mape"], found["tau"]) == pytest.approx((abs(error), 1.0))
    assert (found["missing"], found["unknown"]) == ([], [])
    text = hloom("schedule", "p.hlo", *MACHINE, "--measured", "r.json", cwd=folder).out
    assert f"3 collectives: mean absolute error {abs(error):.0%}, at worst {error:+.0%}" in text
    assert "whole program: forecast 0.153 ms, measured 0.305 ms (-50%)" in text
    assert "without waits: 0.122 ms on the cores of the host (+25%)" in text


def test_a_run_of_another_program(folder: Path) -> None:
    _measured(folder, lambda seconds: seconds)
    (folder / "p.hlo").write_text(TEXT.replace(" g ", " other ").replace("(g)", "(other)"))
    found = json.loads(hloom("schedule", "p.hlo", *MACHINE, "--measured", "r.json", "--json", cwd=folder).out)
    assert (found["measured"]["missing"], found["measured"]["unknown"]) == (["other"], ["g"])
    text = hloom("schedule", "p.hlo", *MACHINE, "--measured", "r.json", cwd=folder).out
    assert text.splitlines()[-2:] == ["in the forecast alone: other", "in the trace alone: g"]


@pytest.mark.parametrize("command", [("schedule",), ("report", "-o", "r.html")])
def test_a_trace_that_names_another_program(command: Sequence[str], folder: Path) -> None:
    """Its collectives may have the names of those of the forecast, so that the figures would look right."""
    assert hloom("run", NAMED, "--trace", "r.json", cwd=folder).code == 0
    done = hloom(*command, "p.hlo", *MACHINE, "--measured", "r.json", cwd=folder)
    assert (done.code, done.out) == (65, "")
    assert "error: the trace is of the program mlp, not of m\n" in done.err
    assert hloom(*command, NAMED, "--measured", "r.json", cwd=folder).code == 0


@pytest.mark.parametrize(("text", "message"), [
    (None, "cannot read the trace r.json: No such file"), ("{", "r.json is not JSON"), ("[]", "r.json is not a trace"),
    ('{"traceEvents": [1]}', "traceEvents[0] is 1"),
    ('{"traceEvents": [{"ph": "X", "name": [1]}]}', "traceEvents[0] is {"),
    *((f'{{"traceEvents": [{{"ph": "X", "name": "g", "pid": 0, "tid": 1, {fields}}}]}}', "traceEvents[0] is {")
      for fields in ('"ts": "1", "dur": 1', '"ts": NaN, "dur": 1', '"ts": 1', '"ts": 1, "dur": 1, "args": []')),
    ('{"traceEvents": [], "otherData": {"seconds": "1"}}', "otherData.seconds is no number"),
    ('{"traceEvents": [], "otherData": {"seconds": 1, "busy": []}}', "otherData.busy is no number"),
])  # fmt: skip
def test_what_is_no_trace(text: str | None, message: str, folder: Path) -> None:
    if text is not None:
        (folder / "r.json").write_text(text)
    done = hloom("schedule", "p.hlo", "--measured", "r.json", cwd=folder)
    assert (done.code, message in done.err, "hloom run FILE --trace" in done.err) == (65, True, True)


@pytest.mark.parametrize("command", [("schedule", "p.hlo"), ("report", "p.hlo", "-o", "r.html")])
def test_a_forecast_is_no_measurement(command: tuple[str, ...], folder: Path) -> None:
    assert hloom("schedule", "p.hlo", *MACHINE, "--trace", "f.json", cwd=folder).code == 0
    done = hloom(*command, *MACHINE, "--measured", "f.json", cwd=folder)
    assert (done.code, "f.json is a forecast, which hloom schedule --trace wrote" in done.err) == (65, True)


def test_the_trace_of_a_real_run_is_read(folder: Path) -> None:
    done = hloom("run", "p.hlo", "--backend", "reference", "--trace", "r.json", cwd=folder)
    assert done.code == 0, done.err
    found = json.loads(hloom("schedule", "p.hlo", *MACHINE, "--measured", "r.json", "--json", cwd=folder).out)
    assert {c["name"] for c in found["measured"]["collectives"]} == {"g", "h", "p"}
    assert all(c["measured"]["seconds"] > 0 for c in found["measured"]["collectives"])
    assert found["measured"]["seconds"] > 0


def test_a_program_is_scheduled_within_memory(tmp_path: Path) -> None:
    """The order that is shown is that which partitioning with a schedule prints."""
    options = (ROOT / "examples" / "mlp_train.hlo", "--machine", "h100")
    new = json.loads(hloom("schedule", *options, "--json", cwd=tmp_path).out)
    old = json.loads(hloom("schedule", *options, "--as-is", "--json", cwd=tmp_path).out)
    assert new["before"] == {name: old[name] for name in ("seconds", "exposed", "peak")}
    assert old["before"] is None
    assert new["seconds"] < old["seconds"]
    assert new["bound"] <= new["seconds"]
    assert new["gap"] == pytest.approx(new["seconds"] / new["bound"] - 1)
    (tmp_path / "local.hlo").write_text(hloom("partition", *options, "--schedule", cwd=tmp_path).out)
    again = json.loads(hloom("schedule", "local.hlo", "--machine", "h100", "--json", cwd=tmp_path).out)
    assert again["before"] is None
    assert again["seconds"] == pytest.approx(new["seconds"])
    tight = hloom("schedule", *options, "--memory", "2KB", cwd=tmp_path)
    assert (tight.code, "more than the limit of 2 KB" in tight.err) == (65, True)
    both = hloom("schedule", *options, "--memory", "1GB", "--as-is", cwd=tmp_path)
    assert (both.code, "--as-is asks for none" in both.err) == (2, True)


def test_an_order_that_stays_is_held_to_the_memory_given(folder: Path) -> None:
    peak = json.loads(hloom("schedule", "p.hlo", "--json", cwd=folder).out)["peak"]
    assert hloom("schedule", "p.hlo", "--memory", str(peak), cwd=folder).code == 0
    done = hloom("schedule", "p.hlo", "--memory", str(peak - 1), cwd=folder)
    assert (done.code, "m keeps its order, which takes" in done.err) == (65, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--split-batch", "100"), "the batch stays whole: dimension "),
        (("--flat-parameters",), "no all-gather has several parameters as operands"),
    ],
)
def test_an_option_that_does_nothing_says_so_first(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    """Though other remarks cost more, and few are shown."""
    done = hloom("schedule", EXAMPLES / "mlp_train.hlo", *options, cwd=tmp_path)
    assert (done.code, said in done.err.splitlines()[0]) == (0, True)
    assert "more remarks" in done.err


def test_patterns_behind_options(folder: Path) -> None:
    before, behind = (hloom("schedule", "p.hlo", *words, cwd=folder) for words in (
        ("all-gather", *MACHINE), (*MACHINE, "all-gather")))  # fmt: skip
    assert (before, "collective-permute" in before.out) == (behind, False)
    both = hloom("schedule", "p.hlo", "all-gather", *MACHINE, "*permute*", cwd=folder)
    assert (both.code, "collective-permute" in both.out, "all-gather" in both.out) == (0, True, True)
    wrong = hloom("schedule", "p.hlo", *MACHINE, "--al", "all-gather", "--fast", cwd=folder)
    assert (wrong.code, "unrecognized arguments: --fast" in wrong.err) == (2, True)


def test_kendall() -> None:
    assert kendall([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert kendall([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert kendall([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert kendall([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / 6**0.5)
    assert kendall([1, 1], [1, 2]) is None
    assert kendall([], []) is None


def test_a_program_without_collectives(tmp_path: Path) -> None:
    (tmp_path / "one.hlo").write_text("ENTRY e { ROOT x = f32[4] parameter(0) }")
    done = hloom("schedule", "one.hlo", "--devices", "2", "--as-is", cwd=tmp_path)
    assert (done.code, done.out.splitlines()[2:]) == (0, ["collectives: none", "peak memory: 32 bytes at copy"])


def test_ranks_that_come_late_are_no_time_of_the_collective(folder: Path) -> None:
    """Rank 1 starts g 70 us after rank 0, which computes for 30 us and then waits; both have it at 100 us."""
    args = [(0, 0.0, 100.0, 70.0), (1, 70.0, 30.0, 25.0)]
    events = [
        {"ph": "X", "name": "g", "pid": pid, "tid": "communication", "ts": ts, "dur": dur,
         "args": {"waited_us": waited}} for pid, ts, dur, waited in args
    ]  # fmt: skip
    (folder / "r.json").write_text(json.dumps({"traceEvents": events}))
    found = json.loads(hloom("schedule", "p.hlo", *MACHINE, "--measured", "r.json", "--json", cwd=folder).out)
    (row,) = found["measured"]["collectives"]
    assert row["measured"] == pytest.approx({"seconds": 30e-6, "waited": 27.5e-6, "late": 35e-6})
    assert found["measured"]["seconds"] is None
    assert found["measured"]["tau"] is None
