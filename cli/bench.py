"""Implements `hloom bench`: runs a program repeatedly, and prints where the time goes, or with `--ranks N` which ranks
wait, and why.
"""

from __future__ import annotations

import argparse

from ..driver.benchmark import PartsBenchmark, RanksBenchmark
from ..report.progress import working
from ..runtime.allocator import keep_freed_memory
from ..runtime.ranks.launch import launch, world
from .exit_codes import EXIT_OK
from .job import inputs_of, is_rank, prepare, prepare_on_ranks
from .messages import answer


def bench(args: argparse.Namespace) -> int:
    """Runs `hloom bench` and returns its exit code. Raises the errors of `hloom run`."""
    keep_freed_memory()
    if is_rank(args):
        return _bench_on_ranks(args)
    seconds: dict[str, float] = {}
    program = prepare(args, args.ranks, seconds=seconds)
    if args.ranks is not None:
        return launch(args.argv, args.ranks, left=program.packed())
    inputs = inputs_of(args, program)
    found = PartsBenchmark.of(program, inputs, args.repeat, args.backend, seconds, args.trace, working)
    return answer(args, found.record, found.text)


def _bench_on_ranks(args: argparse.Namespace) -> int:
    from ..driver.ranks import Ranks

    comm = world(args.ranks)
    program = prepare_on_ranks(args, None, comm)
    inputs = inputs_of(args, program, comm)
    with Ranks(comm, args.timeout, program.backend, args.collectives) as ranks:
        found = RanksBenchmark.of(program, inputs, args.repeat, args.backend, ranks, args.trace, working)
        if found is not None:
            answer(args, found.record, found.text)
        return ranks.share(EXIT_OK)
