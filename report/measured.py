"""The forecast of a schedule beside a measured run: per collective, and how well the forecast orders them.

A trace has the time of a collective from its start until its result is used, which is what its forecast is compared
with: from its issue to its end or its first use, whichever comes later. Of several trips the mean counts, of several
ranks the median.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..ir.diagnostics import fail
from .columns import columns
from .schedule import Schedule, Scheduled, ms

_COMMUNICATION = "communication"
_HELP = "hloom run FILE --trace F.json writes a trace"


@dataclass(frozen=True, slots=True)
class Span:
    """The seconds of a collective from its start to its first use, and those in which nothing else was done."""

    seconds: float
    waited: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A collective in forecast and measurement. `error` is signed and relative to the measured time."""

    name: str
    kind: str
    bytes: int
    forecast: Span
    measured: Span

    @property
    def error(self) -> float:
        return self.forecast.seconds / self.measured.seconds - 1 if self.measured.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """All collectives that are in both. `mape` is the mean of the errors without signs, `tau` Kendall's rank
    correlation of the times: 1 if both order all collectives alike, 0 if by chance. Both are None if there are too few.

    `missing` are in the forecast alone, `unknown` in the trace alone. `seconds` and `measured` are those of the whole
    program, None if the trace does not say.
    """

    rows: tuple[Comparison, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    mape: float | None
    tau: float | None
    seconds: float
    measured: float | None


def compare(found: Schedule, trace: Mapping[str, Any]) -> Agreement:
    """Compares a forecast with the trace of a run of the same program."""
    spans = _spans(trace)
    rows = tuple(Comparison(c.name, c.kind, c.bytes, _forecast(c), spans[c.name])
                 for c in found.collectives if c.name in spans)  # fmt: skip
    names = {c.name for c in found.collectives}
    facts: Any = trace.get("otherData")
    measured = cast(dict[str, Any], facts).get("seconds") if isinstance(facts, dict) else None
    return Agreement(
        rows, tuple(sorted(names - set(spans))), tuple(sorted(set(spans) - names)),
        statistics.fmean(abs(r.error) for r in rows) if rows else None,
        kendall([r.forecast.seconds for r in rows], [r.measured.seconds for r in rows]),
        found.seconds, measured,
    )  # fmt: skip


def _forecast(c: Scheduled) -> Span:
    return Span(max(c.used, c.done) - c.issued, c.waited)


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
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"cannot read the trace {path}: {error.strerror or error}", help=_HELP)
    except ValueError as error:
        fail(f"{path} is not JSON: {error}", help=_HELP)
    if not isinstance(found, dict) or not isinstance(cast(dict[str, Any], found).get("traceEvents"), list):
        fail(f"{path} is not a trace: it has no traceEvents", help=_HELP)
    return cast(dict[str, Any], found)


def _spans(trace: Mapping[str, Any]) -> dict[str, Span]:
    """Returns the collectives of a trace: the median over ranks of the mean over trips."""
    times: dict[str, dict[Any, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event.get("tid") == _COMMUNICATION:
            waited = event.get("args", {}).get("waited_us", 0.0)
            times[event["name"]][event.get("pid")].append(Span(event["dur"] * 1e-6, waited * 1e-6))
    return {
        name: Span(statistics.median(statistics.fmean(s.seconds for s in spans) for spans in by_rank.values()),
                   statistics.median(statistics.fmean(s.waited for s in spans) for spans in by_rank.values()))
        for name, by_rank in times.items()
    }  # fmt: skip


def agreement_text(found: Agreement) -> str:
    """Returns one line per collective, and the figures of the whole."""
    head = ("collective", "bytes", "forecast ms", "measured ms", "error", "waits", "waited")
    rows = [
        (f"{r.kind} {r.name}", f"{r.bytes:,}", *(f"{1e3 * s:.4g}" for s in (r.forecast.seconds, r.measured.seconds)),
         f"{r.error:+.0%}", *(f"{1e3 * s:.4g}" for s in (r.forecast.waited, r.measured.waited)))
        for r in found.rows
    ]  # fmt: skip
    lines = [columns([head, *rows], (False, *(True,) * 6)), ""]
    mape = f"{found.mape:.0%}" if found.mape is not None else "-"
    tau = f"{found.tau:.2f}" if found.tau is not None else "-"
    worst = max(found.rows, key=lambda r: abs(r.error), default=None)
    at_worst = f", at worst {worst.error:+.0%} ({worst.name})" if worst is not None else ""
    lines.append(f"{len(found.rows)} collectives: mean absolute error {mape}{at_worst}; Kendall's tau {tau}")
    if found.measured is not None:
        lines.append(f"whole program: forecast {ms(found.seconds)}, measured {ms(found.measured)} "
                     f"({found.seconds / found.measured - 1:+.0%})")  # fmt: skip
    for names, where in ((found.missing, "forecast"), (found.unknown, "trace")):
        if names:
            lines.append(f"in the {where} alone: {', '.join(names[:8])}{', ..' * (len(names) > 8)}")
    return "\n".join(lines)
