"""Prepares a run: reads and partitions the program, once for all MPI ranks.

The process that starts ranks prepares the run and leaves it to them; under the user's own launcher rank 0 prepares it.
Either way rank 0 sends it to the others.

`hloom run` keeps what it has made of a program, so that the next run of it begins at once. Options that come after the
program is made, such as those of inputs and outputs, are not part of the key. Programs that are no files, and those
with Python files of their own (`--import`), are made anew each time.
"""

from __future__ import annotations

import argparse
import math
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..driver.kept import key_of, load, store
from ..driver.program import Program
from ..ir.diagnostics import Diagnostics, fail
from ..ir.tools.spmd import is_per_device
from ..ir.types.literal import Array
from ..report.progress import timed
from ..runtime.inputs.inputs import inputs_for_module
from ..runtime.outputs import check_outputs
from ..runtime.ranks.failed import broadcast, on_all_ranks
from ..runtime.ranks.launch import inside_launcher, left_for_ranks, started_by_hloom
from ..runtime.trace import check_trace
from .messages import tell_found

_LATER = frozenset({
    "argv", "inputs", "seed", "seeds", "out", "trace", "timeout", "json", "tolerance", "allow_nan", "collectives",
    "werror", "remarks", "noted", "steps", "state", "initial", "checkpoint", "every", "keep", "metrics",
    "on_failure", "starts", "start", "fault", "deadline", "preflight", "spares", "snapshots",
})  # fmt: skip


def is_rank(args: argparse.Namespace) -> bool:
    """Whether this process is one of the ranks of a run."""
    return inside_launcher() and (args.ranks is not None or args.devices is None)


def with_mesh(args: argparse.Namespace, mesh: Mapping[str, int] | None) -> argparse.Namespace:
    """Returns the arguments for another mesh, if one is given."""
    return args if mesh is None else argparse.Namespace(**{**vars(args), "mesh": dict(mesh)})


def prepare(
    args: argparse.Namespace, ranks: int | None, quiet: bool = False, seconds: dict[str, float] | None = None
) -> Program:
    """Reads and partitions the program, or loads the kept result of an earlier run, and reports findings unless
    `quiet`. Adds the seconds of the parts of compiling to `seconds`. Raises CompileError and
    argparse.ArgumentTypeError.
    """
    key, program = None, None
    if args.keeps and not args.imports:
        options = {name: value for name, value in vars(args).items() if name not in _LATER and not callable(value)}
        key = key_of(args.file, [args.machine, args.strategy or ""], options, ranks)
        program = load(key)
    if program is not None:
        tell_found(args, program.module.warnings, quiet)
    else:
        program = _made(args, ranks, quiet, {} if seconds is None else seconds)
        store(key, program)
    tell_found(args, program.diagnostics, quiet)
    if args.out is not None and not quiet:  # the first rank writes
        check_outputs(Path(args.out))
    if args.trace is not None and not quiet:
        check_trace(args.trace)
    return program


def _made(args: argparse.Namespace, ranks: int | None, quiet: bool, seconds: dict[str, float]) -> Program:
    from ..driver.compile import Options, compiled  # and the passes, which kept programs do without
    from .common import context_for
    from .reading import read_program

    start = time.perf_counter()
    module = read_program(args, quiet)
    seconds["reading"] = time.perf_counter() - start
    if args.check and is_per_device(module):
        raise argparse.ArgumentTypeError("--check needs the unpartitioned program, this one is already partitioned")
    runs = math.inf if args.is_long else args.repeat or 1
    is_known = bool(args.machine or args.links)
    options = Options(args.backend, ranks, args.schedule, is_known, args.memory or 0, args.flat_parameters, runs,
                      args.split_batch)
    during = partial(timed, seconds=seconds)
    program = compiled(module, context_for(args, default_devices=ranks), options, during)
    if not inside_launcher():
        with during("compiling"):
            program.require_runnable(ranks)
        if args.check:
            _ = program.unpartitioned
    return program


def prepare_on_ranks(
    args: argparse.Namespace, mesh: Mapping[str, int] | None, everyone: Any, active: int | None = None,
    left: Callable[[], bytes] = left_for_ranks, unpacked: Callable[[bytes], Program] = Program.unpacked,
) -> Program:  # fmt: skip
    """Returns the program of a run for a mesh (None: its own) and all ranks of a communicator, or the first `active`
    ones. The first rank prepares it where the launcher has `left` none, and sends it to the others. If it cannot be
    packed, each rank prepares it, which gives the same: partitioning is deterministic. The ranks agree about its
    backend. Raises errors of `prepare` on the lowest rank that has them, RankFailed on others.
    """
    args, ranks, diagnostics = with_mesh(args, mesh), active or everyone.size, Diagnostics()
    where = "the partitioned program"

    def first() -> bytes:
        if everyone.rank:
            return b""
        found = left()
        if not found and args.file == "-" and started_by_hloom():
            fail(f"standard input does not come to host {socket.gethostname()}", help="give a file that all hosts see")
        return found or prepare(args, ranks, quiet=started_by_hloom()).packed()

    def given() -> Program:
        return unpacked(data) if data else prepare(args, ranks, quiet=True)

    data = broadcast(everyone, on_all_ranks(everyone, first, where, args.timeout), where, args.timeout)
    program = on_all_ranks(everyone, given, where, args.timeout)
    program.backend = program.backend.common(everyone, diagnostics, args.timeout)
    tell_found(args, diagnostics.found)
    return program


def inputs_of(args: argparse.Namespace, program: Program, comm: Any = None) -> list[Array]:
    """Returns the inputs of a run, in this process or on each rank of `comm`."""
    make = partial(inputs_for_module, program.module, args.inputs, args.seed)
    return make() if comm is None else on_all_ranks(comm, make, "the inputs of the program", args.timeout)
