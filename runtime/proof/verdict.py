"""Verdicts of proofs: equal, agrees, differs, unproved or undecided, with reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_FEW = 3  # of a kind are shown

Outcome = Literal["equal", "agrees", "differs", "unproved", "undecided"]


@dataclass(frozen=True)
class Difference:
    """The elements of a result that differ: the first one, their number, and both values."""

    output: int
    element: tuple[int, ...]
    what: str
    count: int

    def __str__(self) -> str:
        others = f" ({self.count:,} elements)" if self.count > 1 else ""
        return f"output {self.output} at {list(self.element)}: {self.what}{others}"


@dataclass(frozen=True)
class Uncovered:
    """An instruction without a meaning over a field: of the original or of the partitioned program."""

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
    """The first wrong instruction of the partitioned program, the cause that the partitioner noted for it, and a wrong
    element on a device: the right and the actual value.
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
class OnTerms:
    """The outputs that are shown for all inputs, and a bound on the probability of a mistake in them."""

    outputs: tuple[bool, ...]
    chance: float


@dataclass(frozen=True)
class Tested:
    """An output without a known bound: it depends on a decision, of which trials see some."""

    output: int
    decision: str

    def __str__(self) -> str:
        return f"output {self.output} ({self.decision})"


@dataclass(frozen=True)
class Unfinished:
    """A proof that ran out of time: the part that was running, and its instructions, the outermost first."""

    seconds: float
    during: str
    running: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join((f"after {self.seconds:g} s, in {self.during}", *self.running))


@dataclass(frozen=True)
class Verdict:
    """The outcome of a proof.

    `equal`: all outputs are shown to be those of the original. `agrees`: no trial found a difference, and some outputs
    are tested only. `chance` bounds the probability that an output counts as shown and is wrong; 1 if none is shown
    (see docs/proving.md).
    `difference` is the first one found; `problem` says what else ended it (devices that disagree about a result);
    `undefined` lists results that were undefined on both sides in every trial, `uncovered` ops without a meaning over a
    field, `tested` the outputs that are tested only, `never_run` the branches and loop bodies that no trial took.
    `shown` counts outputs and values that are right for all inputs, integers included, where that was asked for.
    `unfinished` says what was running when the time was up: of an undecided proof a trial, of another one the search
    for more about it, or further trials. `up_to` names the roundings by which the programs may differ all the same.
    """

    outcome: Outcome
    outputs: int
    trials: int
    chance: float
    difference: Difference | None
    problem: str
    undefined: tuple[Difference, ...]
    uncovered: tuple[Uncovered, ...]
    tested: tuple[Tested, ...]
    never_run: tuple[str, ...] = ()
    origin: Origin | None = None
    shown: Shown | None = None
    unfinished: Unfinished | None = None
    up_to: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether all outputs are shown to be equal."""
        return self.outcome == "equal"

    @property
    def agrees(self) -> bool:
        """Whether no difference was found and no uncovered op can hide one."""
        return self.outcome in ("equal", "agrees")

    def __str__(self) -> str:
        if self.outcome == "undecided":
            return self._undecided()
        reasons = [str(self.difference)] if self.difference else []
        reasons += [self.problem] if self.problem else []
        reasons += [str(self.origin)] if self.origin else []
        reasons += _few(self.undefined) + _few(self.uncovered)
        if not self.agrees:
            return f"{self.outcome}: " + "; ".join(reasons + self._late())
        parts = [self._bound()] if self.outputs > len(self.tested) or not self.outputs else []
        parts += [f"tested only: {', '.join(_few(self.tested))}"] if self.tested else []
        parts += [f"up to {self.up_to}"] if self.up_to else []
        parts += [str(self.shown)] if self.shown is not None else []
        parts += [f"never run: {', '.join(_few(self.never_run))}"] if self.never_run else []
        trials = f"{self.trials} trial{'s' * (self.trials != 1)}"
        return f"{self.outcome}: {self.outputs} outputs, {trials}; {'; '.join(parts + self._late())}"

    def _late(self) -> list[str]:
        return [f"no more is known {self.unfinished}"] if self.unfinished is not None else []

    def _undecided(self) -> str:
        outputs = f"{self.outputs} output{'s' * (self.outputs != 1)}"
        ended = f"{self.trials} trial{'s' * (self.trials != 1)} found" if self.trials else "no trial has found"
        return f"undecided {self.unfinished}; {outputs} not decided ({ended} them equal)"

    def _bound(self) -> str:
        count = f"{self.outputs - len(self.tested)} shown, " if self.tested else ""
        return f"{count}wrong with probability <= {_rounded_up(self.chance)}"


def _rounded_up(chance: float) -> str:
    """A probability with one digit, not less than it is: `3e-10`."""
    power = math.floor(math.log10(max(chance, 1e-99)))
    digit = math.ceil(chance / 10.0**power)
    return f"1e{power + 1}" if digit == 10 else f"{digit}e{power}"


def _few(found: Sequence[object]) -> list[str]:
    more = len(found) - _FEW
    return [*map(str, found[:_FEW]), *([f"{more} more"] if more > 0 else [])]
