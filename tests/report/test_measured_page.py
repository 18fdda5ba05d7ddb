"""`hloom report --measured`: the times of a run beside the forecast's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command_line import EXAMPLES, NAMED
from support.command_line import hloom as command

TRAIN = EXAMPLES / "mlp_train.hlo"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    done = command("run", TRAIN, "--trace", "t.json", "--backend", "reference", "--repeat", "2", cwd=folder)
    assert done.code == 0, done.err
    return folder / "t.json"


def test_each_collective_has_both_times(trace: Path, tmp_path: Path) -> None:
    done = command("report", TRAIN, "--measured", trace, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    (plan,) = json.loads(done.out)["plans"]
    said = command("schedule", TRAIN, "--as-is", "--measured", trace, "--json", cwd=tmp_path)
    found = plan["measured"]
    assert found["missing"] == found["unknown"] == []
    assert len(found["collectives"]) == len(plan["collectives"]) == 6
    for row in found["collectives"]:
        assert plan["collectives"][row.pop("collective")]["name"] == row["name"]
    drawn = {key: found.pop(key) for key in ("tracks", "spans", "end")}
    assert found == json.loads(said.out)["measured"]
    _drawn_as_traced(plan, drawn, json.loads(trace.read_text())["traceEvents"])


def _drawn_as_traced(plan: dict[str, Any], drawn: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Spans of collectives are those of the trace, and computation takes as long in both, but for short pauses."""
    traced = [e for e in events if e["ph"] == "X"]
    assert set(drawn["tracks"]) == {e["tid"] for e in traced}
    names = [(plan["collectives"][n]["name"], start) for track, n, start, _ in drawn["spans"]
             if drawn["tracks"][track] != "compute"]  # fmt: skip
    assert names == [(e["name"], pytest.approx(e["ts"] * 1e-6)) for e in traced if e["tid"] != "compute"]
    ends = [(e["ts"] + e["dur"]) * 1e-6 for e in traced]
    assert drawn["end"] == pytest.approx(max(plan["timeline"]["seconds"], *ends))
    computed = sum(s for track, _, _, s in drawn["spans"] if drawn["tracks"][track] == "compute")
    wanted = sum(e["dur"] * 1e-6 for e in traced if e["tid"] == "compute")
    assert wanted <= computed * 1.01
    assert computed <= wanted + len(traced) * drawn["end"] / 1000


def test_the_page_shows_them(trace: Path, tmp_path: Path) -> None:
    done = command("report", TRAIN, "--measured", trace, "-o", "r.html", cwd=tmp_path)
    assert done.code == 0, done.err
    page = (tmp_path / "r.html").read_text()
    assert "<h2>Measured</h2>" in page
    assert page.count("data-collective=") == 6
    assert "6 collectives: mean absolute error " in page
    found = json.loads(trace.read_text())
    assert "A step took " in page
    assert found["otherData"]["seconds"] > 0
    assert "Without waits" not in page  # all devices of one process
    found["otherData"]["busy"] = 0.5
    (tmp_path / "busy.json").write_text(json.dumps(found))
    done = command("report", TRAIN, "--measured", "busy.json", "-o", "r.html", cwd=tmp_path)
    assert "Without waits it took 500 ms on the cores of its host (-100%)." in (tmp_path / "r.html").read_text()


def test_what_does_not_fit(trace: Path, tmp_path: Path) -> None:
    done = command("report", NAMED, "--measured", trace, "-o", "r.html", cwd=tmp_path)
    assert (done.code, "the trace is of the program jit_train_step, not of mlp" in done.err) == (65, True)
    found = json.loads(trace.read_text())
    found["otherData"]["program"] = "mlp"
    (tmp_path / "renamed.json").write_text(json.dumps(found))
    done = command("report", NAMED, "--measured", "renamed.json", "-o", "r.html", cwd=tmp_path)
    assert done.code == 0, done.err
    page = (tmp_path / "r.html").read_text()
    assert "In the forecast alone: all-reduce, all-reduce.1." in page or "In the trace alone: " in page
    (tmp_path / "bad.json").write_text("{}")
    done = command("report", NAMED, "--measured", "bad.json", "-o", "r.html", cwd=tmp_path)
    assert (done.code, "bad.json is not a trace" in done.err) == (65, True)
    done = command("report", NAMED, "--measured", trace, "--strategy", "a", "--strategy", "b", "-o", "r", cwd=tmp_path)
    assert done.code == 2


def test_names_of_a_trace_stay_text(trace: Path, tmp_path: Path) -> None:
    found = json.loads(trace.read_text())
    first = next(e for e in found["traceEvents"] if e.get("cat") == "communication")
    found["traceEvents"].append(first | {"name": "<img src=x onerror=alert(1)>"})
    (tmp_path / "t.json").write_text(json.dumps(found))
    done = command("report", TRAIN, "--measured", "t.json", "-o", "r.html", cwd=tmp_path)
    assert done.code == 0, done.err
    page = (tmp_path / "r.html").read_text()
    assert "In the trace alone: &lt;img src=x onerror=alert(1)&gt;." in page
    assert "<img" not in page
