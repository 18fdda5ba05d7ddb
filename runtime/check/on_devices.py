"""Checks the results of a run on devices: runs the program there once more, in f64, and judges both runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from ...ir.diagnostics import CompileError
from ...ir.graph.module import Module
from ...ir.types.element_type import ElementType
from ...ir.types.literal import Array
from ..evaluator import UnpartitionedProgram
from ..ranks.failed import RankFailed
from .check import CheckVerdict, WideRun, judge, wide_program
from .reference import Reference

T = TypeVar("T")


class CheckedDevices(Protocol):
    """The devices of a run, in one process or in several."""

    def run(self, local: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array] | None:
        """Takes global arrays and returns global results; None on all processes but the first."""
        ...

    def share(self, value: T) -> T:
        """Returns the value of the first process on all processes."""
        ...


def check_on(
    devices: CheckedDevices, program: UnpartitionedProgram | None, local: Module, inputs: Sequence[Array],
    outputs: Sequence[Array] | None, exchanged: Sequence[ElementType] = (), tolerance: float | None = None,
    allow_nan: bool = False,
) -> CheckVerdict | None:  # fmt: skip
    """Judges the `outputs` of a per-device program; the other arguments are those of `judge`. All processes call it;
    the first has the unpartitioned program and the outputs, and all others get None.

    Raises CompileError if the unpartitioned program cannot be run, and RankFailed if a rank is lost.
    """
    reference = Reference(program, inputs) if program is not None else None
    wide = wide_program(reference, local, exchanged) if reference is not None else None
    if devices.share(wide is not None):
        wide = wide or WideRun.of(local, inputs, exchanged)
    in_f64, problem = _run_wide(wide, devices)
    if reference is None or outputs is None:
        return None
    if problem:
        reference.give_up(problem)
    return judge(reference, outputs, in_f64, local.devices, tolerance, allow_nan, exchanged)


def _run_wide(wide: WideRun | None, devices: CheckedDevices) -> tuple[list[Array] | None, str]:
    """Returns the results in f64, and why there are none."""
    if wide is None:
        return None, ""
    try:
        return devices.run(wide.program, wide.inputs, poison=True), ""
    except CompileError as error:
        return None, error.diagnostics[0].message
    except RankFailed as error:
        if not error.reported:
            raise
        return None, error.message  # that rank continues as this one does
