"""Implements `hloom bench --ranks N`: runs a program repeatedly on MPI ranks, and prints which ranks wait, and why."""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..driver.devices import Ranks, trace_facts
from ..report.columns import columns
from ..report.work import share
from ..runtime.ranks.launch import world
from ..runtime.trace import COMMUNICATION, ProcessTrace, save_trace
from .exit_codes import EXIT_OK
from .job import Job, job_on_ranks
from .messages import print_json
from .progress import working
from .streams import say

_SHOWN = 8  # collectives
_RANKS_HEAD = ("rank", "ms", "computing", "starting", "waiting", "other")
_COLLECTIVES_HEAD = ("collective", "kind", "operands", "bytes", "runs", "in flight ms", "waited ms", "hidden")


@dataclass
class Waits:
    """One collective instruction in the last run: how often it ran, and the milliseconds that it was in flight and
    waited for, on the rank that waited longest.
    """

    name: str
    kind: str
    operands: int
    bytes: int
    runs: int = 0
    in_flight: float = 0.0
    waited: float = 0.0


def bench_on_ranks(args: argparse.Namespace) -> int:
    """Runs `hloom bench` on the ranks of this job and returns its exit code. Raises the errors of `hloom run`."""
    comm = world(args.ranks)
    job = job_on_ranks(args, comm)
    with Ranks(comm, args.timeout, job.program.backend, args.collectives) as ranks:
        with working(f"running {args.repeat + 1} times"):
            _, seconds, traces = ranks.traced(job.program.local, job.inputs, args.repeat + 1)
        if traces is not None:
            if args.trace is not None:
                save_trace(args.trace, traces, trace_facts(job.program.local, job.program.backend, seconds))
            _report(args, job, seconds, traces)
        return ranks.share(EXIT_OK)


def _report(args: argparse.Namespace, job: Job, seconds: Sequence[float], traces: Sequence[ProcessTrace]) -> None:
    program = job.program
    median = statistics.median(seconds[1:])
    waits = sorted(waits_of(traces), key=lambda w: -w.waited)
    if args.json:
        print_json({
            "program": program.module.name, "devices": program.devices, "backend": program.backend.name,
            "seconds": {"first": seconds[0], "median": median, "runs": args.repeat},
            "ranks": [asdict(t.trace.parts) for t in traces], "collectives": [asdict(w) for w in waits],
        })  # fmt: skip
        return
    say(f"{program.module.name}: {program.devices} devices on {len(traces)} MPI ranks, {backend_text(args, job)}")
    say(f"first step {seconds[0] * 1e3:.3g} ms, median of {args.repeat} {median * 1e3:.3g} ms; the last one:")
    rows: list[tuple[str, ...]] = [_RANKS_HEAD]
    for trace in traces:
        found = trace.trace.parts
        parts = (found.computing, found.starting, found.waiting, found.other)
        rows.append((str(trace.number), f"{found.whole * 1e3:.3g}", *(share(part, found.whole) for part in parts)))
    say(columns(rows, [True] * len(_RANKS_HEAD)))
    lines = [(w.name, w.kind, str(w.operands), f"{w.bytes:,}", str(w.runs), f"{w.in_flight:.3g}", f"{w.waited:.3g}",
              share(w.in_flight - w.waited, w.in_flight)) for w in waits[:_SHOWN]]  # fmt: skip
    if lines:
        say(columns([_COLLECTIVES_HEAD, *lines], (False, False, *[True] * 6)))
    if len(waits) > _SHOWN:
        say(f"and {len(waits) - _SHOWN} more collectives, waited for {sum(w.waited for w in waits[_SHOWN:]):.3g} ms")


def backend_text(args: argparse.Namespace, job: Job) -> str:
    """Tells which backend has run, and why."""
    return f"backend {job.program.backend.name} ({job.program.backend.reason(args.backend)})"


def waits_of(traces: Sequence[ProcessTrace]) -> list[Waits]:
    """Returns the waits of each collective, on the rank that waited longest for it."""
    worst: dict[str, Waits] = {}
    for process in traces:
        mine: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        facts = {e.name: e.facts for e in process.trace.events if e.track == COMMUNICATION}
        for event in process.trace.events:
            if event.track == COMMUNICATION:
                mine[event.name].append((1e3 * (event.end - event.start), event.facts["waited_us"] / 1e3))
        for name, times in mine.items():
            said = facts[name]
            found = Waits(name, said["kind"], said["members"], said["bytes"], len(times), *map(sum, zip(*times)))
            if name not in worst or found.waited > worst[name].waited:
                worst[name] = found
    return list(worst.values())
