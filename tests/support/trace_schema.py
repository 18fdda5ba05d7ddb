"""The rules of Chrome's tracing format that Perfetto relies on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

Record = dict[str, Any]


def check_schema(trace: Record) -> None:
    """Asserts that records have their fields, rows have names and no overlapping events, and arrows begin and end in
    events; counters count on in each process.
    """
    records: list[Record] = trace["traceEvents"]
    assert {r["ph"] for r in records} <= {"M", "X", "s", "f", "C"}
    assert all(isinstance(r["pid"], int) for r in records)
    named = {(r["pid"], r["tid"]) for r in records if r["name"] == "thread_name"}
    rows: dict[tuple[int, str], list[Record]] = {}
    for record in (r for r in records if r["ph"] == "X"):
        assert record["ts"] >= 0
        assert record["dur"] >= 0
        rows.setdefault((record["pid"], record["tid"]), []).append(record)
    assert set(rows) <= named
    for events in rows.values():
        ordered = sorted(events, key=lambda e: e["ts"])
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in pairwise(ordered))
    arrows: dict[tuple[str, int], list[Record]] = {}
    for record in (r for r in records if r["ph"] in "sf"):
        assert record["ph"] == "s" or record["bp"] == "e"
        arrows.setdefault((record["cat"], record["id"]), []).append(record)
    for ends in arrows.values():
        assert [e["ph"] for e in ends] == ["s", "f"]
        assert ends[0]["ts"] <= ends[1]["ts"] + 0.01
        start = ends[0]
        events = rows[start["pid"], start["tid"]]
        assert any(e["ts"] <= start["ts"] + 0.01 and start["ts"] <= e["ts"] + e["dur"] + 0.01 for e in events)
        assert (ends[1]["pid"], ends[1]["tid"]) in named
    counts = [r for r in records if r["ph"] == "C"]
    for process in {r["pid"] for r in counts}:
        times = [r["ts"] for r in counts if r["pid"] == process]
        assert times == sorted(times)
    assert all(type(value) in (int, float) and value >= 0 for r in counts for value in r["args"].values())
    assert all(set(r["args"]) == {"name"} for r in records if r["ph"] == "M")
