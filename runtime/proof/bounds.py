"""Decides how each output of a program is shown: by the flow of values, by terms, or by tests alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.graph.module import Module
from .degrees import chance, largest_degree
from .oracle import Counts
from .verdict import OnTerms, Tested

ShowOnTerms = Callable[[Module, Module, Sequence[bool], int], OnTerms | None]  # of outputs that are asked for

_SMALL = 1e-9  # a chance that needs no further trials
_WEAK = 1e-3  # a chance of which nobody would say that it shows something
_UNBOUNDED = "no bound is known"
_WEAKLY = "only a weak bound is known"


class Bounds:
    """The outputs of two programs that are shown to be equal, and the chance that this is wrong.

    `decisions` name the decision that each output hangs on in one of the programs, empty if there is none.
    """

    def __init__(self, original: Module, local: Module, decisions: Sequence[str]) -> None:
        self._programs = original, local
        degrees = [largest_degree(module) for module in self._programs]
        self._degree = None if None in degrees else sum(d or 0 for d in degrees)
        self._decisions = [d or _UNBOUNDED * (self._degree is None) for d in decisions]
        self._of_flow = 1.0
        self._on_terms: OnTerms | None = None

    @property
    def flow_only(self) -> bool:
        """Whether no output hangs on a decision."""
        return not any(self._decisions)

    @property
    def are_small(self) -> bool:
        """Whether all outputs are shown, and another trial would hardly raise the certainty."""
        return not self.tested and (all(self._decisions) or self._of_flow <= _SMALL)

    @property
    def tested(self) -> tuple[Tested, ...]:
        """The outputs that are tested only."""
        terms = self._on_terms
        shown = terms.outputs if terms is not None and terms.chance <= _WEAK else (False,) * len(self._decisions)
        weakly = _WEAKLY * (self._of_flow > _WEAK)
        found = enumerate(zip((d or weakly for d in self._decisions), shown, strict=True))
        return tuple(Tested(n, decision) for n, (decision, is_shown) in found if decision and not is_shown)

    @property
    def chance(self) -> float:
        """The probability that one of the outputs that are shown is wrong, at most; 1 if there are none."""
        if self._decisions and len(self.tested) == len(self._decisions):
            return 1.0
        of_flow = self._of_flow if self._of_flow <= _WEAK and not all(self._decisions) else 0.0
        on_terms = self._on_terms.chance if self._on_terms is not None else 0.0
        return of_flow + (on_terms if on_terms <= _WEAK else 0.0)

    def after_trial(self, made: Counts, outputs: int) -> None:
        """Records a trial on random elements that found no difference."""
        if self._degree is not None:
            self._of_flow *= chance(made, outputs, self._degree)

    def show(self, on_terms: ShowOnTerms, seed: int) -> None:
        """Runs on terms, if some outputs hang on decisions, and records the outputs that this shows."""
        if not self.flow_only:
            self._on_terms = on_terms(*self._programs, [bool(d) for d in self._decisions], seed)
