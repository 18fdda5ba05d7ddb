"""Work on many inputs in processes of their own: one that dies or stops answering costs its present input alone."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

Result = TypeVar("Result")
_PROCESSES = multiprocessing.get_context("fork")


class _Worker(Generic[Result]):
    """A process that works on `seeds`, and sends the results in their order; `done` are those that have come."""

    def __init__(self, work: Callable[[int], Result], seeds: Sequence[int]) -> None:
        self.work, self.seeds, self.done = work, seeds, 0
        self._start()

    def _start(self) -> None:
        self.connection, theirs = _PROCESSES.Pipe(duplex=False)
        self.heard = time.monotonic()
        self.process = _PROCESSES.Process(target=self._run, args=(theirs, self.seeds[self.done :]), daemon=True)
        self.process.start()
        theirs.close()

    def _run(self, connection: Connection, seeds: Sequence[int]) -> None:
        self.connection.close()  # held here too, a process would not notice that nobody reads its results any more
        for seed in seeds:
            connection.send(self.work(seed))

    def take(self) -> tuple[int, Result | None]:
        """The next seed and its result, None if the process is gone, which then starts again behind that seed."""
        seed = self.seeds[self.done]
        self.done += 1
        self.heard = time.monotonic()
        try:
            return seed, self.connection.recv()
        except EOFError:
            self.process.join()
            self.connection.close()
            if self.done < len(self.seeds):
                self._start()
            return seed, None


def results(
    work: Callable[[int], Result], seeds: Sequence[int], workers: int, patience: float
) -> Iterator[tuple[int, Result | None]]:
    """The seeds and their results as these come; None where a process died, or said nothing for `patience` seconds."""
    shares = [share for n in range(workers) if (share := seeds[n::workers])]
    busy: list[_Worker[Result]] = [_Worker(work, share) for share in shares]
    while busy:
        ready = wait([worker.connection for worker in busy], timeout=1)
        for worker in busy:
            if worker.connection in ready:
                yield worker.take()
            elif time.monotonic() - worker.heard > patience:
                worker.process.kill()
        busy = [worker for worker in busy if worker.done < len(worker.seeds)]
