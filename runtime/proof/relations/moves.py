"""Finds the source of an element that an instruction moves, by running it on indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.diagnostics import CompileError
from ....ir.graph.attributes import Dims
from ....ir.graph.interfaces import movement
from ....ir.graph.op import Algebra, NotEvaluable
from ....ir.types.literal import Array
from ...fabric.local import LocalFabric
from ...plan.steps import ComputeStep, StartStep
from ..flow import DataFlow, ValueLeaf
from .index import leaf_is_float
from .record import Run

Taken = tuple[ValueLeaf, int, Dims]

_MOVES = (Algebra.MOVE, Algebra.MADE, None)


def moves(place: ValueLeaf) -> bool:
    """Whether an instruction only moves elements, on one device or between several."""
    instruction = place.instruction
    if instruction.op.is_collective:
        return getattr(instruction.attributes, "to_apply", None) is None
    return instruction.op.algebra_of(instruction.call) in _MOVES


def taken_from(
    flow: DataFlow, runs: Sequence[Run], place: ValueLeaf, device: int, at: Dims
) -> Taken | None:
    """The operand, device and place that an element of the value comes from. `runs` are the values of the step's
    operands. None if it comes from none, or if that is not known.
    """
    making = flow.making.get(place)
    if making is None or not moves(place):
        return None
    reads = [read for read in making.reads if read is not None]
    if len(reads) != len(making.reads) or any(device not in run for run in runs):
        return None
    sources = _sources(place, reads)
    try:
        with np.errstate(all="ignore"):
            if isinstance(making.step, StartStep):
                return _exchanged(making.step, place, reads, runs, device, at)
            if isinstance(making.step, ComputeStep) and place.leaf == 0:
                first, numbered = 1, list[Any]()
                for n, run in enumerate(runs):
                    array = run[device]
                    numbered.append(_numbers(array, first) if n in sources else array)
                    first += array.size if n in sources else 0
                found = int(making.step.kernel(*numbered)[at])
                for n, run in enumerate(runs):
                    if n in sources:
                        if 0 < found <= run[device].size:
                            return reads[n], device, _place(found - 1, run[device].shape)
                        found -= run[device].size
    except (NotEvaluable, CompileError, TypeError, ValueError):
        return None
    return None


def _sources(place: ValueLeaf, reads: Sequence[ValueLeaf]) -> list[int]:
    """The operands that the elements of the result come from."""
    known, is_float = movement(place.instruction.op).element_sources, leaf_is_float(place)
    alike = [n for n, read in enumerate(reads) if leaf_is_float(read) == is_float]
    return [n for n in alike if n in known] or (alike if is_float or len(reads) == 1 else [])


def _exchanged(
    step: StartStep, place: ValueLeaf, reads: Sequence[ValueLeaf], runs: Sequence[Run], device: int, at: Dims
) -> Taken | None:
    devices = sorted(runs[0])
    sizes = [run[device].size for run in runs]
    total = sum(sizes)
    operands = [
        [_numbers(run[d], 1 + total * k + sum(sizes[:n])) for n, run in enumerate(runs)] for k, d in enumerate(devices)
    ]
    fabric = LocalFabric()
    results = fabric.wait(fabric.start(step.collective, devices, operands))
    found = int(results[devices.index(device)][place.leaf][at]) - 1
    if found < 0:
        return None
    number, rest = divmod(found, total)
    for n, size in enumerate(sizes):
        if rest < size:
            return reads[n], devices[number], _place(rest, runs[n][device].shape)
        rest -= size
    return None


def _numbers(array: Array, first: int) -> Array:
    numbers: Array = np.arange(first, first + array.size)
    return numbers.astype(array.dtype).reshape(array.shape)


def _place(number: int, shape: Dims) -> Dims:
    return tuple(map(int, np.unravel_index(number, shape)))
