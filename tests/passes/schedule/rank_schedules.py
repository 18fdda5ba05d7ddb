"""What the ranks of the tests of schedules run: `rank_schedules.py KIND FIRST COUNT`, by support/on_ranks.py.

Programs on many devices, and what pipelines of passes make of them, run on the same ranks. Passes that keep every bit
give the bits of the program before; others, and the programs before, the numbers of one device. Each rank prepares some
of the programs, and all run all of them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import hloom
import numpy as np
from hloom.cost.memory import live_memory
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.named import parse_pipeline
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks.launch import finish_rank, world
from hloom.runtime.ranks.mode import MPI, chosen_mode
from hloom.runtime.simulator import simulate
from support.compare import compare
from support.fsdp_steps import fsdp_step
from support.layered_programs import Model
from support.rewrites import rewritten
from support.schedule_passes import BOUNDED, EXACT, in_order, is_exact

Array = np.ndarray[Any, Any]
KINDS = ("dp", "fsdp", "tp", "both")
MACHINES = tuple(map(hloom.parse_machine, ("", "h100", "cpu-cluster", "work=f32:1T;memory=100GB")))
SHARES = (0.6, 0.8)  # of the peak of memory, as limits
MOST_DEVICES = 8
TOGETHER = (
    "prefetch-gathers,carry-reduce-scatters,schedule", "hoist-gathers{growth=9},bucket{rule=layer},overlap",
    "bucket,memory-order,rematerialize{memory=1B,barriers=true}", "common-gathers,combine-collectives,overlap,schedule",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A program, what each device runs, and what pipelines made of that: texts."""

    seed: int
    whole: str
    local: str
    after: dict[str, str]


def layered(seed: int, ranks: int) -> Module:
    """A training step of a layered model with a device per rank at least; of two sizes in three they do not divide."""
    choose = random.Random(seed)
    if seed % 3 == 2:
        return hloom.parse(fsdp_step(ranks * choose.randint(1, 2), choose.randint(2, 4), 8 * choose.randint(1, 3), 8))
    while True:
        model = Model.random(choose.randint, KINDS[seed % 4])
        if model.data * model.model >= ranks:
            return hloom.parse(model.text())


def any_program(seed: int, ranks: int) -> Module:
    """A small program of any ops."""
    from programs.random.generate import program  # here: importing hypothesis would cost every rank

    return program(random.Random(seed).randint, max_ops=8)


def inputs_for(kind: str, module: Module, seed: int) -> list[Array]:
    """What the program takes, the same on all ranks."""
    if kind == "layered":
        return make_inputs([p.shape for p in module.entry.parameters], seed=seed)
    from programs.random.generate import inputs_of

    return inputs_of(module)


def pipelines(seed: int, peak: int) -> list[str]:
    """One pass after the other, so that a few seeds have all, several together, and one with a limit of memory."""
    choose, singles = random.Random(seed), (*EXACT, *BOUNDED)
    found = [singles[(2 * seed + n) % len(singles)] for n in range(2)]
    found.append(TOGETHER[seed // 2 % len(TOGETHER)] if seed % 2 else in_order(choose.sample(singles, 3)))
    limit = int(choose.choice(SHARES) * peak)
    return [*found, f"schedule{{memory={limit}B}}" if seed % 2 else f"rematerialize{{memory={limit}B}},overlap"]


def prepared(kind: str, seed: int, ranks: int) -> Case | None:
    """Returns a program that at least these ranks can run, or None where the seed has no such."""
    module = (layered if kind == "layered" else any_program)(seed, ranks)
    try:
        local = hloom.partition(module).module
        if not ranks <= local.num_partitions <= MOST_DEVICES:
            return None
        simulate(local, inputs_for(kind, module, seed))
    except hloom.CompileError:
        return None
    return Case(seed, module.to_text(), local.to_text(), dict(_changed(local, seed)))


def _changed(local: Module, seed: int) -> Iterator[tuple[str, str]]:
    before = local.to_text()
    for passes in pipelines(seed, live_memory(local).peak):
        try:
            text = rewritten(clone_module(local), passes, MACHINES[seed % len(MACHINES)])[0].to_text()
        except hloom.CompileError:  # of limits that cannot be kept
            continue
        if text != before:
            yield passes, text


def run_on_ranks(text: str, inputs: list[Array]) -> list[Array] | None:
    """The results of a program, on rank 0."""
    with np.errstate(all="ignore"), MpiProgram(hloom.parse(text), world()) as program:
        return program.run_global(inputs, poison=True)


def check(kind: str, case: Case) -> None:
    """Runs all programs of a case, and compares their results on rank 0."""
    whole = hloom.parse(case.whole)
    inputs = inputs_for(kind, whole, case.seed)
    before = run_on_ranks(case.local, inputs)
    expected: list[Array] = []
    # With more than two ranks MPI adds in an order of its own, which depends on the size of the message.
    keeps_order = chosen_mode(None) != MPI or world().size == 2
    if before is not None:
        with np.errstate(all="ignore"):
            expected = hloom.evaluate(whole, inputs)
        result = compare(before, expected)
        assert result.equal, f"seed {case.seed}, on ranks: {result}\n{case.local}"
    for passes, text in case.after.items():
        after = run_on_ranks(text, inputs)
        if before is not None and after is not None:
            exact = keeps_order and is_exact(passes)
            result = compare(after, before, scale=0) if exact else compare(after, expected)
            assert result.equal, f"seed {case.seed}, {passes}: {result}\n{text}"


def main() -> int:
    kind, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    comm, done, changed = world(), 0, set[str]()
    for start in range(first, first + count, comm.size):
        seed = start + comm.rank
        mine = prepared(kind, seed, comm.size) if seed < first + count else None
        for case in filter(None, comm.allgather(mine)):
            check(kind, case)
            done, changed = done + 1, changed | set(case.after)
    if comm.rank == 0:
        print(done, *sorted({p.name for passes in changed for p in parse_pipeline(passes)}))
    return 0


if __name__ == "__main__":
    sys.exit(finish_rank(main))
