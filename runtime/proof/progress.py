"""Tracks the progress of a proof, for users who wait and for verdicts of timed-out proofs."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph.module import Module
from ...ir.time_limit import TimeLimit
from .verdict import Unfinished, Verdict

Tell = Callable[[str], None]


class Progress:
    """The running part of a proof, which `tell` is called with, and the finished trials. Raises ValueError for no time.

    `limit` is set if the time was up in a part that the verdict does not depend on.
    """

    def __init__(self, original: Module, seconds: float, tell: Tell | None = None) -> None:
        if not seconds > 0:
            raise ValueError("a proof needs time")
        self._original, self._seconds, self._tell = original, seconds, tell
        self._ended = 0
        self._during = ""
        self.limit: TimeLimit | None = None

    def begin(self, part: str, ended: int = 0, known: str = "") -> None:
        """Records the part that starts, after so many trials, and tells it after the verdict, if that is `known`."""
        self._during, self._ended = part, ended
        if self._tell is not None:
            self._tell(f"{known}; {part}" if known else part)

    def undecided(self, limit: TimeLimit) -> Verdict:
        """Returns the verdict of a proof that this limit has ended."""
        self.limit = limit
        outputs, unfinished = count_outputs(self._original), self.unfinished()
        return Verdict("undecided", outputs, self._ended, 1.0, None, "", (), (), (), unfinished=unfinished)

    def unfinished(self) -> Unfinished | None:
        """Returns the part that the time limit interrupted; None if there was no interruption."""
        if self.limit is None:
            return None
        return Unfinished(self._seconds, self._during, tuple(reversed(self.limit.where)))


def count_outputs(original: Module) -> int:
    """Returns the number of arrays that a program returns."""
    return sum(leaf.is_array for leaf in original.entry.root.shape.leaves())
