"""Comparing the outputs of two runs, with tolerances by element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.element_type import ElementType, from_numpy

Array = np.ndarray[Any, Any]

# Relative; the absolute tolerance is the same times the largest magnitude of the expected array (at least 1).
# About sqrt(epsilon) of the type: room for another order of summation, none for a wrong element.
_TOLERANCE = {"f64": 1e-9, "c128": 1e-9, "f32": 1e-4, "c64": 1e-4, "f16": 1e-2, "bf16": 4e-2}
_SMALL_FLOAT_TOLERANCE = 0.25


def tolerance(element: ElementType) -> float:
    """The relative tolerance for a type; 0 for integers and predicates."""
    if not (element.is_float or element.is_complex):
        return 0.0
    return _TOLERANCE.get(element.name, _SMALL_FLOAT_TOLERANCE)


@dataclass(frozen=True)
class Difference:
    """One output that differs. `index` is the place of the largest absolute error."""

    output: int
    reason: str
    count: int = 0
    size: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.size:
            return f"output {self.output}: {self.reason}"
        return (
            f"output {self.output}: {self.count} of {self.size} elements differ, absolute error {self.absolute:.3g}, "
            f"relative {self.relative:.3g}, worst at {list(self.index)}: {self.reason}"
        )


@dataclass(frozen=True)
class Comparison:
    """`absolute` and `relative` are the largest errors over all outputs, within tolerance or not."""

    outputs: int
    differences: tuple[Difference, ...]
    absolute: float
    relative: float

    @property
    def equal(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        head = (
            f"{len(self.differences)}/{self.outputs} outputs differ "
            f"(largest error {self.absolute:.3g} absolute, {self.relative:.3g} relative)"
        )
        return "\n".join([head, *(f"  {difference}" for difference in self.differences)])


def compare(actual: Sequence[Array], expected: Sequence[Array], scale: float = 1.0) -> Comparison:
    """Compares output by output: types and dimensions exactly, numbers within `scale` times the tolerance of their
    type. NaNs are equal to each other, infinities only to themselves.
    """
    if len(actual) != len(expected):
        reason = f"there are {len(actual)} outputs, {len(expected)} were expected"
        return Comparison(len(expected), (Difference(min(len(actual), len(expected)), reason),), 0.0, 0.0)
    found: list[Difference] = []
    largest = (0.0, 0.0)
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            found.append(Difference(number, f"{_type(a)} instead of {_type(b)}"))
            continue
        errors, difference = _compare(number, a, b, scale)
        largest = (max(largest[0], errors[0]), max(largest[1], errors[1]))
        if difference is not None:
            found.append(difference)
    return Comparison(len(expected), tuple(found), *largest)


def _type(array: Array) -> str:
    return f"{from_numpy(array.dtype)}[{','.join(map(str, array.shape))}]"


def _compare(number: int, a: Array, b: Array, scale: float) -> tuple[tuple[float, float], Difference | None]:
    element = from_numpy(a.dtype)
    if a.size == 0:
        return (0.0, 0.0), None
    wide = np.complex128 if element.is_complex else np.float64
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        same = np.asarray((a == b) | ((a != a) & (b != b)))
        magnitude = np.abs(y)
        error = np.where(same, 0.0, np.nan_to_num(np.abs(x - y).astype(np.float64), nan=np.inf))
        finite = magnitude[np.isfinite(magnitude)]
        largest = max(1.0, float(finite.max())) if finite.size else 1.0
        bound = scale * tolerance(element)
        wrong = ~same & ~((error <= bound * (magnitude + largest)) & (bound > 0))
        relative = float(np.max(np.where(error > 0, error / np.maximum(magnitude, 1e-300), 0.0)))
    absolute = float(error.max())
    if not wrong.any():
        return (absolute, relative), None
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.where(wrong, error, -1.0))), error.shape))
    reason = f"{a[index]} instead of {b[index]}"
    count = int(np.count_nonzero(wrong))
    return (absolute, relative), Difference(number, reason, count, a.size, absolute, relative, index)
