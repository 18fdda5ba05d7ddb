"""Steps that change an array in place where nobody else can see it: a loop that writes a slice per trip then moves the
slice, not the whole array.

An array belongs to its buffer alone if it holds its own memory and nothing else refers to it: neither another buffer,
nor a view, nor whoever gave it as input. References are counted by Python; where it does not count them, arrays are
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


_ALONE = _count([np.empty(1)], 0)


def is_owned(frame: Frame, buffer: int) -> bool:
    """Whether an array may be changed: it belongs to this buffer alone."""
    if not _ALONE or _count(frame, buffer) != _ALONE:
        return False
    value = frame[buffer]
    return type(value) is np.ndarray and bool(value.flags.owndata and value.flags.writeable)


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
