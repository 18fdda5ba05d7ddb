"""Has the function that users call to train: in this process, or on ranks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...ir.brief import brief
from ...ir.checked_call import Duration, NotNegative, Positive, checked
from ...ir.graph.module import Module
from ...ir.types.literal import Array
from ...runtime.global_arrays import join_outputs
from ...runtime.inputs.inputs import InputSource
from ...runtime.ranks.failed import Communicator
from ..compile import compile
from ..program import Program
from .loop import CheckpointPlan, Trainer, state_count
from .metrics import MetricsFile, StepRecord
from .step_inputs import StepInputs


@brief
@dataclass
class Trained:
    """The end of a training run: the state after `step` steps, and a record of each step that was run. The state is
    global arrays, or on ranks the local ones of each device of this rank.
    """

    step: int
    state: list[Any]
    records: list[StepRecord] = field(default_factory=list[StepRecord])

    @property
    def losses(self) -> list[float | None]:
        """The loss of each step that was run."""
        return [record.loss for record in self.records]


@checked
def train(
    program: Module | Program, steps: NotNegative, inputs: str | Callable[[int], Any] = "random",
    state: Positive | None = None, initial: str | Sequence[Any] = "random",
    checkpoint: str | os.PathLike[str] | None = None, every: str = "auto", keep: Positive = 2,
    metrics: str | os.PathLike[str] | None = None, seed: NotNegative = 0, comm: Communicator | None = None,
    timeout: Duration | None = None,
) -> Trained:  # fmt: skip
    """Runs a step program until `steps` steps are done. Its first `state` parameters are the state, which it returns
    first; by default as many as it returns with equal types and dimensions.

    `inputs` gives the other parameters of each step: a text as of `hloom train --inputs`, or a function of the number
    of the step that returns global arrays, in order or by name. `initial` is the state before step 0. With a folder
    `checkpoint` the run begins at its newest step, and writes the state there `every` N steps, "60s", or as often as it
    pays ("auto"), and at the end. `metrics` is a file that gets a line of JSON per step. With `comm` all of its ranks
    call it.

    Raises CompileError for programs and inputs that do not fit, CheckpointError if the last checkpoint cannot be
    written, and RankFailed if a rank is lost.
    """
    made = program if isinstance(program, Program) else compile(program, ranks=comm.size if comm is not None else None)
    count = state_count(made.local, state)
    plan = CheckpointPlan.of(checkpoint, every, keep)
    given = StepInputs(made.module, count, inputs, seed)

    def start() -> Sequence[Array]:
        if not isinstance(initial, str):
            return initial
        return InputSource(made.module, initial, slice(0, count), "initial").make(seed)

    with contextlib.ExitStack() as stack:
        if comm is None:
            trainer = Trainer(made.simulated, given, count, plan)
        else:
            running = stack.enter_context(made.on_ranks(comm, timeout))
            trainer = Trainer(running, given, count, plan, comm, running.watch)
        records = trained(trainer, start, steps, Path(metrics) if metrics is not None else None)
        found: list[Any] = trainer.state
        if comm is None:
            run = made.simulated
            found = join_outputs(trainer.state, run.parameters[:count], run.grid, run.executable.kernels)
        return Trained(trainer.step, found, records)


def trained(
    trainer: Trainer, initial: Callable[[], Sequence[Array]], steps: int, metrics: Path | None,
    show: Callable[[StepRecord], None] = lambda record: None,
) -> list[StepRecord]:  # fmt: skip
    """Runs a trainer to the end, or until it is asked to stop, and returns the records of the steps. `show` sees each
    on the first process.
    """
    records: list[StepRecord] = []
    file: MetricsFile | None = None
    try:
        trainer.begin(initial)
        if metrics is not None and trainer.is_first:
            file = MetricsFile(metrics, trainer.step, tuple(trainer.recent))
        while trainer.step < steps and not trainer.is_stopping:
            records.append(trainer.run_step())
            if file is not None:
                file.write(records[-1])
            if trainer.is_first:
                show(records[-1])
        trainer.finish()
    except BaseException:
        trainer.abandon()
        raise
    finally:
        if file is not None:
            file.close()
    return records
