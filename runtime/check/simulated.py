"""Checks a partitioned program on simulated devices, as `hloom run --check` does on devices of a backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.diagnostics import CompileError
from ...ir.graph.module import Module
from ...ir.types.literal import Array
from ..evaluator import UnpartitionedProgram
from ..simulator import simulate
from .check import CheckVerdict, judge, wide_program
from .reference import Reference


def check_simulated(original: Module, local: Module, inputs: Sequence[Array]) -> CheckVerdict:
    """Compares the results of a per-device program on all its devices with those of the original on one. Takes global
    arrays, one per leaf of the parameters. The padding of inputs is undefined.

    Raises CompileError if one of the programs cannot be run.
    """
    with np.errstate(all="ignore"):
        reference = Reference(UnpartitionedProgram(original), inputs)
        outputs = simulate(local, inputs, poison=True)
        wide, in_f64 = wide_program(reference, local), None
        if wide is not None:
            try:
                in_f64 = simulate(wide.program, wide.inputs, poison=True)
            except CompileError as error:
                reference.give_up(error.diagnostics[0].message)
        return judge(reference, outputs, in_f64, local.devices)
