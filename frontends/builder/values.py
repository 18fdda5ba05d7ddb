"""Converts the values that functions of the builder take to instructions of one type and shape.

Types do not mix by themselves: arrays of different element types need an `astype`, so that no program computes in a
wider type than its author wrote. A Python number takes the type of the array that it meets, as in numpy and JAX; an
integer array takes no float. numpy arrays and scalars are constants of their own type, except for `numpy.float64`
scalars, which are Python floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.types.element_type import ELEMENT_TYPES, ElementType, Kind, from_numpy
from . import emission as e
from .tracing import BuilderScope, current, emit, literal, scalar

NumpyArray = np.ndarray[Any, Any]

_WEAK: tuple[tuple[Any, str], ...] = ((bool, "pred"), (int, "s32"), (float, "f32"), (complex, "c64"))
_TAKES: dict[Any, frozenset[Kind]] = {
    bool: frozenset(Kind),
    int: frozenset({Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX}),
    float: frozenset({Kind.FLOAT, Kind.COMPLEX}),
    complex: frozenset({Kind.COMPLEX}),
}
"""The kinds of elements whose type a Python number takes."""


class Value:
    """An instruction, and the scope that it belongs to."""

    __slots__ = ("instruction", "scope")

    def __init__(self, instruction: Instruction, scope: BuilderScope) -> None:
        self.instruction = instruction
        self.scope = scope


ArrayLike = Value | NumpyArray | np.generic | bool | int | float | complex
Axes = int | Sequence[int] | None


def lifted(what: str, value: Any, element: ElementType | None = None) -> Instruction:
    """Returns any array-like as an instruction of the current scope. A Python number gets the type `element`; without
    one, s32, f32, c64 or pred. Raises CompileError.
    """
    if isinstance(value, Value):
        return current().own(value.instruction, value.scope)
    for kind, default in _WEAK:
        if isinstance(value, kind):
            return scalar(value, _checked(what, value, kind, element or ELEMENT_TYPES[default]))
    if not isinstance(value, np.ndarray | np.generic):
        fail(f"{what} takes arrays and numbers, found {type(value).__name__}",
             help="asarray(values) makes an array of nested lists" if isinstance(value, list | tuple) else None)
    values = np.asarray(cast("NumpyArray", value))
    try:
        found = from_numpy(values.dtype)
    except KeyError:
        fail(f"{what}: HLO has no element type for numpy's {values.dtype}")
    return emit("constant", literal=literal(values, found))


def _checked(what: str, value: Any, kind: Any, element: ElementType) -> ElementType:
    if element.kind not in _TAKES[kind]:
        fail(f"{what}: the {kind.__name__} {value!r} does not become {element}",
             help=f"convert the array, for example x.astype('{dict(_WEAK)[kind]}')")
    if kind is int and element.is_integer and not element.least <= value <= element.greatest:
        fail(f"{what}: {value} does not fit {element}")
    return element


def is_weak(value: Any) -> bool:
    """Whether a value is a Python number, which takes the type of the arrays that it meets."""
    return isinstance(value, bool | int | float | complex)


def same_types(what: str, *values: ArrayLike) -> list[Instruction]:
    """Returns array-likes as instructions of one element type. Raises CompileError for arrays of different types."""
    strong = [lifted(what, v) for v in values if not is_weak(v)]
    elements = {x.shape.element: x for x in strong}
    if len(elements) > 1:
        first, second = list(elements.values())[:2]
        fail(f"{what}: {e.shown(first)} and {e.shown(second)} have different element types",
             help=f"convert one of them, for example x.astype('{first.shape.element}')")
    element = next(iter(elements), None)
    if not values:
        fail(f"{what} takes at least one array")
    if element is None:
        kinds = [next(n for n, (kind, _) in enumerate(_WEAK) if isinstance(v, kind)) for v in values]
        element = ELEMENT_TYPES[_WEAK[max(kinds)][1]]
    rest = iter(strong)
    return [lifted(what, v, element) if is_weak(v) else next(rest) for v in values]


def together(what: str, *values: ArrayLike) -> list[Instruction]:
    """Returns array-likes as instructions of one type and shape, repeated as numpy does it. Raises CompileError."""
    found = same_types(what, *values)
    dims = e.broadcast_dims(what, *(x.shape.dims for x in found))
    return [e.broadcast_to(x, dims) for x in found]
