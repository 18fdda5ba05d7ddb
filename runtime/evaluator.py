"""The evaluator: a program of whole tensors on one device. The oracle that everything else is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.module import Module
from .collectives import LocalFabric
from .executor import Executable
from .process_grid import ProcessGrid

Array = np.ndarray[Any, Any]


def evaluate(module: Module, inputs: Sequence[Array]) -> list[Array]:
    """The results of a GLOBAL module.

    `inputs` holds one array per leaf of the parameters, in order; the answer one per leaf of the result. The program
    runs alone: partition-id and replica-id are 0, and each collective has a group of one.

    Raises CompileError if the inputs do not fit, or where an op cannot be evaluated.
    """
    return Executable(module, ProcessGrid(alone=True)).run([0], [inputs], LocalFabric())[0]
