"""Runs loops that consist of native steps, and of loops and branches of such, in machine code, trip after trip.

The code of a loop is kept for its next run.
"""

from __future__ import annotations

from ...codegen.native.run_loop import code
from ...cost.host import HOST
from ...ir.time_limit import check_time
from ...ir.types.memory import address
from ..plan.interpreter import Frame, Interpreter, Step
from ..plan.steps import ConditionalStep, WhileStep, free_unused
from .control import Loop, NotNative, array_of
from .table import TableStep
from .workers import run_all


def native_loop(step: WhileStep) -> Step:
    """Returns a step that runs the loop in machine code, if it consists of tables, and of loops and branches of these.
    """
    inside = (inner.acting for plan in step.plans() for own in plan.all_plans() for inner in own.steps)
    if not all(isinstance(inner, TableStep | ConditionalStep | WhileStep) for inner in inside):
        return step
    return LoopStep(step.instruction, step.condition, step.body, step.reads, step.writes)


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
                loop.left[0] = HOST.pause
            run_all(code("loop").run, [address(loop.block) for loop in going], HOST.pause * len(going))
            going = [loop for loop in going if not loop.block[0]]
            interpreter.fabric.progress()
        self.give(frames, [loop.end() for loop in loops])
        self._kept(interpreter).update((loop.device, loop) for loop in loops)
        free_unused(self, frames)

    def _loop(self, frame: Frame, interpreter: Interpreter) -> Loop:
        """Returns the loop of a device before its first trip. Raises NotNative."""
        given = [array_of(frame[buffer]) for buffer in self.reads]
        # One that does not come to its end, as at a limit of time, is not there for the next run.
        loop = self._kept(interpreter).pop(frame[0], None)
        if loop is None or not loop.is_like(given):
            loop = Loop(self, given, interpreter, frame[0])
        loop.begin(given)
        return loop

    def _kept(self, interpreter: Interpreter) -> dict[int, Loop]:
        return interpreter.kept.setdefault(self, {})
