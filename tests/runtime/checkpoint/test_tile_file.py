"""Files of tiles: large tiles go past the page cache where the file system can do that, and have the same bytes."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hloom.runtime.checkpoint.manifest import BLOCK
from hloom.runtime.checkpoint.tile_file import TileFile

SIZES = (100, 8 * BLOCK + 123, 7, 8 * BLOCK, 17 * BLOCK - 1)


@pytest.mark.parametrize("past_cache", [True, False])
def test_tiles_have_their_bytes(past_cache: bool, tmp_path: Path) -> None:
    source, ends = memoryview(np.random.default_rng(0).bytes(sum(SIZES))), np.cumsum(SIZES).tolist()
    tiles = [source[end - size : end] for size, end in zip(SIZES, ends, strict=True)]
    with TileFile(tmp_path / "tiles", past_cache) as file:
        found = [file.write(tile) for tile in tiles]
        file.sync()
    made = (tmp_path / "tiles").read_bytes()
    for tile, (place, sums) in zip(tiles, found, strict=True):
        assert made[place : place + len(tile)] == tile
        assert list(sums) == [zlib.crc32(tile[start : start + BLOCK]) for start in range(0, len(tile), BLOCK)]
    assert [place % 64 for place, _ in found] == [0] * len(SIZES)
    assert len(made) < sum(SIZES) + len(SIZES) * 4096


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize("size", [100, 9 * BLOCK])
def test_a_full_disk_is_an_error(size: int) -> None:
    with pytest.raises(OSError, match="No space left"), TileFile(Path("/dev/full")) as file:
        file.write(memoryview(bytes(size)))
