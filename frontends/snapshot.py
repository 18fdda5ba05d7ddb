"""Holds a program with the arguments and the result of a run, as XLA dumps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir.graph.module import Module


@dataclass(frozen=True)
class Snapshot:
    """An HloSnapshot: a module, the arguments it was run on, and its result.

    Values are as in the evaluator: numpy arrays, and tuples of values. `result` is None if the snapshot does not hold
    it.
    """

    module: Module
    arguments: tuple[Any, ...]
    result: Any
    platform: str
