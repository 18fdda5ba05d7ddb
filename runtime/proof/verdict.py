"""Verdicts of proofs: equal, differs or unproved, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Algebra
from .pairs import is_exact

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
class Origin:
    """The first wrong instruction of the partitioned program, the cause that the partitioner noted for it, and an
    element that it gets wrong on a device: what that should be, and what it is.
    """

    opcode: str
    name: str
    place: str
    cause: str
    op_name: str
    device: int | None = None
    element: tuple[int, ...] = ()
    what: str = ""

    def __str__(self) -> str:
        notes = ", ".join(filter(None, (self.place, self.cause or self.op_name)))
        element = f", device {self.device} element {list(self.element)}: {self.what}" if self.device is not None else ""
        return f"first wrong: {self.opcode} {self.name}{f' ({notes})' if notes else ''}{element}"


@dataclass(frozen=True)
class Shown:
    """Counts the outputs and values per device that are right for all inputs, not only for those tried."""

    outputs: int
    all_outputs: int
    values: int
    all_values: int

    def __str__(self) -> str:
        values = f"{self.values} of {self.all_values} values"
        if self.outputs == self.all_outputs:
            return f"shown for all inputs ({values})"
        return f"{self.outputs} of {self.all_outputs} outputs shown for all inputs ({values})"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a proof.

    `chance` bounds the probability that different expressions were taken for equal, where both programs select the same
    elements; 1 if no bound is known (see docs/proving.md).
    `difference` is the first one found; `problem` says what else ended it (devices that disagree about a result);
    `undefined` lists results that were undefined on both sides in every trial, `uncovered` ops without a meaning over a
    field, `tested` what was tried with the values drawn and not shown for others, `never_run` the branches and loop
    bodies that no trial took.
    """

    outcome: Outcome
    outputs: int
    trials: int
    chance: float
    difference: Difference | None
    problem: str
    undefined: tuple[Difference, ...]
    uncovered: tuple[Uncovered, ...]
    tested: tuple[str, ...]
    never_run: tuple[str, ...] = ()
    origin: Origin | None = None
    shown: Shown | None = None

    @property
    def is_equal(self) -> bool:
        return self.outcome == "equal"

    def __str__(self) -> str:
        reasons = [str(self.difference)] if self.difference else []
        reasons += [self.problem] if self.problem else []
        reasons += [str(self.origin)] if self.origin else []
        reasons += _few(self.undefined) + _few(self.uncovered)
        if self.outcome != "equal":
            return f"{self.outcome}: " + "; ".join(reasons)
        shown = f"; {self.shown}" if self.shown is not None else ""
        all_shown = self.shown is not None and self.shown.outputs == self.shown.all_outputs
        tested = f"; tested only: {', '.join(self.tested)}" if self.tested and not all_shown else ""
        never = f"; never run: {', '.join(_few(self.never_run))}" if self.never_run else ""
        missed = "no bound is known" if self.chance >= 1 else f"wrong with probability <= {_rounded_up(self.chance)}"
        return f"equal: {self.outputs} outputs, {self.trials} trials; value flow: {missed}{shown}{tested}{never}"


def _rounded_up(chance: float) -> str:
    """A probability with one digit, not less than it is: `3e-10`."""
    power = math.floor(math.log10(max(chance, 1e-99)))
    digit = math.ceil(chance / 10.0**power)
    return f"1e{power + 1}" if digit == 10 else f"{digit}e{power}"


def _few(found: Sequence[object]) -> list[str]:
    more = len(found) - _FEW
    return [*map(str, found[:_FEW]), *([f"{more} more"] if more > 0 else [])]


def tested_only(module: Module) -> tuple[str, ...]:
    """Lists what trials execute but do not generalise: inputs that are not floats, comparisons of floats and their
    conversions to integers.
    """
    leaves = [(p.name, leaf) for p in module.entry.parameters for leaf in p.shape.leaves()]
    found = [f"{name} ({leaf.element})" for name, leaf in leaves if leaf.is_array and is_exact(leaf)]
    compared, turned = _uses(module, Algebra.ORDER), _uses(module, Algebra.CONVERSION, Algebra.BITS)
    turned = [i for i in turned if i.shape.element.is_integer]
    counted = {"comparisons of floats": compared, "conversions of floats to integers": turned}
    return (*dict.fromkeys(found), *(f"{len(uses)} {what}" for what, uses in counted.items() if uses))


def _uses(module: Module, *algebras: Algebra) -> list[Instruction]:
    """The uses of floats by ops of these algebras."""
    return [
        i
        for computation in module
        for i in computation
        if i.op.algebra_of(i.call) in algebras and not all(is_exact(o.shape) for o in i.operands)
    ]
