"""Checks a partitioned program on simulated devices, as `hloom run --check` does on devices of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ...ir.graph.module import Module
from ...ir.types.literal import Array
from ..evaluator import UnpartitionedProgram
from ..simulator import simulate
from .check import CheckVerdict
from .on_devices import check_on

T = TypeVar("T")


class _InThisProcess:
    def run(self, local: Module, inputs: Sequence[Array], poison: bool = False) -> list[Array]:
        return simulate(local, inputs, poison)

    def share(self, value: T) -> T:
        return value


def check_simulated(original: Module, local: Module, inputs: Sequence[Array]) -> CheckVerdict:
    """Compares the results of a per-device program on all its devices with those of the original on one. Takes global
    arrays, one per leaf of the parameters. The padding of inputs is undefined.

    Raises CompileError if one of the programs cannot be run.
    """
    with np.errstate(all="ignore"):
        program, devices = UnpartitionedProgram(original), _InThisProcess()
        found = check_on(devices, program, local, inputs, simulate(local, inputs, poison=True))
        assert found is not None  # for there is one process
        return found
