"""Analyses of modules: each is made once and kept until an edit that may change it.

A module keeps the last analysis of each kind, and its copies get copies of those that can be copied. So whoever needs
an analysis asks the module for it, after each edit again; nobody hands analyses on, or tells them what was edited.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from typing import Self

    from .computation import Computation
    from .instruction import Instruction


@runtime_checkable
class CopiedAnalysis(Protocol):
    """An analysis that holds for copies of its module, too."""

    def copied(self, copies: Mapping[Instruction, Instruction]) -> Self:
        """Returns the analysis of a copy of the module, given the copy of each instruction."""
        ...


A = TypeVar("A")
_Edits = dict["Computation", int]


class Analyses:
    """The last analysis of each kind of one module, with its key and the edits that it has seen."""

    def __init__(self) -> None:
        self._kept: dict[type[Any], tuple[Hashable, _Edits, Any]] = {}

    def get(self, module: Iterable[Computation], kind: type[A], key: Hashable, make: Callable[[], A]) -> A:
        """Returns the kept analysis of a kind, or a new one if the key is another, or the `loop_edits` of computations.
        """
        edits = _edits(module)
        found = self._kept.get(kind)
        if found is None or found[:2] != (key, edits):
            found = self._kept[kind] = (key, edits, make())
        analysis: A = found[2]
        return analysis

    def copied(
        self, module: Iterable[Computation], copy: Iterable[Computation], copies: Mapping[Instruction, Instruction]
    ) -> Analyses:
        """Returns the analyses of a copy of the module that hold now."""
        new, now = Analyses(), _edits(module) if self._kept else {}
        new._kept = {kind: (key, _edits(copy), analysis.copied(copies))
                     for kind, (key, edits, analysis) in self._kept.items()
                     if edits == now and isinstance(analysis, CopiedAnalysis)}  # fmt: skip
        return new


def _edits(module: Iterable[Computation]) -> _Edits:
    return {computation: computation.loop_edits for computation in module}
