"""What the ranks of the tests of offloading run: `rank_host.py FOLDER`, by support/on_ranks.py.

Each program of the folder is in three texts: whole, of a device, and of a device that keeps values on its host. The
last one has the bits of the second one on the ranks, and of one process that simulates all devices: its numbers where
MPI adds in an order of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hloom
from hloom.passes.schedule.on_host import moves_to_host
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.mpi import MpiProgram
from hloom.runtime.ranks.launch import finish_rank, world
from hloom.runtime.ranks.mode import MPI, chosen_mode
from support.compare import compare


def results(text: str, inputs: Any) -> Any:
    """The results, on rank 0."""
    with MpiProgram(hloom.parse(text), world()) as program:
        return program.run_global(inputs, poison=True)


def main() -> int:
    count = 0
    for path in sorted(Path(sys.argv[1]).glob("*.whole")):
        plain, moved = (path.with_suffix(kind).read_text() for kind in (".plain", ".moved"))
        inputs = inputs_for_module(hloom.parse(path.read_text()), seed=3)
        before, after = (results(text, inputs) for text in (plain, moved))
        if before is not None and after is not None:
            assert compare(after, before, scale=0).equal, path.name
            module = hloom.parse(moved)
            one = hloom.simulate(module, inputs)
            keeps_order = chosen_mode(None) != MPI or world().size == 2
            result = compare(after, one, scale=0) if keeps_order else compare(after, one)
            assert result.equal, f"{path.name}: {result}"
            count += moves_to_host(module)
    if world().rank == 0:
        print(count)
    return 0


if __name__ == "__main__":
    sys.exit(finish_rank(main))
