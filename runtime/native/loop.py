"""Loops that consist of native steps, and of loops and branches of such: machine code runs them, trip after trip."""

from __future__ import annotations

from ...codegen.native.run_loop import code
from ..plan.interpreter import Frame, Interpreter, Step
from ..plan.limits import check_time
from ..plan.steps import WhileStep, free_unused
from .addresses import address
from .control import PIECE, Loop, NotNative, Run, array_of, is_native
from .workers import run_all


def native_loop(step: WhileStep) -> Step:
    """Returns a loop that machine code runs, if all of it can be."""
    return LoopStep(step.instruction, step.condition, step.body, step.reads, step.writes) if is_native(step) else step


class LoopStep(WhileStep):
    """Runs a loop by machine code; as Python does where the state does not lie as that needs it."""

    __slots__ = ()

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        try:
            loops = [self._loop(frame, Run(interpreter, frame[0])) for frame in frames]
        except NotNative:
            super().run(frames, interpreter)
            return
        self.take(frames)
        going = loops
        while going:
            check_time()
            for _, run in going:
                run.left[0] = PIECE
            run_all(code("loop").run, [address(loop.block) for loop, _ in going], PIECE * len(going))
            going = [(loop, run) for loop, run in going if not loop.block[0]]
            if interpreter.fabric.needs_progress:
                interpreter.fabric.progress()
        self.give(frames, [loop.state for loop, _ in loops])
        free_unused(self, frames)

    def _loop(self, frame: Frame, run: Run) -> tuple[Loop, Run]:
        return Loop.of(self, [array_of(frame[buffer]) for buffer in self.reads], run), run
