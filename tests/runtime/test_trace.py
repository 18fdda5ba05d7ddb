"""Where the time of a traced run went."""

from __future__ import annotations

import numpy as np
from hloom.cli.bench import Waits, waits_of
from hloom.runtime.trace import COMMUNICATION, COMPUTE, ProcessTrace, Trace, TraceEvent


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
