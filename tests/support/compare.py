"""Comparing the outputs of two runs, with tolerances by element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hloom.ir.types.element_type import ElementType, from_numpy

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
class Worst:
    """The largest error of a kind, and the output and the place in it where it is."""

    error: float = 0.0
    output: int = 0
    index: tuple[int, ...] = ()

    def describe(self, kind: str) -> str:
        """`1.2e-07 absolute in output 3 at [0, 1]`."""
        place = f" in output {self.output} at {list(self.index)}" if self.error else ""
        return f"{self.error:.3g} {kind}{place}"


@dataclass(frozen=True)
class Comparison:
    """`worst_absolute` and `worst_relative` are over all outputs, within tolerance or not."""

    outputs: int
    differences: tuple[Difference, ...]
    worst_absolute: Worst
    worst_relative: Worst

    @property
    def absolute(self) -> float:
        return self.worst_absolute.error

    @property
    def relative(self) -> float:
        return self.worst_relative.error

    @property
    def equal(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        head = (
            f"{len(self.differences)}/{self.outputs} outputs differ "
            f"(largest error {self.worst_absolute.describe('absolute')}, {self.worst_relative.describe('relative')})"
        )
        return "\n".join([head, *(f"  {difference}" for difference in self.differences)])


def compare(
    actual: Sequence[Array], expected: Sequence[Array], scale: float = 1.0, signs: bool = False
) -> Comparison:
    """Compares output by output: types and dimensions exactly, numbers within `scale` times the tolerance of their
    type. NaNs are equal to each other, infinities only to themselves; zeros of both signs are, too, unless `signs`.
    """
    if len(actual) != len(expected):
        reason = f"there are {len(actual)} outputs, {len(expected)} were expected"
        return Comparison(len(expected), (Difference(min(len(actual), len(expected)), reason),), Worst(), Worst())
    found: list[Difference] = []
    absolute, relative = Worst(), Worst()
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            found.append(Difference(number, f"{_type(a)} instead of {_type(b)}"))
            continue
        errors, difference = _compare(number, a, b, scale, signs)
        absolute = max(absolute, errors[0], key=lambda w: w.error)
        relative = max(relative, errors[1], key=lambda w: w.error)
        if difference is not None:
            found.append(difference)
    return Comparison(len(expected), tuple(found), absolute, relative)


def _type(array: Array) -> str:
    return f"{from_numpy(array.dtype)}[{','.join(map(str, array.shape))}]"


def _compare(
    number: int, a: Array, b: Array, scale: float, signs: bool
) -> tuple[tuple[Worst, Worst], Difference | None]:
    element = from_numpy(a.dtype)
    if a.size == 0:
        return (Worst(), Worst()), None
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
        if signs:
            wrong |= (x == 0) & (y == 0) & (_signs(x) != _signs(y))
        relative = np.where(error > 0, error / np.maximum(magnitude, 1e-300), 0.0)
    worst = tuple(Worst(float(e.max()), number, _place(e)) for e in (error, relative))
    if not wrong.any():
        return (worst[0], worst[1]), None
    index = _place(np.where(wrong, error, -1.0))
    reason = f"{a[index]} instead of {b[index]}"
    count = int(np.count_nonzero(wrong))
    sizes = (worst[0].error, worst[1].error)
    return (worst[0], worst[1]), Difference(number, reason, count, a.size, *sizes, index)


def _signs(values: Array) -> Array:
    """The signs of numbers, of both parts of complex ones."""
    return np.signbit(values.real) + 2 * np.signbit(values.imag)


def _place(values: Array) -> tuple[int, ...]:
    """The index of the largest value."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))
