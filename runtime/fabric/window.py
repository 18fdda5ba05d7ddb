"""Allocates memory that the ranks of one node share: a segment per rank, which that rank writes and all ranks read.

A segment begins with words, which are counters and places that other ranks look at; the rest holds data. Every page
exists before the first use: a page that the system cannot provide later would end the process by a signal. So free
memory is checked first, then pages are made by a call that returns an error.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import tempfile
from typing import Any

import numpy as np

from ...ir.types.literal import Array

Comm = Any  # mpi4py.MPI.Intracomm, here of one node

_SHARED_FOLDER = "/dev/shm"
_MOST_OF_FREE = 0.5  # the part of the free shared memory that windows may take
_MADV_REMOVE, _MADV_POPULATE_WRITE = 9, 23  # the latter since Linux 5.14
_abandoned: list[SharedWindow] = []


class WindowRefused(Exception):
    """The node has no shared memory for a window. All ranks of the node raise it, with the same text."""


class SharedWindow:
    """The segments of a node's ranks, in the order of `comm`. All ranks must create and close it together.

    `words` and `data` are the numbers of words and bytes that each segment needs. Raises WindowRefused.
    """

    def __init__(self, mpi: Any, comm: Comm, words: int, data: int) -> None:
        self.own = int(comm.rank)
        self._ranks = _world_ranks(mpi, comm)
        self._start = _pages(8 * words)
        self._window = _allocate(mpi, comm, self._start + _pages(data))
        self._segments = [memoryview(self._window.Shared_query(rank)[0]).cast("B") for rank in range(comm.size)]
        self.words = [segment[: self._start].cast("Q") for segment in self._segments]
        self.words[self.own][:] = memoryview(bytearray(self._start)).cast("Q")
        self._window.Lock_all()
        self.order()
        comm.Barrier()

    def order(self) -> None:
        """Orders the memory accesses of this rank: earlier ones happen before later ones, as other ranks see them."""
        self._window.Sync()

    def array(self, rank: int, place: int, like: Array) -> Array:
        """Returns the array of the shape and type of `like` that lies at a place in the data of a rank."""
        return np.ndarray(like.shape, like.dtype, self._segments[rank], self._start + place)

    @property
    def size(self) -> int:
        """The bytes of this rank's segment."""
        return self._segments[self.own].nbytes

    def is_of(self, ranks: frozenset[int]) -> bool:
        """Whether all ranks of the window are among these, which are numbers in the world."""
        return self._ranks <= ranks

    def free_pages(self) -> None:
        """Frees the memory of this rank's segment, but not its addresses."""
        _advise(self._segments[self.own], _MADV_REMOVE)

    def abandon(self) -> None:
        """Gives the window up after an error, when others may still read it or may never come to `close`. Its memory is
        freed when all its ranks open another window, or end.
        """
        _abandoned.append(self)

    def close(self) -> None:
        """Frees the memory. No array of it may be in use."""
        for view in (*self.words, *self._segments):
            view.release()
        self._window.Unlock_all()
        self._window.Free()


def free_bytes() -> int:
    """Returns how much shared memory is free on this host."""
    folder = _SHARED_FOLDER if os.path.isdir(_SHARED_FOLDER) else tempfile.gettempdir()
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def free_abandoned(mpi: Any, comm: Comm) -> None:
    """Frees the pages of abandoned windows, of which all ranks are here. The windows themselves stay: whether the other
    ranks have given them up as well is unknown.
    """
    comm.Barrier()  # all have come here, so nobody reads them
    ranks = _world_ranks(mpi, comm)
    for window in [window for window in _abandoned if window.is_of(ranks)]:
        _abandoned.remove(window)
        window.free_pages()


def room_per_rank(comm: Comm) -> int:
    """Returns how many bytes a segment of each rank of the node may have, the same number on all of them."""
    return int(comm.bcast(int(free_bytes() * _MOST_OF_FREE) // comm.size if comm.rank == 0 else None))


def _world_ranks(mpi: Any, comm: Comm) -> frozenset[int]:
    return frozenset(comm.Get_group().Translate_ranks(None, mpi.COMM_WORLD.Get_group()))


def _allocate(mpi: Any, comm: Comm, size: int) -> Any:
    """Returns an MPI window whose pages exist. Raises WindowRefused on all ranks if one of them gets none."""
    window: Any = None
    problem = ""
    if size > room_per_rank(comm):
        raise WindowRefused(f"{comm.size} ranks need {comm.size * size:,} bytes of shared memory")
    try:
        window = mpi.Win.Allocate_shared(size, 1, comm=comm)
        if not _populate(memoryview(window.Shared_query(comm.rank)[0])):
            problem = f"there are no {size:,} bytes of shared memory for each of {comm.size} ranks"
    except mpi.Exception as error:
        problem = f"MPI shares no memory: {str(error).strip()}"
    problems = [text for text in comm.allgather(problem) if text]
    if not problems:
        return window
    if all(comm.allgather(window is not None)):  # else not all ranks could take part in freeing it
        window.Free()
    raise WindowRefused(problems[0])


def _populate(segment: memoryview) -> bool:
    """Makes all pages of a segment, and returns whether there are enough."""
    error = _advise(segment, _MADV_POPULATE_WRITE)
    if error in (errno.EFAULT, errno.ENOMEM):
        return False
    if error:  # an older system: as much was free just now
        np.frombuffer(segment, np.uint8)[:: mmap.PAGESIZE] = 0
    return True


def _advise(segment: memoryview, advice: int) -> int:
    """Calls Linux's madvise on the pages of a segment, and returns the error, 0 for none."""
    if not sys.platform.startswith("linux"):
        return errno.ENOSYS
    array = np.frombuffer(segment, np.uint8)
    library = ctypes.CDLL(None, use_errno=True)
    failed = library.madvise(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), advice)
    return ctypes.get_errno() if failed else 0


def _pages(size: int) -> int:
    return -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
