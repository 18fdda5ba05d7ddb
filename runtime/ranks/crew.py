"""Keeps the ranks that train, and those that stand by: spare ones, and ones for which a smaller mesh has no devices.

Ranks that train come first, so a rank has one number among all and among those that train. When ranks are lost, all
that are left close up: a spare rank takes the place of a lost one, and without spares the ranks behind move up. They
agree at the end, so that all have closed up or none has.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Generator
from typing import Any

import numpy as np

from .failed import EXIT_RANK_FAILED, RankFailed, gather_texts
from .launch import survivors
from .library import load_mpi

_DONE = 6  # tag
_PAUSE = 0.01
_LONGEST_SECONDS = 60.0  # for ranks to close up
_WHERE = "the ranks that are left"


class Crew:
    """All ranks of a job that are alive, of which the first `active` train."""

    def __init__(self, everyone: Any, active: int, timeout: float | None = None) -> None:
        self.mpi, self.timeout = load_mpi(), timeout
        named = gather_texts(everyone, f"{socket.gethostname()} {os.getpid()}", "the start of the job", timeout)
        self.peers = [(host, int(process)) for host, process in (text.rsplit(" ", 1) for text in named)]
        self.lost: list[str] = []  # the names of the ranks that were lost at last
        self.everyone: Any = everyone
        self.active = active
        self.comm = self._split(everyone, active)
        self._place = self.everyone.rank if self.is_active else None  # among those that train

    @property
    def is_active(self) -> bool:
        """Whether this rank trains."""
        return self.everyone.rank < self.active

    def lose(self) -> bool:
        """Leaves out the ranks that are lost. Returns False if MPI knows of none, or cannot go on without them. All
        that are left must call it, and then `close_up`.
        """
        with self._in_time():
            left = survivors(self.everyone, [] if self.comm is self.everyone else [self.comm])
        if left is None:
            return False
        size, group = self.everyone.size, self.everyone.Get_group()
        stay = set(left.Get_group().Translate_ranks(None, group))
        self.lost = ["rank {} (host {}, process {})".format(rank, *self.peers[rank]) for rank in range(size)
                     if rank not in stay]  # fmt: skip
        self.peers = [self.peers[rank] for rank in range(size) if rank in stay]
        self.everyone = left
        return True

    @property
    def left(self) -> int:
        """The number of ranks that are left."""
        return self.everyone.size

    def close_up(self, active: int) -> None:
        """Orders the ranks that are left, of which this many train. Raises RankFailed if another one is lost."""
        order: list[int] = []
        ordered: Any = None
        comm: Any = None
        with self._in_time():
            try:
                places = gather_texts(self.everyone, str(self._place), _WHERE, self.timeout)
                order = closed_up([None if text == "None" else int(text) for text in places], self.active)
                ordered = self.everyone.Split(0, order.index(self.everyone.rank))
                comm = self._split(ordered, active)
            except (self.mpi.Exception, RankFailed):
                ordered = None
            try:
                agreed = self.everyone.Agree(int(ordered is not None))
            except self.mpi.Exception:  # on all ranks
                agreed = 0
        if not agreed:
            raise RankFailed(f"another rank was lost at {_WHERE}", None)
        self.peers = [self.peers[rank] for rank in order]
        self.everyone, self.comm, self.active = ordered, comm, active
        self._place = self.everyone.rank if self.is_active else None

    @contextlib.contextmanager
    def _in_time(self) -> Generator[None]:
        """Ends this process, and the job with it, if calls of MPI that have no deadline of their own go past it."""
        timer = threading.Timer(2 * (self.timeout or _LONGEST_SECONDS), os._exit, [EXIT_RANK_FAILED])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _split(self, everyone: Any, active: int) -> Any:
        return everyone if active == everyone.size else everyone.Split(int(everyone.rank >= active))

    def stand_by(self) -> None:
        """Waits, on a rank that does not train, until the job is done. Raises RankFailed when a rank is lost."""
        done = self.everyone.Irecv(np.zeros(1, np.int8), 0, _DONE)
        try:
            while not done.Test():
                time.sleep(_PAUSE)
        except self.mpi.Exception as error:
            raise RankFailed(f"another rank was lost: {error}", None) from error

    def dismiss(self) -> None:
        """Tells the ranks that stand by that the job is done. Ranks that train must call it."""
        if self.everyone.rank == 0:
            for rank in range(self.active, self.everyone.size):
                with contextlib.suppress(self.mpi.Exception):  # of one that is lost
                    self.everyone.Send(np.zeros(1, np.int8), rank, _DONE)


def closed_up(places: list[int | None], active: int) -> list[int]:
    """Returns the ranks that are left in their new order, given the place of each among those that trained."""
    spares = [rank for rank, place in enumerate(places) if place is None]
    trained = {place: rank for rank, place in enumerate(places) if place is not None}
    order: list[int] = []
    for place in range(active):
        if place in trained:
            order.append(trained[place])
        elif spares:
            order.append(spares.pop(0))
    return [*order, *spares]
