"""Measures the parts of a run (`runtime.measure`), and counts what each does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..cost.memory_traffic import touched
from ..cost.runs import runs
from ..cost.work import multiply_adds
from ..ir.graph.module import Module
from ..ir.types.literal import Array
from ..runtime.measure import Part, StepTimes
from ..runtime.simulator import SimulatedProgram
from .program import Program


def seconds_of_parts(program: Program, inputs: Sequence[Array]) -> dict[Part, float]:
    """Returns the seconds of each part in one run of all devices, the second."""
    backend = program.backend
    simulated = SimulatedProgram(backend.prepared(program.local), backend.kernels())
    simulated.simulate(inputs, observer=StepTimes())
    times = StepTimes()
    simulated.simulate(inputs, observer=times)
    return times.seconds


def work_of_parts(fused: Module, devices: int) -> dict[Part, int]:
    """Returns the operations of all products, and the bytes that other parts read and write; loops of unknown length
    count once.
    """
    done: defaultdict[Part, int] = defaultdict(int)
    for run in runs(fused):
        part, instruction = Part.of_op(run.instruction), run.instruction
        size = 2 * multiply_adds(instruction) if part is Part.PRODUCTS else touched(instruction)
        done[part] += devices * run.count * size
    return done
