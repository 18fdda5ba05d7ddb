"""Kernels of one program, each lowered once: layers are alike, and so are their computations.

Computations that apply different reducers differ, even if these are equal (see the pass `equal-computations`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from ...ir.errors import NotEvaluable
from ...ir.graph.computation import Computation
from ...ir.tools.content import content
from .kernel_step import step_of
from .lower import Lowered, lower
from .step import Layout, NativeStep

_Made = TypeVar("_Made")


class Lowerings:
    """Lowers computations, equal ones once. Raises NotEvaluable as `lower` does."""

    def __init__(self) -> None:
        self._lowered: dict[Hashable, Lowered | NotEvaluable] = {}
        self._steps: dict[Hashable, NativeStep | NotEvaluable] = {}

    def lowered(self, computation: Computation, layouts: Sequence[Layout] | None = None) -> Lowered:
        """Returns the kernel of a computation, by default for dense parameters."""
        return _once(self._lowered, _key(computation, layouts), lambda: lower(computation, layouts))

    def step(self, computation: Computation, layouts: Sequence[Layout] | None = None) -> NativeStep:
        """Returns the machine code of a computation."""
        return _once(self._steps, _key(computation, layouts), lambda: step_of(self.lowered(computation, layouts)))


def _key(computation: Computation, layouts: Sequence[Layout] | None) -> Hashable:
    dense = [Layout.dense(p.shape.dims) for p in computation.parameters]
    return content(computation), tuple(dense if layouts is None else layouts)


def _once(known: dict[Hashable, _Made | NotEvaluable], key: Hashable, make: Callable[[], _Made]) -> _Made:
    """Returns what was made for a key before, or raises what was raised."""
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
