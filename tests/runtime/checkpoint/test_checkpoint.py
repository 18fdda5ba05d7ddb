"""Checkpoints: the same bits on any mesh, few bytes read, and an older step where the newest is damaged."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hloom import checkpoint, parse, partition, simulate
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module
from hloom.ir.types.literal import Array
from hloom.runtime.checkpoint.read import StepReader
from hloom.runtime.checkpoint.step_folder import remove_hidden, steps_in
from support.command_line import environment, have_mpi
from support.processes import PATIENCE

TESTS = Path(__file__).parents[2]
STATE = """HloModule state, num_partitions={n}
ENTRY e {{
  w = bf16[24,10] parameter(0), sharding={{devices=[{n},1]<=[{n}]}}
  q = s4[7,24] parameter(1), sharding={{devices=[1,{n}]<=[{n}]}}
  b = f32[13] parameter(2), sharding={{devices=[{n}]<=[{n}]}}
  k = s32[] parameter(3), sharding={{replicated}}
  f = f8e4m3fn[5] parameter(4), sharding={{maximal device=1}}
  x = f32[4] parameter(5), sharding={{replicated}}
  ROOT t = (bf16[24,10], s4[7,24], f32[13], s32[], f8e4m3fn[5], f32[4]) tuple(w, q, b, k, f, x)
}}
"""
COUNT = 5


def program(devices: int) -> Module:
    return partition(parse(STATE.format(n=devices)))


def state(seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [
        random.normal(size=(24, 10)).astype(ml_dtypes.bfloat16),
        random.integers(-8, 8, (7, 24)).astype(ml_dtypes.int4),
        random.normal(size=13).astype(np.float32),
        np.asarray(random.integers(9), np.int32),
        random.normal(size=5).astype(ml_dtypes.float8_e4m3fn),
    ]


def same(a: list[Array], b: list[Array]) -> bool:
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b))


@pytest.mark.parametrize("target", [8, 6, 2])
def test_state_moves_to_another_mesh(tmp_path: Path, target: int) -> None:
    """From the disk as from memory: each device has the tile that dividing the arrays anew gives it."""
    saved = state()
    checkpoint.save(tmp_path, program(8), saved, step=3, facts={"seed": 5})
    found = checkpoint.load(tmp_path, program(target))
    assert (found.step, found.facts, found.skipped) == (3, {"seed": 5}, ())
    assert same(found.arrays, saved)
    local = program(target)
    read = StepReader.of(tmp_path, 3, local, COUNT).read(range(target))
    reader = StepReader.of(tmp_path, 3, local, COUNT)
    for device in range(target):
        boxes = [array.box(device) for array in reader.layout.arrays]
        for box, whole, tile in zip(boxes, saved, read[device], strict=True):
            if box is None:
                assert not tile.astype(np.float32).any()
                continue
            part = whole[tuple(slice(a, b) for a, b in box)]
            assert tile[tuple(slice(0, n) for n in part.shape)].tobytes() == part.tobytes()
    outputs = simulate(local, [*found.arrays, np.zeros(4, np.float32)])
    assert same(outputs[:COUNT], saved)


WIDE = """HloModule wide
ENTRY e {{ ROOT w = f32[{rows},1024] parameter(0), sharding={{devices={to}}} }}
"""


def test_a_device_reads_little_more_than_its_tile(tmp_path: Path) -> None:
    rows = 4096  # 16 MiB
    values = np.arange(rows * 1024, dtype=np.float32).reshape(rows, 1024)
    checkpoint.save(tmp_path, partition(parse(WIDE.format(rows=rows, to="[2,1]<=[2]"))), [values])
    local = partition(parse(WIDE.format(rows=rows, to="[8,1]<=[8]")))
    for device in (0, 3, 7):
        reader = StepReader.of(tmp_path, 0, local, 1)
        (tile,) = reader.read([device])[0]
        assert tile.tobytes() == values[device * 512 : (device + 1) * 512].tobytes()
        assert reader.bytes_read == tile.nbytes
    reader = StepReader.of(tmp_path, 0, local, 1)
    reader.read([0, 1, 0])
    assert reader.bytes_read == 2 * 512 * 4096  # tiles that devices share are read once


def test_devices_that_share_a_tile_write_it_once(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, program(8), state())
    folder = tmp_path / "step-0000000000"
    size = sum(path.stat().st_size for path in folder.glob("tiles-*"))
    assert size < sum(array.nbytes for array in state()) + 64 * 40


def test_a_damaged_step_gives_way_to_the_one_before(tmp_path: Path) -> None:
    local, old, new = program(4), state(1), state(2)
    checkpoint.save(tmp_path, local, old, step=1)
    checkpoint.save(tmp_path, local, new, step=2)
    tiles = tmp_path / "step-0000000002" / "tiles-0"
    data = bytearray(tiles.read_bytes())
    data[70] ^= 1
    tiles.write_bytes(data)
    found = checkpoint.load(tmp_path, local)
    assert found.step == 1
    assert same(found.arrays, old)
    assert "tiles-0 is damaged: the checksum of array w does not fit" in found.skipped[0]
    with pytest.raises(CompileError, match="the checksum of array w does not fit"):
        checkpoint.load(tmp_path, local, step=2)
    tiles.write_bytes(data[:-3])
    assert checkpoint.load(tmp_path, local).step == 1
    manifest = tmp_path / "step-0000000001" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("bf16", "f16", 1))
    with pytest.raises(CompileError, match=r"manifest\.json is damaged: its checksum does not fit"):
        checkpoint.load(tmp_path, local)


def test_names_that_differ_are_told(tmp_path: Path) -> None:
    """Arrays go by place, so that equal shapes that changed places would be taken for one another in silence."""
    parameters = "{0} = f32[2] parameter(0)\n {1} = f32[2] parameter(1)"
    text = f"HloModule m\nENTRY e {{{{ {parameters}\n ROOT t = f32[2] add({{0}}, {{1}}) }}}}"
    old, new = (partition(parse(text.format(*names))) for names in ("ab", "bc"))
    checkpoint.save(tmp_path, old, [np.zeros(2, np.float32), np.ones(2, np.float32)], step=1)
    assert checkpoint.load(tmp_path, old).renamed == ""
    assert checkpoint.load(tmp_path, new).renamed == "a is taken for b, and 1 more"


def test_a_step_of_another_program_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, program(4), state()[:2])
    with pytest.raises(CompileError, match="holds 2 arrays, the state has 5"):
        checkpoint.load(tmp_path, program(4), count=COUNT)
    other = partition(parse(WIDE.format(rows=8, to="[2,1]<=[2]")))
    with pytest.raises(CompileError, match="the state has 2 arrays, wide takes 1"):
        checkpoint.load(tmp_path, other)
    checkpoint.save(tmp_path, program(4), state()[:1])
    with pytest.raises(CompileError, match=r"array 0 is w bf16\[24,10\], the program takes w f32\[8,1024\]"):
        checkpoint.load(tmp_path, other)
    with pytest.raises(CompileError, match="there is no checkpoint in"):
        checkpoint.load(tmp_path / "none", other)


@contextmanager
def largest_file(size: int) -> Generator[None]:
    """The system refuses to write files beyond this size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [300, 900])  # within the tiles, and within the manifest
def test_a_full_disk_leaves_the_steps_before(tmp_path: Path, size: int) -> None:
    local = program(4)
    checkpoint.save(tmp_path, local, state(1), step=1)
    with (
        largest_file(size),
        pytest.raises(checkpoint.CheckpointError, match=r"written to .*: File too large"),
    ):
        checkpoint.save(tmp_path, local, state(2), step=2)
    assert os.listdir(tmp_path) == ["step-0000000001"]
    assert same(checkpoint.load(tmp_path, local).arrays, state(1))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(checkpoint.CheckpointError, match=r"cannot be written to .*: Not a directory") as caught:
        checkpoint.save(tmp_path / "file" / "steps", program(2), state())
    assert caught.value.exit_code == 74


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_read_only_folder(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, program(2), state(), step=1)
    os.chmod(tmp_path, 0o555)
    os.seteuid(65534)
    try:
        with pytest.raises(checkpoint.CheckpointError, match="Permission denied"):
            checkpoint.save(tmp_path, program(2), state(), step=2)
    finally:
        os.seteuid(0)
    assert steps_in(tmp_path) == [1]


def test_old_steps_are_removed_and_steps_are_replaced(tmp_path: Path) -> None:
    local = program(2)
    for step in (5, 6, 7, 7):
        checkpoint.save(tmp_path, local, state(step), step=step, keep=2)
    assert steps_in(tmp_path) == [7, 6]
    assert sorted(os.listdir(tmp_path)) == ["step-0000000006", "step-0000000007"]
    hidden = tmp_path / ".step-0000000008.abc.part"
    hidden.mkdir()
    assert checkpoint.load(tmp_path, local).step == 7
    remove_hidden(tmp_path)
    assert not hidden.exists()


def test_wrong_arrays_are_refused(tmp_path: Path) -> None:
    wrong: list[Any] = state()
    wrong[2] = wrong[2][:-1]
    with pytest.raises(CompileError, match=r"input 2 has dimensions \[12\]"):
        checkpoint.save(tmp_path, program(2), wrong)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_ranks_save_and_load_together(tmp_path: Path) -> None:
    program = Path(__file__).with_name("ranks_program.py")
    command = [sys.executable, str(TESTS / "support" / "on_ranks.py"), str(program), "3", str(tmp_path)]
    path = f"{TESTS.parent / '.import'}{os.pathsep}{TESTS}"
    done = subprocess.run(command, env=environment(PYTHONPATH=path), capture_output=True, text=True, timeout=PATIENCE,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
