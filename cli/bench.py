"""Implements `hloom bench`: runs a program repeatedly, simulated or on ranks, and prints where the time goes."""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict

from ..cost.memory_traffic import touched
from ..cost.runs import runs
from ..cost.work import multiply_adds
from ..driver.backend import NATIVE
from ..driver.devices import Simulated
from ..ir.disk_cache import folder
from ..ir.graph.module import Module
from ..report.columns import columns
from ..report.work import share
from ..runtime.allocator import keep_freed_memory
from ..runtime.measure import Part, StepByStep, StepTimes, peak_bytes, peak_flops
from ..runtime.ranks.launch import inside_launcher, launch
from ..runtime.simulator import SimulatedProgram
from .bench_ranks import backend_text, bench_on_ranks
from .evaluate import inputs_for
from .exit_codes import EXIT_OK
from .job import Job, prepare
from .messages import print_json
from .progress import working
from .streams import say

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
        devices = Simulated(program.local, program.simulated, program.backend)
        _, seconds = devices.repeat(program.local, job.inputs, args.repeat + 1, args.trace)
    with working("measuring parts"):
        parts = _parts(job)
    with working("measuring the machine"):
        flops, memory = peak_flops(), peak_bytes()
    median = statistics.median(seconds[1:])
    fused = program.backend.prepared(program.local)
    done = _work(fused, program.devices)
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


def _parts(job: Job) -> dict[Part, float]:
    """Returns the seconds of each part in one run of all devices, the second."""
    program = job.program
    backend = program.backend
    simulated = SimulatedProgram(backend.prepared(program.local), StepByStep(backend.kernels()))
    simulated.simulate(job.inputs)
    times = StepTimes()
    simulated.simulate(job.inputs, observer=times)
    return times.seconds


def _work(fused: Module, devices: int) -> dict[Part, int]:
    """Returns the operations of all products, and the bytes that other parts read and write; loops of unknown length
    count once.
    """
    done: defaultdict[Part, int] = defaultdict(int)
    for run in runs(fused):
        part, instruction = Part.of_op(run.instruction), run.instruction
        size = 2 * multiply_adds(instruction) if part is Part.PRODUCTS else touched(instruction)
        done[part] += devices * run.count * size
    return done
