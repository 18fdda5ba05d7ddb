"""Verdicts of proofs: equal, differs or unproved, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...ir.graph.module import Module
from ...ir.graph.op import Algebra

_FEW = 3  # of a kind are shown

Outcome = Literal["equal", "differs", "unproved"]


@dataclass(frozen=True)
class Difference:
    """Elements of a result: the first one, how many there are, and what they are."""

    output: int
    element: tuple[int, ...]
    what: str
    count: int

    def __str__(self) -> str:
        others = f" ({self.count:,} elements)" if self.count > 1 else ""
        return f"output {self.output} at {list(self.element)}: {self.what}{others}"


@dataclass(frozen=True)
class Uncovered:
    """An instruction that cannot be taken over to a field: of the original or of the partitioned program."""

    program: str
    opcode: str
    name: str
    reason: str
    place: str

    def __str__(self) -> str:
        place = f" ({self.place})" if self.place else ""
        return f"{self.opcode} {self.name} of the {self.program} program{place}: {self.reason}"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a proof.

    `difference` is the first one found; `problem` says what else ended it (devices that disagree about a result);
    `undefined` lists results that were undefined on both sides in every trial, `uncovered` ops without a meaning over a
    field, `tested` what was tried with the values drawn and not shown for others, `never_run` the branches and loop
    bodies that no trial took.
    """

    outcome: Outcome
    outputs: int
    trials: int
    difference: Difference | None
    problem: str
    undefined: tuple[Difference, ...]
    uncovered: tuple[Uncovered, ...]
    tested: tuple[str, ...]
    never_run: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return self.outcome == "equal"

    def __str__(self) -> str:
        reasons = [str(self.difference)] if self.difference else []
        reasons += [self.problem] if self.problem else []
        reasons += _few(self.undefined) + _few(self.uncovered)
        if self.outcome != "equal":
            return f"{self.outcome}: " + "; ".join(reasons)
        tested = f"; tested only: {', '.join(self.tested)}" if self.tested else ""
        never = f"; never run: {', '.join(_few(self.never_run))}" if self.never_run else ""
        return f"equal: {self.outputs} outputs, {self.trials} trials{tested}{never}"


def _few(found: Sequence[object]) -> list[str]:
    more = len(found) - _FEW
    return [*map(str, found[:_FEW]), *([f"{more} more"] if more > 0 else [])]


def tested_only(module: Module) -> tuple[str, ...]:
    """Lists what trials execute but do not generalise: inputs that are not floats, and comparisons of floats."""
    leaves = [(p.name, leaf) for p in module.entry.parameters for leaf in p.shape.leaves()]
    found = [f"{name} ({leaf.element})" for name, leaf in leaves if leaf.is_array and not leaf.element.is_float]
    compared = sum(
        i.op.algebra_of(i.call) is Algebra.ORDER and any(o.shape.element.is_float for o in i.operands)
        for computation in module
        for i in computation
    )
    return (*dict.fromkeys(found), *([f"{compared} comparisons of floats"] if compared else ()))
