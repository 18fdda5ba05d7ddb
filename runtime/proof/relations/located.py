"""Proves programs equal, says what holds for all inputs, and names the first wrong instruction of those that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....ir.graph.module import Module
from ....ir.tools.placement import placed_like
from ...evaluator import UnpartitionedProgram
from ...simulator import SimulatedProgram
from ..oracle import Oracle
from ..prove import TRIALS
from ..prove import prove as proved
from ..verdict import Origin, Verdict
from .origin import Search
from .relate import related
from .shown import shown

Array = np.ndarray[Any, Any]


def prove(
    original: Module, local: Module, trials: int = TRIALS, seed: int = 0, all_inputs: bool = False
) -> Verdict:
    """Whether a program per device, simulated on all devices, computes what the original does, and if not, since which
    of its instructions.

    The padding of inputs is undefined. More trials lower the chance that a difference is missed; the first four differ
    in what inputs are like. `local` may be the work of another partitioner: a parameter or result of it that has no
    sharding lies on the devices as `original` says. With `all_inputs` equal programs run once more to find what
    holds for all inputs, integers and comparisons included.

    Raises CompileError for programs that cannot be run, and ValueError for no trials.
    """
    verdict = proved(original, local, trials, seed, _origin)
    if not all_inputs or not verdict.is_equal:
        return verdict
    return replace(verdict, shown=shown(original, placed_like(local, original), seed))


def _origin(
    original: UnpartitionedProgram, local: SimulatedProgram, inputs: Sequence[Array], oracle: Oracle
) -> Origin | None:
    return Search(related(original, local, inputs, oracle), local.results).origin()
