"""Implements `hloom bench`: runs a program repeatedly, and prints where the time goes, or with `--ranks N` which ranks
wait, and why.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import asdict

from ..driver.backend import NATIVE
from ..driver.devices import Simulated, write_trace
from ..driver.parts import seconds_of_parts, work_of_parts
from ..ir.disk_cache import folder
from ..report.columns import columns
from ..report.work import share
from ..runtime.allocator import keep_freed_memory
from ..runtime.measure import Part, peak_bytes, peak_flops
from ..runtime.ranks.launch import inside_launcher, launch, world
from ..runtime.trace import ProcessTrace
from ..runtime.waits import waits_of
from .evaluate import inputs_for
from .exit_codes import EXIT_OK
from .job import Job, job_on_ranks, prepare
from .messages import print_json
from .streams import say, working

_HEAD = ("part", "ms", "share", "reached", "of the peak")
_RIGHT = (False, True, True, True, True)


def bench(args: argparse.Namespace) -> int:
    """Runs `hloom bench` and returns its exit code. Raises the errors of `hloom run`."""
    keep_freed_memory()
    if inside_launcher() and (args.ranks is not None or args.devices is None):
        return bench_on_ranks(args)
    job = prepare(args, args.ranks)
    if args.ranks is not None:
        return launch(args.argv, args.ranks, left=job.packed())
    job.inputs = inputs_for(args, job.program.module, args.seed)
    program = job.program
    with working(f"running {args.repeat + 1} times"):
        _, seconds = Simulated(program).repeat(program.local, job.inputs, args.repeat + 1, args.trace)
    with working("measuring parts"):
        parts = seconds_of_parts(program, job.inputs)
    with working("measuring the machine"):
        flops, memory = peak_flops(), peak_bytes()
    median = statistics.median(seconds[1:])
    fused = program.backend.prepared(program.local)
    done = work_of_parts(fused, program.devices)
    if args.json:
        print_json({
            "program": program.module.name, "devices": program.devices, "backend": program.backend.name,
            "seconds": {"compile": sum(job.seconds.values()), "parts": job.seconds, "first": seconds[0],
                        "median": median, "runs": args.repeat},
            "parts": {part.value: parts[part] for part in Part}, "flops": done[Part.PRODUCTS],
            "touched_bytes": done[Part.FUSED] + done[Part.OTHER], "peak": {"flops": flops, "bytes": memory},
        })  # fmt: skip
        return EXIT_OK
    say(f"{program.module.name}: {program.devices} simulated devices, {backend_text(args, job)}")
    say(", ".join(f"{part} {spent:.3g} s" for part, spent in job.seconds.items()) + _kept(job))
    say(f"first step {seconds[0] * 1e3:.3g} ms, median of {args.repeat} {median * 1e3:.3g} ms")
    whole = sum(parts.values())
    rows = [_row(part, parts[part], whole, done[part], flops if part is Part.PRODUCTS else memory) for part in Part]
    say(columns([_HEAD, *rows], _RIGHT))
    say(f"peak here: {flops / 1e9:.3g} GF/s (product of f32 matrices), {memory / 1e9:.3g} GB/s (copy)")
    return EXIT_OK


def _kept(job: Job) -> str:
    """Notes that compile times exclude kernels loaded from the cache of machine code; empty if nothing is cached."""
    keeps = job.program.backend.name == NATIVE and folder() is not None
    return "; machine code of kernels is kept from earlier runs, all else is made anew" if keeps else ""


def _row(part: Part, seconds: float, whole: float, done: int, peak: float) -> tuple[str, ...]:
    """Returns the row of a part that does so many operations, or reads and writes so many bytes."""
    cells = part.value, f"{seconds * 1e3:.3g}", share(seconds, whole)
    if not done or not seconds:
        return *cells, "-", "-"
    unit = "GF/s" if part is Part.PRODUCTS else "GB/s"
    return *cells, f"{done / seconds / 1e9:.3g} {unit}", share(done / seconds, peak)


_SHOWN = 8  # collectives
_RANKS_HEAD = ("rank", "ms", "computing", "starting", "waiting", "other")
_COLLECTIVES_HEAD = ("collective", "kind", "operands", "bytes", "runs", "in flight ms", "waited ms", "hidden")


def bench_on_ranks(args: argparse.Namespace) -> int:
    """Runs `hloom bench` on the ranks of this job and returns its exit code. Raises the errors of `hloom run`."""
    from ..driver.ranks import Ranks

    comm = world(args.ranks)
    job = job_on_ranks(args, comm)
    with Ranks(comm, args.timeout, job.program.backend, args.collectives) as ranks:
        with working(f"running {args.repeat + 1} times"):
            _, seconds, traces = ranks.traced(job.program.local, job.inputs, args.repeat + 1)
        if traces is not None:
            if args.trace is not None:
                write_trace(args.trace, traces, job.program.local, job.program.backend, seconds)
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
