"""Estimates whether compiling a program to native code pays off over its executions.

Fused code saves the memory traffic between ops and the calls of numpy; fusing, lowering and compiling take about the
same time for each op of the program, however large its arrays are. The figures are fitted to two training steps on one
core of an AMD EPYC (Zen 4), op by op against native code (docs/native.md): they paid 0.3 and 0.6 ms per op with machine
code in the cache, 0.9 and 1.5 ms without.
"""

from __future__ import annotations

from ..ir.graph.module import Module
from .host import HOST
from .memory_traffic import touched
from .runs import runs
from .work import is_contraction


def is_worth_compiling(module: Module, times: float = 1) -> bool:
    """Whether native code saves more time in `times` executions of a program than compiling takes.

    Products do not count: both use the same library. Loops of unknown length count once.
    """
    saved = paid = 0.0
    for run in runs(module):
        size = touched(run.instruction)
        if size and not is_contraction(run.instruction):
            saved += run.count * times * (size * HOST.saved_per_byte + HOST.saved_per_run)
            paid += HOST.compiling
    return saved > paid
