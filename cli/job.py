"""Prepares a run: reads and partitions the program, once for all MPI ranks, and makes the inputs.

The process that starts ranks prepares the run and leaves it to them; under the user's own launcher rank 0 prepares it.
Either way rank 0 sends it to the others. A program with values that cannot be pickled (their classes are in a file of
`--import`) is prepared by every rank; that gives the same result, since partitioning is deterministic.

`hloom run` keeps what it has made of a program, so that the next run of it begins at once. The key is the file and the
files that options name, byte for byte, the options, and the host. Options that come after the program is made, such as
those of inputs and outputs, are not part of it. Programs that are no files, and those with Python files of their own
(`--import`), are made anew each time.
"""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..driver.program import Program
from ..ir.brief import brief
from ..ir.diagnostics import Diagnostic, Diagnostics, fail
from ..ir.graph import keeping
from ..ir.types.literal import Array
from ..ir.user_files import read_bytes
from ..runtime.inputs.inputs import inputs_for_module
from ..runtime.outputs import check_outputs
from ..runtime.ranks.failed import broadcast, on_all_ranks
from ..runtime.ranks.launch import inside_launcher, left_for_ranks, started_by_hloom
from ..runtime.trace import check_trace
from .messages import tell_found

_LATER = frozenset({
    "argv", "inputs", "seed", "seeds", "out", "trace", "timeout", "json", "tolerance", "allow_nan", "collectives",
    "werror", "remarks", "noted", "steps", "state", "initial", "checkpoint", "every", "keep", "metrics",
    "on_failure", "starts", "start", "fault", "deadline", "preflight",
    "spares", "snapshots",
})  # fmt: skip
_FILES = ("machine", "strategy")  # options that may name files


def key_of(args: argparse.Namespace, ranks: int | None) -> tuple[str, ...] | None:
    """Returns the key of a run's program; None if it is not kept."""
    if not args.keeps or not os.path.isfile(args.file) or args.imports:
        return None
    try:
        contents = [read_bytes(args.file)]
        named = [getattr(args, option) or "" for option in _FILES]
        contents += [read_bytes(name) for name in named if os.path.isfile(name)]
    except OSError:
        return None
    options = {name: value for name, value in vars(args).items() if name not in _LATER and not callable(value)}
    where = repr((ranks, inside_launcher(), platform.node()))
    return keeping.key_of("run", *contents, repr(sorted(options.items())), where)


@brief
@dataclass
class Job:
    """A compiled program and its inputs. `seconds` are those of the parts of compiling; none if an earlier run has kept
    the program.
    """

    program: Program
    inputs: list[Array] = field(default_factory=list[Array])
    seconds: dict[str, float] = field(default_factory=dict[str, float])


def is_rank(args: argparse.Namespace) -> bool:
    """Whether this process is one of the ranks of a run."""
    return inside_launcher() and (args.ranks is not None or args.devices is None)


def with_mesh(args: argparse.Namespace, mesh: Mapping[str, int] | None) -> argparse.Namespace:
    """Returns the arguments for another mesh, if one is given."""
    return args if mesh is None else argparse.Namespace(**{**vars(args), "mesh": dict(mesh)})


def prepare(args: argparse.Namespace, ranks: int | None, quiet: bool = False) -> Job:
    """Reads and partitions the program, or loads the kept result of an earlier run, and reports findings unless
    `quiet`; the job has no inputs yet. Raises CompileError and argparse.ArgumentTypeError.
    """
    key = key_of(args, ranks)
    loaded = keeping.load(key)
    found: list[Diagnostic]
    if loaded is not None:
        job, found = Job(Program.of_parts(*loaded[0])), loaded[1]
        tell_found(args, job.program.module.warnings, quiet)
    else:
        from .preparing import made  # which knows the passes

        job, found = made(args, ranks, quiet)
        keeping.store(key, lambda: (job.program.packed(), pickle.dumps(found)))
    tell_found(args, found, quiet)
    if args.out is not None and not quiet:  # the first rank writes
        check_outputs(Path(args.out))
    if args.trace is not None and not quiet:
        check_trace(args.trace)
    return job


def job_on_ranks(
    args: argparse.Namespace, comm: Any, with_inputs: bool = True, active: int | None = None,
    left: Callable[[], bytes] = left_for_ranks, unpacked: Callable[[bytes], Program] = Program.unpacked,
) -> Job:  # fmt: skip
    """Returns the job of a run on all ranks of `comm`, or the first `active` ones, with its inputs unless they are made
    later. The first rank prepares it where the launcher has `left` none. Raises errors of `prepare` on one rank,
    RankFailed on others.
    """
    first, ranks = comm.rank == 0, active or comm.size
    sent = partial(_first_job, args, ranks, left) if first else bytes
    where = "the partitioned program"
    data = broadcast(comm, on_all_ranks(comm, sent, where, args.timeout), where, args.timeout)

    def mine() -> Job:
        job = Job(unpacked(data)) if data else prepare(args, ranks, quiet=True)
        if with_inputs:
            job.inputs = inputs_for_module(job.program.module, args.inputs, args.seed)
        return job

    job = on_all_ranks(comm, mine, "the inputs of the program", args.timeout)
    diagnostics = Diagnostics()
    job.program.backend = job.program.backend.common(comm, diagnostics, args.timeout)
    tell_found(args, diagnostics.found, quiet=False)
    return job


def _first_job(args: argparse.Namespace, ranks: int, left: Callable[[], bytes]) -> bytes:
    """Returns the packed job on rank 0: that of the process that started the ranks, which has reported, if there is
    one.
    """
    found = left()
    if not found and args.file == "-" and started_by_hloom():
        fail(f"standard input does not come to host {socket.gethostname()}", help="give a file that all hosts see")
    return found or prepare(args, ranks, quiet=started_by_hloom()).program.packed()
