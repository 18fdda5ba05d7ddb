"""Whether the proof finds planted mistakes, and whether a mistake changes any result.

A mistake counts if it changes a bit of some result for some input, padding included: random inputs of two seeds, floats
of 0, 1 and -1, integers beyond their range, and many inputs each of which is of a kind of its own (few values, mostly
one, all different, the whole range of a type). A change of floats that is gone in f64 is another order of rounding,
which counts as none.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any, Literal, cast

import hloom
import numpy as np
from hloom.ir.diagnostics import CompileError, InternalError
from hloom.ir.graph.module import Module
from hloom.ir.tools.verifier import verify
from hloom.runtime.check.retype import retyped
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.proof.decisions import ending_inputs
from hloom.runtime.proof.flow import DataFlow
from hloom.runtime.proof.inputs import TrialInputs, TrialKind
from hloom.runtime.proof.prove import prove
from hloom.runtime.proof.relations.located import on_terms
from hloom.runtime.simulator import simulate
from support.planted_faults import Fault

Array = np.ndarray[Any, Any]
Outcome = Literal["caught", "missed", "unproved", "harmless", "only the proof", "no program"]
WIDE = 1e-12  # change of a result in f64, relative to its largest magnitude, that is no rounding
_SECONDS = 30.0  # for one mistake
_SETS = 16  # of inputs of any kind
_BEYOND, _ANY = TrialKind(integers="beyond"), TrialKind(integers="any")


class _OutOfTime(BaseException):
    """Not an Exception, so that nothing on the way takes it for an error of its own."""


@dataclass
class Census:
    """A program, its right partitioning, and what that gives."""

    program: Module
    local: Module
    trials: int | None = None
    reasons: dict[Fault, str] = field(default_factory=dict[Fault, str])

    @cached_property
    def inputs(self) -> list[list[Array]]:
        """Sets of inputs."""
        found = [inputs_for_module(self.program, seed=seed) for seed in range(2)]
        draw = np.random.default_rng(6)
        numbers: list[Array] = [draw.integers(-1, 2, x.shape) for x in found[0]]
        ties = [n.astype(x.dtype) if _is_float(x) else x for n, x in zip(numbers, found[0], strict=True)]
        mixed = [self._mixed(_ANY, found[1], n) for n in range(_SETS)]
        return [*found, ties, self._mixed(_BEYOND, found[1], 5), *mixed]

    def _mixed(self, mode: TrialKind, floats: list[Array], seed: int) -> list[Array]:
        """Integers as a trial draws them, with floats that are few values, ties among whole numbers, or as they are."""
        trial = TrialInputs(self.program)
        trial.ending = ending_inputs(DataFlow(UnpartitionedProgram(self.program).executable.plan))
        drawn, draw = trial.draw(np.random.SeedSequence(seed), mode), np.random.default_rng([seed, 1])
        found: list[Array] = []
        for x, other in zip(floats, drawn, strict=True):
            if x.dtype.kind in "iub":
                found.append(other)
                continue
            few = x.reshape(-1)[draw.integers(0, min(3, x.size), x.shape)] if x.size else x
            whole = np.asarray(cast(Array, draw.integers(-3, 4, x.shape)), x.dtype)
            found.append((x, few, whole, draw.permutation(x.reshape(-1)).reshape(x.shape))[draw.integers(4)])
        return found

    @cached_property
    def _right(self) -> list[list[Array]]:
        return [simulate(self.local, x, poison=True) for x in self.inputs]

    def is_proved(self) -> bool:
        """Whether the right partitioning is equal, so that mistakes can be told from it."""
        return hloom.prove(self.program, self.local, self.trials).agrees

    def outcome(self, fault: Fault) -> Outcome:
        """Plants a mistake and looks whether it is found. A program that does not end counts as none."""
        try:
            with _limited(_SECONDS):
                return self._outcome(fault)
        except (_OutOfTime, InternalError):
            return "no program"

    def _outcome(self, fault: Fault) -> Outcome:
        try:
            bad = fault.plant(self.local)
            if verify(bad):
                return "no program"
        except (CompileError, ValueError):
            return "no program"
        try:
            verdict = prove(self.program, bad, self.trials, on_terms=on_terms)  # without a search for its place
        except CompileError:  # it cannot run at all
            return "caught"
        if verdict.outcome == "differs":
            return "caught" if self._shows(bad) else "only the proof"
        if not self._shows(bad) or not self._shows_in_f64(bad):
            return "harmless"
        self.reasons[fault] = str(verdict)
        return "missed" if verdict.agrees else "unproved"

    def _shows(self, bad: Module) -> bool:
        return self._first_shown(bad) is not None

    def _first_shown(self, bad: Module) -> int | None:
        """The first inputs for which a result has other bits."""
        both = enumerate(zip(self.inputs, self._right, strict=True))
        return next((n for n, (x, right) in both if _differ(bad, x, right, _has_other_bits)), None)

    def _shows_in_f64(self, bad: Module) -> bool:
        wide = [[x.astype(np.float64) if _is_float(x) else x for x in inputs] for inputs in self.inputs]
        right, wrong = retyped(self.local), retyped(bad)
        return any(_differ(wrong, x, simulate(right, x, poison=True), _is_changed) for x in wide)


@contextmanager
def _limited(seconds: float) -> Generator[None]:
    """Raises _OutOfTime in a block that takes longer; in the main thread only."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _is_float(array: Array) -> bool:
    """Also of the types that numpy does not have."""
    return array.dtype.kind not in "biuc"


def _differ(bad: Module, inputs: list[Array], right: list[Array], differs: Callable[[Array, Array], bool]) -> bool:
    """Whether a result differs, or the program cannot run: devices disagree, or wait for each other."""
    try:
        with np.errstate(all="ignore"):
            found = simulate(bad, inputs, poison=True)
            return any(differs(x, y) for x, y in zip(found, right, strict=True))
    except CompileError:
        return True


def _has_other_bits(x: Array, y: Array) -> bool:
    return x.tobytes() != y.tobytes() and not np.array_equal(x, y)


def _is_changed(x: Array, y: Array) -> bool:
    if x.dtype.kind in "biu":
        return not np.array_equal(x, y)
    same = (x == y) | ((x != x) & (y != y))
    error = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf))
    finite = np.abs(y)[np.isfinite(y)]
    return float(error.max(initial=0.0)) > WIDE * float(finite.max(initial=0.0))
