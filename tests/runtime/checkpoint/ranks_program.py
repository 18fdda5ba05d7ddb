"""Saves, loads and trains on ranks: `python support/on_ranks.py ranks_program.py RANKS FOLDER`."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import hloom
import numpy as np
from hloom import checkpoint
from hloom.ir.tools.placement import placements
from hloom.ir.types.literal import Array
from hloom.runtime.checkpoint.step_folder import steps_in
from hloom.runtime.fabric.tiles import shard
from hloom.runtime.ranks.blocks import devices_of
from hloom.runtime.ranks.failed import RankFailed, on_all_ranks
from hloom.runtime.ranks.launch import finish_rank, world

EXAMPLE = Path(__file__).parents[3] / "examples" / "mlp_train.hlo"
TEXT = """HloModule state
ENTRY e {{
  a = f32[1200,4] parameter(0), sharding={{devices=[{n},1]<=[{n}]}}
  b = f32[6] parameter(1), sharding={{replicated}}
  ROOT t = (f32[1200,4], f32[6]) tuple(a, b)
}}
"""


def main(folder: Path) -> int:
    comm = world()
    saved, loaded = (hloom.partition(hloom.parse(TEXT.format(n=n))) for n in (4, 6))
    mine = devices_of(comm.rank, comm.size, 4)

    def values(step: int) -> list[Array]:
        return [np.arange(4800, dtype=np.float32).reshape(1200, 4) + step, np.full(6, step, np.float32)]

    def tiles(step: int, local: hloom.Module, devices: range) -> list[list[Array]]:
        places = placements(local)[0]
        return [[shard(v, p.tiling, d) for v, p in zip(values(step), places) if p.tiling] for d in devices]

    for step in (1, 2):
        checkpoint.save(folder, saved, tiles(step, saved, mine), step=step, comm=comm)
    written = {p.name for p in (folder / "step-0000000002").iterdir()}
    assert written == {"manifest.json", *(f"tiles-{rank}" for rank in range(comm.size))}, written

    def check(step: int, skipped: int) -> None:
        found = checkpoint.load(folder, loaded, comm=comm)
        assert (found.step, len(found.skipped)) == (step, skipped), found
        expected = tiles(step, loaded, devices_of(comm.rank, comm.size, 6))
        for device, wanted in zip(found.arrays, expected, strict=True):
            assert [a.tobytes() for a in device] == [a.tobytes() for a in wanted]

    check(2, 0)

    def damage() -> None:
        if comm.rank == 1:  # a tile that not every rank reads
            path = folder / "step-0000000002" / "tiles-2"
            path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])

    on_all_ranks(comm, damage, "damage")
    check(1, 1)
    if comm.rank == 2:  # cannot write its tiles, and the others learn why
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    said = ""
    try:
        checkpoint.save(folder, saved, tiles(3, saved, mine), step=3, comm=comm)
    except (checkpoint.CheckpointError, RankFailed) as error:
        said = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert said.startswith("CheckpointError" if comm.rank == 0 else "RankFailed"), said
    assert "rank 2: a checkpoint cannot be written to" in said, said
    assert 3 not in steps_in(folder)
    train(folder / "trained")
    return 0


def train(folder: Path) -> None:
    """Trains three steps on the ranks, the last after a resume, as in one process."""
    comm, module = world(), hloom.load(EXAMPLE)
    program = hloom.compile(module, backend="reference")
    alone = hloom.train(program, 3)
    losses = [hloom.train(program, n, checkpoint=folder, every="1", comm=comm).losses for n in (2, 3)]
    assert [loss for part in losses for loss in part] == alone.losses
    found = checkpoint.load(folder, program.local)
    assert [a.tobytes() for a in found.arrays] == [a.tobytes() for a in alone.state]


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(finish_rank(lambda: main(Path(sys.argv[1]))))
