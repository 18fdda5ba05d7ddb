"""The forecast of a schedule beside a measured run: per collective, and how well the forecast orders them.

A trace has the time of a collective from its start until its result is used, which is what its forecast is compared
with: from its issue to its end or its first use, whichever comes later. Ranks are not equally fast, and all wait for
the last one: what passes until it has started is not the collective's time, and is shown apart. Of several trips the
mean counts, of several ranks the median.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from ..ir.diagnostics import fail
from ..ir.user_files import read_bytes
from .columns import columns
from .schedule import Schedule, Scheduled, ms

_COMMUNICATION = "communication"
_TIMES = ("seconds", "busy")  # of a whole run
_HELP = "hloom run FILE --trace F.json writes a trace"


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """The seconds of a collective from its start to its first use, and those in which nothing else was done, both from
    the time on at which the last rank has started it. It was `late` by so many seconds.
    """

    seconds: float
    waited: float
    late: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A collective in forecast and measurement. `error` is signed and relative to the measured time."""

    name: str
    kind: str
    bytes: int
    forecast: MeasuredSpan
    measured: MeasuredSpan

    @property
    def error(self) -> float:
        return self.forecast.seconds / self.measured.seconds - 1 if self.measured.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """An event of a trace, in seconds: `track` is its row, such as `compute`."""

    track: str
    name: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """All collectives that are in both. `mape` is the mean of the errors without signs, `tau` Kendall's rank
    correlation of the times: 1 if both order all collectives alike, 0 if by chance. Both are None if there are too few.

    `missing` are in the forecast alone, `unknown` in the trace alone. `seconds` and `measured` are those of the whole
    program, `busy` those that ranks of one host need on its cores without waits; None if the trace does not say.
    `spans` are the events of the first process.
    """

    rows: tuple[Comparison, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    mape: float | None
    tau: float | None
    seconds: float
    measured: float | None
    busy: float | None
    spans: tuple[TraceSpan, ...]


def compare(found: Schedule, program: str, trace: Mapping[str, Any]) -> Agreement:
    """Compares the forecast of the program of this name with the trace of a run of it. Raises CompileError if the trace
    names another one, whose collectives may have the same names.
    """
    facts: Any = trace.get("otherData")
    facts = cast(dict[str, Any], facts) if isinstance(facts, dict) else {}
    if facts.get("program", program) != program:
        fail(f"the trace is of the program {facts['program']}, not of {program}", help=_HELP)
    spans = _spans(trace)
    rows = tuple(Comparison(c.name, c.kind, c.bytes, _forecast(c), spans[c.name])
                 for c in found.collectives if c.name in spans)  # fmt: skip
    names = {c.name for c in found.collectives}
    measured, busy = (facts.get(name) for name in _TIMES)
    return Agreement(
        rows, tuple(sorted(names - set(spans))), tuple(sorted(set(spans) - names)),
        statistics.fmean(abs(r.error) for r in rows) if rows else None,
        kendall([r.forecast.seconds for r in rows], [r.measured.seconds for r in rows]),
        found.seconds, measured, busy, tuple(_of_first_process(trace)),
    )  # fmt: skip


def _of_first_process(trace: Mapping[str, Any]) -> Iterator[TraceSpan]:
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    first = min((e["pid"] for e in events), default=0)
    for e in sorted((e for e in events if e["pid"] == first), key=lambda e: e["ts"]):
        yield TraceSpan(str(e.get("tid")), e["name"], e["ts"] * 1e-6, e["dur"] * 1e-6)


def _forecast(c: Scheduled) -> MeasuredSpan:
    return MeasuredSpan(max(c.used, c.done) - c.issued, c.waited)


def kendall(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Returns Kendall's tau-b of two lists of numbers: the pairs that both order alike less those that they order
    differently, over the geometric mean of the pairs that each orders. None if a list orders none.
    """
    pairs = [np.sign(np.subtract.outer(x, x)) for x in (np.asarray(left, float), np.asarray(right, float))]
    ordered = [float(np.abs(p).sum()) for p in pairs]
    if not all(ordered):
        return None
    return float((pairs[0] * pairs[1]).sum()) / (ordered[0] * ordered[1]) ** 0.5


def load_trace(path: str) -> dict[str, Any]:
    """Reads a trace that `hloom run --trace` wrote. Raises CompileError."""
    try:
        found = json.loads(read_bytes(path))
    except OSError as error:
        fail(f"cannot read the trace {path}: {error.strerror or error}", help=_HELP)
    except (ValueError, RecursionError) as error:
        fail(f"{path} is not JSON: {error}", help=_HELP)
    if not isinstance(found, dict) or not isinstance(cast(dict[str, Any], found).get("traceEvents"), list):
        fail(f"{path} is not a trace: it has no traceEvents", help=_HELP)
    trace = cast(dict[str, Any], found)
    for number, event in enumerate(trace["traceEvents"]):
        if not _is_event(event):
            fail(f"{path} is not a trace of hloom run: traceEvents[{number}] is {json.dumps(event)[:80]}", help=_HELP)
    facts: Any = trace.get("otherData", {})
    if isinstance(facts, dict) and "machine" in facts:
        fail(f"{path} is a forecast, which hloom schedule --trace wrote, and not the trace of a run", help=_HELP)
    for name in _TIMES:
        seconds = cast(dict[str, Any], facts).get(name) if isinstance(facts, dict) else ""
        if seconds is not None and not _is_time(seconds):
            fail(f"{path} is not a trace of hloom run: otherData.{name} is no number", help=_HELP)
    return trace


def _is_event(event: Any) -> bool:
    """Returns whether an event is one that `compare` reads, or passes over."""
    if not isinstance(event, dict):
        return False
    fields = cast(dict[str, Any], event)
    if fields.get("ph") != "X":
        return True
    args: Any = fields.get("args", {})
    waited = cast(dict[str, Any], args).get("waited_us", 0.0) if isinstance(args, dict) else None
    times: tuple[Any, ...] = (fields.get("ts"), fields.get("dur"), waited)
    named = isinstance(fields.get("name"), str) and isinstance(fields.get("pid"), int)
    return named and all(map(_is_time, times)) and min(times[1:]) >= 0


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _spans(trace: Mapping[str, Any]) -> dict[str, MeasuredSpan]:
    """Returns the collectives of a trace: the median over ranks of the mean over trips."""
    records: dict[str, dict[Any, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    spans = (e for e in trace["traceEvents"] if e.get("ph") == "X" and str(e.get("tid")).startswith(_COMMUNICATION))
    for event in sorted(spans, key=lambda e: e["ts"]):
        records[event["name"]][event["pid"]].append(event)
    return {name: _span(list(by_rank.values())) for name, by_rank in records.items()}


def _span(by_rank: Sequence[Sequence[dict[str, Any]]]) -> MeasuredSpan:
    """Returns the span of a collective, from the time at which the last rank starts it."""
    found: list[list[MeasuredSpan]] = [[] for _ in by_rank]
    for trip in zip(*by_rank, strict=False):
        last = max(event["ts"] for event in trip)
        for spans, event in zip(found, trip, strict=True):
            end, waited = event["ts"] + event["dur"], event.get("args", {}).get("waited_us", 0.0)
            alone = min(max(last - (end - waited), 0.0), waited)
            late = last - event["ts"]
            spans.append(MeasuredSpan(max(event["dur"] - late, 0.0) * 1e-6, (waited - alone) * 1e-6, late * 1e-6))
    means = [[statistics.fmean(values) for values in zip(*((s.seconds, s.waited, s.late) for s in spans), strict=True)]
             for spans in found]  # fmt: skip
    return MeasuredSpan(*(statistics.median(values) for values in zip(*means, strict=True)))


def agreement_record(found: Agreement) -> dict[str, Any]:
    """Returns the comparison as JSON has it."""
    return {
        "collectives": [asdict(r) | {"error": r.error} for r in found.rows], "missing": found.missing,
        "unknown": found.unknown, "mape": found.mape, "tau": found.tau, "seconds": found.measured,
        "busy": found.busy,
    }  # fmt: skip


def agreement_text(found: Agreement) -> str:
    """Returns one line per collective, and the figures of the whole."""
    head = ("collective", "bytes", "forecast ms", "measured ms", "error", "waits", "waited", "last rank late")
    rows = [
        (f"{r.kind} {r.name}", f"{r.bytes:,}", *(f"{1e3 * s:.4g}" for s in (r.forecast.seconds, r.measured.seconds)),
         f"{r.error:+.0%}", *(f"{1e3 * s:.4g}" for s in (r.forecast.waited, r.measured.waited, r.measured.late)))
        for r in found.rows
    ]  # fmt: skip
    lines = [columns([head, *rows], (False, *(True,) * 7)), ""]
    mape = f"{found.mape:.0%}" if found.mape is not None else "-"
    tau = f"{found.tau:.2f}" if found.tau is not None else "-"
    worst = max(found.rows, key=lambda r: abs(r.error), default=None)
    at_worst = f", at worst {worst.error:+.0%} ({worst.name})" if worst is not None else ""
    lines.append(f"{len(found.rows)} collectives: mean absolute error {mape}{at_worst}; Kendall's tau {tau}")
    if found.measured is not None:
        lines.append(f"whole program: forecast {ms(found.seconds)}, measured {ms(found.measured)} "
                     f"({found.seconds / found.measured - 1:+.0%})")  # fmt: skip
    if found.busy:
        lines.append(f"without waits: {ms(found.busy)} on the cores of the host "
                     f"({found.seconds / found.busy - 1:+.0%})")  # fmt: skip
    for names, where in ((found.missing, "forecast"), (found.unknown, "trace")):
        if names:
            lines.append(f"in the {where} alone: {', '.join(names[:8])}{', ..' * (len(names) > 8)}")
    return "\n".join(lines)
