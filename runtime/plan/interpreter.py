"""Interprets plans, and defines the types that steps, the compiler of plans and fabrics share.

A frame holds the buffers of one device: slot 0 is the number of the device, each other slot an array (None for a token
or a freed buffer). A plan is a flat list of steps over such buffers. A step runs on the frames of all active devices at
once, so one interpreter serves one device (the evaluator), many devices in lock step (the simulator), and the devices
of an MPI rank; only the fabric differs. Devices may disagree about a condition: each branch then runs with the devices
that chose it. Arrays are never written to after creation, so buffers may share memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...ir.brief import brief
from ...ir.diagnostics import CompileError, InternalError, fail
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import NotEvaluable, RandomState, ShapeError, Value
from ...ir.time_limit import TimeLimit, check_time
from ...ir.tools.process_grid import ProcessGrid
from ..fabric.collective import GridCollective
from ..ranks.failed import RankFailed
from .limits import TripLimit

Frame = list[Any]
NO_DEVICE = -1


class Step:
    """One step of a plan. It reads the buffers `reads`, writes `writes`, and frees `dead`, which no later step reads.
    """

    __slots__ = ("dead", "instruction", "reads", "writes")

    def __init__(self, instruction: Instruction, reads: Sequence[int], writes: Sequence[int]) -> None:
        self.instruction = instruction
        self.reads = tuple(reads)
        self.writes = tuple(writes)
        self.dead: tuple[int, ...] = ()

    def run(self, frames: list[Frame], interpreter: Interpreter) -> None:
        """Executes the step on the frames of the active devices."""
        raise NotImplementedError

    @property
    def acting(self) -> Step:
        """The step that does the work, if this one only adds to it."""
        return self

    @property
    def size(self) -> int:
        """The number of instructions, or of native steps, that the step runs."""
        return 1

    def plans(self) -> tuple[StepPlan, ...]:
        """Returns the plans that the step runs, one at a time."""
        return ()

    def with_plans(self, plans: Sequence[StepPlan]) -> Step:
        """Returns the step with other plans, in the order of `plans`."""
        return self

    def take(self, frames: list[Frame]) -> list[list[Value]]:
        """Returns the operands of each frame, after freeing dead buffers, so that a callee can drop them early."""
        taken = [[frame[i] for i in self.reads] for frame in frames]
        for frame in frames:
            for i in self.dead:
                frame[i] = None
        return taken

    def give(self, frames: list[Frame], results: list[list[Value]]) -> None:
        """Stores the results of each frame."""
        for frame, values in zip(frames, results, strict=True):
            for i, value in zip(self.writes, values, strict=True):
                frame[i] = value


@brief
@dataclass
class StepPlan:
    """A compiled computation. `parameters` and `results` are the buffers of the leaves; `template` is a fresh frame
    with the constants, and `folded` names the instructions that these come from. `runs` counts how often each device
    has run it.
    """

    computation: Computation
    steps: list[Step] = field(default_factory=list[Step])
    parameters: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    template: Frame = field(default_factory=lambda: [None])
    runs: Counter[int] = field(default_factory=Counter[int])
    folded: dict[int, Instruction] = field(default_factory=dict[int, Instruction])

    def frame(self, device: int, arguments: list[Value]) -> Frame:
        """Returns the buffers of one device before the first step."""
        frame = self.template[:]
        frame[0] = device
        for buffer, value in zip(self.parameters, arguments, strict=True):
            frame[buffer] = value
        return frame

    def all_plans(self) -> list[StepPlan]:
        """Returns this plan and all that its steps run, and theirs, each once."""
        found, work = dict[int, StepPlan](), [self]
        while work:
            plan = work.pop()
            if id(plan) not in found:
                found[id(plan)] = plan
                work += [inner for step in plan.steps for inner in step.plans()]
        return list(found.values())


def find_last_uses(plan: StepPlan) -> None:
    """Finds the buffers that each step frees: neither constants nor results, and read by no later step."""
    keep = {i for i, value in enumerate(plan.template) if value is not None}.union(plan.results)
    for step in reversed(plan.steps):
        touched = dict.fromkeys((*step.reads, *step.writes))
        step.dead = tuple(i for i in touched if i not in keep)
        keep.update(touched)


class Fabric(Protocol):
    """Moves data between devices. `devices` are the active local ones, in the order of `operands` and results."""

    def start(self, collective: GridCollective, devices: list[int], operands: list[list[Value]]) -> Any:
        """Begins a collective and returns a handle."""
        ...

    def wait(self, handle: Any) -> list[list[Value]]:
        """Finishes a collective and returns the results per device."""
        ...

    @property
    def needs_progress(self) -> bool:
        """Whether collectives in flight go on only while this process calls the fabric."""
        ...

    def progress(self) -> None:
        """Progresses messages in flight, without waiting."""
        ...


class Observer(Protocol):
    """Sees the values of a run: the frames of the active devices before the first step of a plan, and after each."""

    def begin(self, plan: StepPlan, frames: list[Frame]) -> None: ...
    def after(self, plan: StepPlan, step: Step, frames: list[Frame]) -> None: ...


class Interpreter:
    """Runs plans on a fabric, for one run. Errors of the program become CompileErrors at the instruction.

    `kept` holds the data that steps keep for the next run; runs at the same time must not share it.
    """

    def __init__(
        self, grid: ProcessGrid, fabric: Fabric, observer: Observer | None = None, kept: dict[Any, Any] | None = None
    ) -> None:
        self.grid = grid
        self.fabric = fabric
        self.observer = observer
        self.kept = {} if kept is None else kept
        self._random: dict[int, RandomState] = {}

    def random_state(self, device: int) -> RandomState:
        """Returns the hidden random state of a device in this run."""
        return self._random.setdefault(device, RandomState())

    def execute(self, plan: StepPlan, frames: list[Frame]) -> list[list[Value]]:
        """Runs the plan on the frames of the active devices; returns the leaves of the result of each."""
        step, observer, fabric = None, self.observer, self.fabric
        plan.runs.update([frame[0] for frame in frames])
        try:
            if observer is not None:
                observer.begin(plan, frames)
            for step in plan.steps:
                check_time()
                step.run(frames, self)
                if observer is not None:
                    observer.after(plan, step, frames)
                if fabric.needs_progress:
                    fabric.progress()
        except (CompileError, InternalError, RankFailed, TripLimit):
            raise
        except TimeLimit as limit:
            if step is not None:
                limit.where.append(_located(step.instruction))
            raise
        except (NotEvaluable, ShapeError) as error:
            assert step is not None
            fail(f"{label(step.instruction)}: {error}", step.instruction.location, error.help)
        except RecursionError:
            assert step is not None
            fail(f"{label(step.instruction)}: loops and branches nest too deep", step.instruction.location)
        except MemoryError:
            assert step is not None
            size = step.instruction.shape.byte_size
            fail(f"{label(step.instruction)}: out of memory ({size:,} bytes asked for)", step.instruction.location)
        except Exception as error:
            assert step is not None
            raise InternalError(f"{label(step.instruction)}: {type(error).__name__}: {error}", "runtime") from error
        return [[frame[i] for i in plan.results] for frame in frames]


def _located(instruction: Instruction) -> str:
    """Returns the name of an instruction with its place in the text."""
    at = instruction.location
    return f"{label(instruction)} ({at.source.name}:{at.line})" if at is not None else label(instruction)


def label(instruction: Instruction) -> str:
    """Returns the name of an instruction in messages: its opcode and its name."""
    return f"{instruction.opcode} {instruction.name}"
