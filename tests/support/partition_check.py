"""The property of the partitioner: a partitioned program gives the numbers of one device.

`difference` says what is wrong with a program, for tests and for the reducer (`shrink`): padding of inputs is poisoned,
devices that hold the same tile agree to the bit (the simulator checks it), the LOCAL module verifies, and its text says
all there is to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import Pass, PassContext, run_pipeline
from hloom.passes.pipelines import PARTITION, PROPAGATE
from hloom.passes.spmd.partition import SpmdPartition
from hloom.runtime.simulator import simulate
from support.compare import compare
from support.region_reference import whole_results

Arrays = Sequence[np.ndarray[Any, Any]]


def partitioned(module: Module, windowed: int = 0) -> Module:
    """A LOCAL copy of a GLOBAL module, verified after every pass."""
    local = clone_module(module)
    passes: list[Pass] = [SpmdPartition(windowed=windowed) if isinstance(p, SpmdPartition) else p for p in PARTITION]
    run_pipeline([*PROPAGATE, *passes], local, PassContext(verify="each"))
    return local


def difference(module: Module, inputs: Arrays, windowed: int = 0, signs: bool = False) -> str | None:
    """What differs between one device and all of them, or None; with `signs`, zeros of other signs too. Errors of the
    passes are raised.
    """
    with np.errstate(all="ignore"):
        expected = whole_results(module, inputs)
        local = partitioned(module, windowed)
        try:
            found = simulate(local, inputs, poison=True)
        except CompileError as error:
            return f"one device runs the program, all of them do not: {error}"
        result = compare(found, expected, signs=signs)
        if not result.equal:
            return str(result)
        reread = simulate(parse(local.to_text()), inputs)
        same = compare(reread, found, scale=0, signs=True)
        return None if same.equal else f"the text of the partitioned program means something else: {same}"
