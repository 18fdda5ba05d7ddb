"""Writes the tiles of a rank to a file, large ones past the page cache.

A checkpoint is not read again soon, so pages of the cache would be taken from the program, and filling them costs more
than the disk does (measured: 1.0 to 4.9 s for a gigabyte through the cache, 0.5 s past it). Such writes (O_DIRECT) need
aligned memory, lengths and places: a few threads copy chunks to buffers of their own, compute their checksums there,
and write them. The rest of a chunk, small tiles, and file systems without such writes go through the cache.
"""

from __future__ import annotations

import errno
import mmap
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

import numpy as np

from .manifest import BLOCK

_ALIGNED = 64  # bytes, so that a mapped tile can be used in place
_PAGE = 4096  # of which places and lengths past the cache are multiples
_CHUNK = 8 * BLOCK
_WRITERS = 2


class TileFile:
    """A new file of tiles, in a `with` statement. Raises OSError where it cannot be written."""

    def __init__(self, path: Path, past_cache: bool = True) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._direct = _opened_past_cache(path) if past_cache else None
        self._end = 0

    def write(self, data: memoryview) -> tuple[int, tuple[int, ...]]:
        """Appends a tile. Returns its place, and the checksums of its blocks."""
        is_large = len(data) >= _CHUNK
        start = self._end + -self._end % (_PAGE if is_large else _ALIGNED)
        self._end = start + len(data)
        if not is_large:
            self._write_cached(data, start)
            return start, _checksums(data)
        places = range(0, len(data), _CHUNK)
        chunks = [data[place : place + _CHUNK] for place in places]
        with ThreadPoolExecutor(_WRITERS, "hloom-checkpoint") as pool:
            sums = pool.map(self._write_chunk, chunks, [start + place for place in places])
            return start, tuple(number for chunk in sums for number in chunk)

    def sync(self) -> None:
        """Brings all that is written to the disk."""
        os.fsync(self._file)

    def _write_chunk(self, data: memoryview, place: int) -> tuple[int, ...]:
        room = self._rooms.get()
        try:
            np.copyto(np.frombuffer(room, np.uint8, len(data)), np.frombuffer(data, np.uint8))
            chunk, done = memoryview(room)[: len(data)], 0
            if self._direct is not None:
                try:
                    done = os.pwrite(self._direct, chunk[: len(data) // _PAGE * _PAGE], place)
                except OSError as error:
                    if error.errno != errno.EINVAL:  # of a file system that wants another alignment
                        raise
            self._write_cached(chunk[done:], place + done)
            return _checksums(chunk)
        finally:
            self._rooms.put(room)

    @cached_property
    def _rooms(self) -> SimpleQueue[mmap.mmap]:
        """The buffers of chunks, which begin at a page."""
        rooms = SimpleQueue[mmap.mmap]()
        for _ in range(_WRITERS):
            rooms.put(mmap.mmap(-1, _CHUNK))
        return rooms

    def _write_cached(self, data: memoryview, place: int) -> None:
        while data:
            count = os.pwrite(self._file, data, place)
            data, place = data[count:], place + count

    def __enter__(self) -> TileFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for descriptor in (self._file, self._direct):
            if descriptor is not None:
                os.close(descriptor)


def _opened_past_cache(path: Path) -> int | None:
    flag = getattr(os, "O_DIRECT", 0)
    try:
        return os.open(path, os.O_WRONLY | flag) if flag else None
    except OSError:
        return None


def _checksums(data: memoryview) -> tuple[int, ...]:
    return tuple(zlib.crc32(data[start : start + BLOCK]) for start in range(0, len(data), BLOCK))
