"""Runs loops that consist of native steps, and of loops and branches of such, in machine code, trip after trip.

The code of a loop is kept for its next run, which copies the state in, and out what trips do not forward, if that takes
less time than making the code again.
"""

from __future__ import annotations

import numpy as np

from ...codegen.native.run_loop import code
from ...cost.host import HOST
from ...ir.time_limit import check_time
from ...ir.types.literal import Array
from ..plan.interpreter import Frame, Interpreter, Step
from ..plan.steps import ConditionalStep, WhileStep, free_unused
from .addresses import address
from .control import DeviceRun, Loop, NotNative, array_of
from .table import TableStep
from .workers import run_all


def native_loop(step: WhileStep) -> Step:
    """Returns a step that runs the loop in machine code, if it consists of tables, and of loops and branches of these.
    """
    if not all(isinstance(inner.acting, TableStep | ConditionalStep | WhileStep) for inner in _inside(step)):
        return step
    return LoopStep(step.instruction, step.condition, step.body, step.reads, step.writes)


def _inside(loop: WhileStep) -> list[Step]:
    """Returns the steps of a loop, and those of its loops and branches."""
    return [step for plan in loop.plans() for inner in plan.all_plans() for step in inner.steps]


class LoopStep(WhileStep):
    """Runs a loop in machine code; in Python if the layout of the state does not allow that."""

    __slots__ = ()

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        try:
            loops = [self._loop(frame, interpreter) for frame in frames]
        except NotNative:
            super().run(frames, interpreter)
            return
        self.take(frames)
        going = loops
        while going:
            check_time()
            for loop in going:
                loop.run.left[0] = HOST.pause
            run_all(code("loop").run, [address(loop.block) for loop in going], HOST.pause * len(going))
            going = [loop for loop in going if not loop.block[0]]
            interpreter.fabric.progress()
        self.give(frames, [self._results(loop, interpreter) for loop in loops])
        free_unused(self, frames)

    def _loop(self, frame: Frame, interpreter: Interpreter) -> Loop:
        """Returns the loop of a device before its first trip. Raises NotNative."""
        given, run = [array_of(frame[buffer]) for buffer in self.reads], DeviceRun(interpreter, frame[0])
        if sum(x.nbytes for x in given) > HOST.copied_state * len(_inside(self)):
            loop = Loop.of(self, given, run)
        else:
            # One that does not come to its end, as at a limit of time, is not there for the next run.
            kept = self._kept(interpreter).pop(frame[0], None)
            loop = kept or Loop.of(self, [np.empty(x.shape, x.dtype) for x in given], run)
            loop.is_kept = True
        loop.begin(given)
        return loop

    def _results(self, loop: Loop, interpreter: Interpreter) -> list[Array]:
        if not loop.is_kept:
            return loop.state
        self._kept(interpreter)[loop.run.device] = loop
        given, loop.given = loop.given, ()
        ends = zip(loop.state, given, self.body.parameters, self.body.results, strict=True)
        return [old if first == last else x.copy() for x, old, first, last in ends]  # later runs overwrite the state

    def _kept(self, interpreter: Interpreter) -> dict[int, Loop]:
        return interpreter.kept.setdefault(self, {})
