"""Where the time of a traced run went."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hloom.runtime.trace import COMMUNICATION, COMPUTE, ProcessTrace, Trace, TraceEvent, save_trace
from hloom.runtime.waits import Waits, waits_of
from support.trace_schema import check_schema


def _collective(name: str, start: float, end: float, waited: float) -> TraceEvent:
    facts = {"kind": "all-gather", "members": 2, "bytes": 8, "started_us": 1e5, "waited_us": 1e6 * waited}
    return TraceEvent(name, COMMUNICATION, start, end, facts)


def test_parts() -> None:
    trace = Trace(
        [TraceEvent("a", COMPUTE, 1, 2, {}), _collective("g", 2, 4, 0.5), TraceEvent("b", COMPUTE, 2.5, 3, {})]
    )
    found = trace.parts
    wanted = (3, 1.5, 0.1, 0.5, 0.9)
    np.testing.assert_allclose([found.whole, found.computing, found.starting, found.waiting, found.other], wanted)
    assert Trace().parts.whole == 0


def test_the_rank_that_waits_longest_counts() -> None:
    first = Trace([_collective("g", 0, 1, 0.25), _collective("g", 1, 2, 0.5), _collective("h", 2, 3, 0.5)])
    second = Trace([_collective("g", 0, 1, 0), _collective("g", 1, 2, 0.5), _collective("h", 2, 4, 1)])
    found = waits_of([ProcessTrace(0, "", first), ProcessTrace(1, "", second)])
    assert found == [Waits("g", "all-gather", 2, 8, 2, 2000, 750),
                     Waits("h", "all-gather", 2, 8, 1, 2000, 1000)]  # fmt: skip


def test_rows_do_not_overlap_and_arrows_lead_from_the_last_rank(tmp_path: Path) -> None:
    """g and h are in flight together; rank 1 comes to g late, and again to the second g early."""
    first = Trace([_collective("g", 0, 5, 0), _collective("h", 1, 3, 0), _collective("g", 6, 8, 1)])
    second = Trace([_collective("g", 4, 5, 0), _collective("h", 1, 3, 0), _collective("g", 5.5, 8, 1)])
    save_trace(tmp_path / "t.json", [ProcessTrace(0, "a", first), ProcessTrace(1, "b", second)], {})
    trace = json.loads((tmp_path / "t.json").read_text())
    check_schema(trace)
    records = trace["traceEvents"]
    rows = {(r["pid"], r["tid"]): r["name"] for r in records if r["ph"] == "X" and r["tid"].endswith("2")}
    assert rows == {(0, "communication 2"): "h"}
    arrows = {r["id"]: r for r in records if r["ph"] == "s"}
    ends = {r["id"]: r for r in records if r["ph"] == "f"}
    assert [(arrows[n]["pid"], arrows[n]["ts"], ends[n]["pid"], ends[n]["ts"]) for n in arrows] == [
        (1, 4e6, 0, 5e6), (0, 1e6, 1, 3e6), (0, 6e6, 1, 8e6)]  # fmt: skip
