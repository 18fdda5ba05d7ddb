"""Records the values of a run: of all instructions, on all devices, in the first iterations of loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from ....ir.types.literal import Array
from ...plan.interpreter import Frame, Step, StepPlan
from ..flow import DataFlow, Owners, ValueLeaf
from ..pairs import is_pairs, words

Run = dict[int, Array]  # the array of each device

_MOST_RUNS = 4  # of one computation


class Recorder:
    """Records the values of one run of a program, in order of execution.

    `values` has one entry per execution of an instruction; `is_complete` says that no value was left out because the
    program's values exceed `most_bytes`.
    """

    def __init__(self, flow: DataFlow, most_bytes: int = 1 << 30) -> None:
        self.flow, self.most_bytes = flow, most_bytes
        self.values: dict[ValueLeaf, list[Run]] = {}
        self.is_complete = True
        self._runs: Counter[int] = Counter()
        self._bytes = 0
        self._kept: set[int] = set()

    def begin(self, plan: StepPlan, frames: list[Frame]) -> None:
        """Records parameters and constants."""
        self._runs[id(plan)] += 1
        self._record(plan, (*plan.folded, *plan.parameters), frames)

    def after(self, plan: StepPlan, step: Step, frames: list[Frame]) -> None:
        """Records the results of a step."""
        self._record(plan, step.writes, frames)

    def _record(self, plan: StepPlan, buffers: Iterable[int], frames: list[Frame]) -> None:
        owners: Owners = self.flow.owners.get(id(plan), {})
        if self._runs[id(plan)] > _MOST_RUNS:
            return
        for buffer in buffers:
            place = owners.get(buffer)
            run = {f[0]: f[buffer] for f in frames if _is_array(f[buffer])}
            if place is not None and run and self._fits(run):
                self.values.setdefault(place, []).append({d: _elements(a) for d, a in run.items()})

    def _fits(self, run: Run) -> bool:
        new = {id(a): a.nbytes for a in run.values() if id(a) not in self._kept}
        if self._bytes + sum(new.values()) > self.most_bytes:
            self.is_complete = False
            return False
        self._bytes += sum(new.values())
        self._kept.update(new)
        return True


def _is_array(x: Any) -> bool:
    """Whether a buffer holds an array of numbers: not a token, nor an array with the sizes of its dimensions."""
    return isinstance(x, np.ndarray | np.generic) and not x.dtype.names  # pyright: ignore[reportUnknownMemberType]


def _elements(x: Any) -> Array:
    """An array as it is; a complex one as its elements, with one more dimension for the parts."""
    array = np.asarray(x)
    return words(array) if is_pairs(array) else array
