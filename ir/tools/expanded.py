"""Counts the instructions that a program has after inlining.

Computations that call others twice double with each level, so that a short program may stand for one without end.
"""

from __future__ import annotations

from ..diagnostics import fail
from ..graph.computation import Computation
from ..graph.module import Module

MOST_INSTRUCTIONS = 5_000_000


def expanded(module: Module) -> tuple[int, int]:
    """Returns an upper bound on the size of the entry after inlining, and how deep calls nest in it."""
    sizes: dict[Computation, int] = {}
    levels: dict[Computation, int] = {}
    for computation in module.callees_first():
        called = list(computation.called())
        sizes[computation] = len(computation) + sum(sizes.get(c, 0) for c in called)
        levels[computation] = 1 + max((levels.get(c, 0) for c in called), default=0)
    return sizes[module.entry], levels[module.entry]


def check_expanded(module: Module, most_levels: int | None = None) -> None:
    """Raises CompileError for a program whose calls nest deeper than this, or that has too many instructions after
    inlining to be compiled or run.
    """
    size, levels = expanded(module)
    if most_levels is not None and levels > most_levels:
        fail(f"calls nest {levels} levels deep, at most {most_levels} are possible", module.entry.location)
    if size > MOST_INSTRUCTIONS:
        fail(f"after inlining the program has {size:,} instructions, at most {MOST_INSTRUCTIONS:,} are possible",
             module.entry.location)
