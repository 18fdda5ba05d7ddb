"""Steps that change an array in place where nobody else can see it: a loop that writes a slice per trip then moves the
slice, not the whole array.

An array belongs to its buffer alone if nothing else refers to it or its memory: neither another buffer, nor a view, nor
whoever gave it as input. References are counted by Python; where it does not count them, arrays are
copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.graph.instruction import Instruction
from ...ir.graph.update import UpdatingKernel
from .interpreter import Frame, Interpreter
from .steps import ComputeStep

_references: Callable[[Any], int] | None = getattr(sys, "getrefcount", None)


def _count(frame: Frame, buffer: int) -> int:
    """Returns how many references there are to a value, with those of this call."""
    return _references(frame[buffer]) if _references is not None else 0


def _count_of_base(array: Any) -> int:
    """Returns how many references there are to the array whose memory this one views, with those of this call."""
    return _references(array.base) if _references is not None else 0


_ALONE, _ONE_VIEW = _count([np.empty(1)], 0), _count_of_base(np.empty(2)[1:])


def is_owned(frame: Frame, buffer: int) -> bool:
    """Whether an array may be changed: it belongs to this buffer alone."""
    if not _ALONE or _count(frame, buffer) != _ALONE:
        return False
    value = frame[buffer]
    if type(value) is not np.ndarray or not value.flags.writeable:
        return False
    whole = type(value.base) is np.ndarray and value.base.flags.owndata
    return bool(value.flags.owndata) or (whole and _count_of_base(value) == _ONE_VIEW)


class UpdateStep(ComputeStep):
    """Calls an updating kernel, on the array itself if that is its last use and it belongs to its buffer alone."""

    __slots__ = ("updating",)

    def __init__(
        self, instruction: Instruction, kernel: UpdatingKernel, reads: Sequence[int], write: int
    ) -> None:
        super().__init__(instruction, kernel, reads, write)
        self.updating = kernel

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        first, *others = self.reads
        if first not in self.dead or first in others or not all(is_owned(frame, first) for frame in frames):
            super().run(frames, interpreter)
            return
        for frame in frames:
            value = frame[first]
            self.updating.update(value, *[frame[i] for i in others])
            for i in self.dead:
                frame[i] = None
            if self.writes[0] not in self.dead:
                frame[self.writes[0]] = value
