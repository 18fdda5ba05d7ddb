"""Kernels of one program, each lowered once: layers are alike, and so are their computations.

Computations that apply different reducers differ, even if these are equal (see the pass `equal-computations`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.tools.content import content
from .lower import LoweredKernel, lower
from .native import step_of
from .step import NativeStep, StridedLayout

_Made = TypeVar("_Made")
_Layouts = tuple[StridedLayout, ...]


class Alike:
    """The kernels of equal computations, by the layouts of their parameters. Raises NotEvaluable as `lower` does."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._dense = tuple(StridedLayout.dense(p.shape.dims) for p in computation.parameters)
        self._lowered: dict[_Layouts, LoweredKernel | NotEvaluable] = {}
        self._steps: dict[_Layouts, NativeStep | NotEvaluable] = {}

    def lowered(self, layouts: Sequence[StridedLayout] | None = None) -> LoweredKernel:
        """Returns the kernel, by default for dense parameters."""
        found = self._dense if layouts is None else tuple(layouts)
        return _once(self._lowered, found, lambda: lower(self._computation, found))

    def step(self, layouts: Sequence[StridedLayout] | None = None) -> NativeStep:
        """Returns the machine code."""
        found = self._dense if layouts is None else tuple(layouts)
        return _once(self._steps, found, lambda: step_of(self.lowered(found)))


class Lowerings:
    """Caches the kernels of computations. Computations must not be edited as long as their kernels are used."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Alike] = {}

    def of(self, computation: Computation) -> Alike:
        """Returns the kernels that a computation shares with all that are equal."""
        key = content(computation)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Alike(computation)
        return found


def _once(known: dict[_Layouts, _Made | NotEvaluable], key: _Layouts, make: Callable[[], _Made]) -> _Made:
    """Memoizes `make`: returns the earlier result for a key, or raises the earlier error."""
    found = known.get(key)
    if found is None:
        try:
            found = make()
        except NotEvaluable as error:
            found = error
        known[key] = found
    if isinstance(found, NotEvaluable):
        raise found
    return found
