"""Runs programs that stay unproved on plain numbers: a difference there decides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...ir.diagnostics import CompileError
from ...ir.graph.module import Module
from ...ir.types.element_type import from_numpy
from ...ir.types.literal import Array
from ..check.simulated import check_simulated
from ..inputs.inputs import inputs_for_module

_FEW = 3  # values of a float input that shows ties


def difference_on_numbers(original: Module, local: Module, seed: int) -> str:
    """Describes a result that differs on random inputs or on inputs of few values, by more than rounding explains.
    Empty if none does, or a program cannot be run.
    """
    try:
        for what, inputs in _inputs(original, seed):
            found = check_simulated(original, local, inputs).differences
            if found:
                return f"on {what} of seed {seed}, {found[0]}"
    except CompileError:
        pass
    return ""


def _inputs(original: Module, seed: int) -> Iterator[tuple[str, list[Array]]]:
    random, draw = inputs_for_module(original, seed=seed), np.random.default_rng(seed)
    yield "random inputs", random
    yield "inputs of few values", [_few(x, draw) for x in random]


def _few(array: Array, draw: np.random.Generator) -> Array:
    if not array.size or array.dtype.kind in "biu" or from_numpy(array.dtype).is_integer:
        return array
    return array.reshape(-1)[draw.integers(0, min(_FEW, array.size), array.shape)]
