"""Proves programs equal, shows results for all inputs, and finds the first wrong instruction of those that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....ir.checked_call import checked
from ....ir.graph.module import Module
from ....ir.time_limit import TimeLimit, time_limit
from ....ir.tools.placement import placed_like
from ...evaluator import UnpartitionedProgram
from ...simulator import SimulatedProgram
from ..oracle import Oracle
from ..progress import Progress, Tell
from ..prove import TIMEOUT
from ..prove import prove as proved
from ..verdict import Origin, Verdict
from .origin import Search
from .relate import related
from .shown import on_terms, shown

Array = np.ndarray[Any, Any]


@checked
def prove(
    original: Module, local: Module, trials: int | None = None, seed: int = 0, all_inputs: bool = False,
    timeout: float = TIMEOUT, tell: Tell | None = None,
) -> Verdict:  # fmt: skip
    """Whether a program per device, simulated on all devices, computes what the original does, and if not, since which
    of its instructions.

    The padding of inputs is undefined. Outputs are shown to be equal but for a tiny chance, or else they are tested
    only: by as many trials as the decisions of the program need, if `trials` gives no number. `local` may be the work
    of another partitioner: a parameter or result of it that has no sharding lies on the devices as `original` says.
    With `all_inputs` programs in which no trial finds a difference run once more to count the values that are right for
    all inputs, integers and comparisons included. All that takes no longer than about `timeout` seconds: then the
    verdict is undecided, and says what was running. `tell` is called with each part of the proof that begins.

    Raises CompileError for programs that cannot be run, and ValueError for no trials or no time.
    """
    with time_limit(timeout):
        verdict = proved(original, local, trials, seed, _origin, on_terms, timeout, tell)
        if not all_inputs or not verdict.agrees:
            return verdict
        progress = Progress(original, timeout, tell)
        progress.begin("the count of values that are right for all inputs")
        try:
            return replace(verdict, shown=shown(original, placed_like(local, original), seed))
        except TimeLimit as limit:
            progress.limit = limit
            return replace(verdict, unfinished=progress.unfinished())


def _origin(
    original: UnpartitionedProgram, local: SimulatedProgram, inputs: Sequence[Array], oracle: Oracle
) -> Origin | None:
    return Search(related(original, local, inputs, oracle), local.results).origin()
