"""Runs a program and its partitioned form over a finite field, and decides whether they are equal.

Two rational functions that differ are equal at a random point with probability degree / 2^61 at most, and functions
that the field does not have are random ones. So a trial that finds no difference shows, up to a tiny chance, that all
results are the same expressions of all inputs. Comparisons, integers and the order of elements are drawn instead:
results that depend on these are tested only, unless they are shown on terms (`relations/located`).

The results of a program may depend on decisions. A trial of a small program sees few of them and costs little; one of a
large program sees many. So trials go on until they have taken about as much work in all, which is counted: the same
program always takes the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.diagnostics import CompileError
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.time_limit import TimeLimit, time_limit
from ...ir.tools.placement import placed_like
from ...ir.types.literal import Array
from ..evaluator import UnpartitionedProgram
from ..plan.interpreter import StepPlan
from ..plan.limits import TripLimit, trip_limit
from ..simulator import SimulatedProgram
from .bounds import Bounds, ShowOnTerms
from .control import forget_runs, never_run, unlike
from .decisions import ending_inputs, hanging, hanging_on_bits
from .field import without_sign
from .flow import DataFlow
from .inputs import TrialInputs, TrialKind, mode_of
from .kernels import FieldKernels
from .numbers import difference_on_numbers
from .oracle import Oracle, Place
from .pairs import differ, is_exact, on_words, undefined
from .progress import Progress, Tell, count_outputs
from .transforms import lengths_without_roots
from .verdict import Difference, Origin, Uncovered, Verdict

LEAST, _MOST = 4, 64
_WORK = 300_000  # steps in all trials, a step being some 10 us
_ELEMENTS = 500  # that take as long as a step
_COMPARISON = 5  # steps that take as long as a comparison, as a sort makes them


def trials_for(plans: Sequence[StepPlan], comparisons: int, done: int) -> int:
    """Returns the total number of trials, given that these plans have run in `done` ones, each with so many comparisons
    of floats.
    """
    steps = sum(_work(plan) for top in plans for plan in top.all_plans()) / done
    return max(LEAST, min(_MOST, int(_WORK / (steps + comparisons * _COMPARISON + 1))))


def _work(plan: StepPlan) -> float:
    steps = sum(1 + step.instruction.shape.num_elements / _ELEMENTS for step in plan.steps)
    return plan.runs.total() * steps


_FIRST = 2  # trials before it is asked what else shows results

TIMEOUT = 60.0  # seconds
_MOST_TRIPS = 64  # of a loop whose number of trips is not known, before 0 takes its place in the middle

Locate = Callable[[UnpartitionedProgram, SimulatedProgram, Sequence[Array], Oracle], "Origin | None"]


def prove(
    original: Module, local: Module, trials: int | None = None, seed: int = 0,
    locate: Locate | None = None, on_terms: ShowOnTerms | None = None, timeout: float = TIMEOUT,
    tell: Tell | None = None,
) -> Verdict:  # fmt: skip
    """Whether a program per device, simulated on all devices, computes what the original does.

    The padding of inputs is undefined. More trials lower the chance that a difference is missed; without a number there
    are as many as the decisions of the program need. `local` may be the work of another partitioner: a parameter or
    result of it that has no sharding lies on the devices as `original` says. `locate` finds the first wrong instruction
    of programs that differ on some inputs, `on_terms` shows results that hang on decisions for all inputs.
    After `timeout` seconds the proof ends undecided. `tell` is called with each part of it that begins.

    Raises CompileError for programs that cannot be run, and ValueError for no trials or no time.
    """
    if trials is not None and trials < 1:
        raise ValueError("at least one trial is needed")
    progress = Progress(original, timeout, tell)
    try:
        with time_limit(timeout):
            both = _Pair(original, placed_like(local, original), locate, progress)
            verdict = both.uncovered_verdict() or _tried(both, trials, seed, on_terms)
            return both.on_numbers(verdict, seed) if verdict.outcome == "unproved" else verdict
    except TimeLimit as limit:
        return progress.undecided(limit)


def _tried(both: _Pair, trials: int | None, seed: int, on_terms: ShowOnTerms | None) -> Verdict:
    number = 0
    while number < (both.trials(number) if trials is None else trials):
        try:
            found = both.trial(np.random.SeedSequence((seed, number)), number)
        except TimeLimit as limit:
            if trials is not None or number < LEAST:
                raise
            both.progress.limit = limit  # fewer trials than the decisions need, but some
            return both.verdict(number)
        if found is not None:
            return found
        number += 1
        if on_terms is not None and number == min(_FIRST, trials or _FIRST):
            both.progress.begin("the run on terms", number)
            both.bounds.show(on_terms, seed)
    return both.verdict(number)


@dataclass
class _Side:
    """One of the two programs, ready to run."""

    name: str
    kernels: FieldKernels
    program: Any = None

    def uncovered(self) -> list[Uncovered]:
        return [_noted(self.name, i, reason) for i, reason in self.kernels.uncovered.items()]


class _Pair:
    """Both programs, and the findings of trials."""

    def __init__(self, original: Module, local: Module, locate: Locate | None, progress: Progress) -> None:
        self.original, self.local, self.locate, self.progress = original, local, locate, progress
        progress.begin("making ready")
        self.oracle = Oracle(np.random.SeedSequence(0))
        self.whole = _Side("original", FieldKernels(original, self.oracle))
        self.divided = _Side("partitioned", FieldKernels(local, self.oracle))
        self.inputs = TrialInputs(original)
        self.defined: list[Any] = []
        self.decided = ""  # what devices decide otherwise
        self.uncovered: list[Uncovered] = []
        self._prepare(self.whole, UnpartitionedProgram, original)
        self._prepare(self.divided, SimulatedProgram, local)
        (expected, _), (lengths, transforms) = map(lengths_without_roots, (original, local))
        if lengths != expected:
            reason = "the field has no roots of unity for transforms of these lengths, which are not the original's"
            self.uncovered += [_noted(self.divided.name, i, reason) for i in transforms]
        if not self.uncovered:
            self._flows = [DataFlow(plan) for plan in self._plans]
            self.inputs.ending = frozenset().union(*map(ending_inputs, self._flows))

    @property
    def _plans(self) -> tuple[StepPlan, StepPlan]:
        whole, divided = self.whole.program, self.divided.program
        return whole.executable.plan, divided.executable.plan

    @cached_property
    def bounds(self) -> Bounds:
        """Returns which outputs are shown."""
        return Bounds(self.original, self.local, hanging(*self._flows))

    def _hangs_on_bits(self, output: int) -> str:
        """Says by which op an output depends on bits of floats that the original does not look at; empty if by none.

        The field's numbers have other bits, so that what is made of these looks wrong.
        """
        ops = hanging_on_bits(*self._flows)
        op = ops[output] if output < len(ops) else ""
        return f"output {output} is made from bits of floats ({op}), and not in the original program" if op else ""

    def trials(self, done: int) -> int:
        """The number of trials that are enough, as far as is known after some."""
        if done < _FIRST or (self.bounds.are_small and not self._undefined() and not self.decided):
            return max(done, _FIRST)
        return trials_for(self._plans, self.oracle.made.compared, done)

    def _prepare(self, side: _Side, program: Callable[[Module, FieldKernels], Any], module: Module) -> None:
        try:
            side.program = program(module, side.kernels)
        except CompileError:
            if not side.kernels.uncovered:
                raise
        self.uncovered += side.uncovered()

    def uncovered_verdict(self) -> Verdict | None:
        """The verdict of programs with uncovered instructions."""
        return self.verdict(0, uncovered=self.uncovered) if self.uncovered else None

    def on_numbers(self, verdict: Verdict, seed: int) -> Verdict:
        """Replaces the verdict of an unproved program that a run on plain numbers shows to differ."""
        self.progress.begin("the run on plain numbers", verdict.trials)
        try:
            problem = difference_on_numbers(self.original, self.local, seed)
        except TimeLimit as limit:
            self.progress.limit = limit
            return replace(verdict, unfinished=self.progress.unfinished())
        if not problem:
            return verdict
        return replace(verdict, outcome="differs", problem=problem, undefined=(), uncovered=())

    def trial(self, seed: np.random.SeedSequence, number: int) -> Verdict | None:
        """Runs both once. Returns the verdict if this trial decides it."""
        of_oracle, of_inputs = seed.spawn(2)
        mode = mode_of(number, self.bounds.flow_only)
        inputs = self.inputs.draw(of_inputs, mode)
        self.progress.begin(f"trial {number + 1}: the original program", number)
        forget = forget_runs(self._plans[0])
        try:
            expected = self._expected(of_oracle, mode, inputs)
        except CompileError as error:
            if mode.integers == "any":  # such integers have no meaning for the program
                return forget()
            return self.verdict(number, problem=f"the original cannot be run: {error.diagnostics[0].message}")
        self.progress.begin(f"trial {number + 1}: the partitioned program", number)
        try:
            found = self.divided.program.simulate(inputs, self.oracle.poison).outputs
        except CompileError as error:
            problem, differs = error.diagnostics[0].message, not self.oracle.exhausted
            origin = self._origin(inputs, problem) if differs else None
            return self.verdict(number + 1, problem=problem, differs=differs, origin=origin)
        exact = [is_exact(leaf) for leaf in self.original.entry.root.shape.leaves() if leaf.is_array]
        difference = _difference(expected, found, exact)
        reason = "" if difference is None else self.oracle.exhausted or self._hangs_on_bits(difference.output)
        if reason:
            return self.verdict(number + 1, problem=reason)
        if difference is not None:
            return self.verdict(number + 1, difference=difference, origin=self._origin(inputs, str(difference)))
        self.decided = self.decided or self._other_decision()  # another trial may find a difference
        if mode.floats == "random":
            self.bounds.after_trial(self.oracle.made, sum(x.size for x in expected))
        defined = [is_integer or ~undefined(x) for x, is_integer in zip(expected, exact, strict=True)]
        self.defined = [a | b for a, b in zip(self.defined or defined, defined, strict=True)]
        return None

    def _expected(self, seed: np.random.SeedSequence, mode: TrialKind, inputs: Sequence[Array]) -> list[Array]:
        """Runs the original. If 0 is almost the greatest or the least element in the order, a loop that waits for a
        number above or below it hardly ever ends: then 0 moves to the middle. If comparisons are free, those of a body
        may leave as it is what the condition waits for: then they take the order, too.
        """
        forget = forget_runs(self.whole.program.executable.plan)
        places: tuple[Place | None, ...] = (mode.zero, "middle")
        for zero in places if mode.free else places[:1]:
            try:
                with trip_limit(_MOST_TRIPS):
                    self._draw(seed, mode.free, zero)
                    return self.whole.program.run(inputs)
            except TripLimit:
                forget()
        self._draw(seed, False, "middle")
        return self.whole.program.run(inputs)

    def _draw(self, seed: np.random.SeedSequence, free: bool, zero: Place | None) -> None:
        """Makes the random choices of a trial."""
        self.oracle.begin(seed, free, zero)
        for side in (self.whole, self.divided):
            side.kernels.compared = {}

    def _other_decision(self) -> str:
        """Describes a decision of the devices that differs from the original, though no result does; empty if none
        does.
        """
        ours = self.divided.kernels.compared
        for name, pairs in self.whole.kernels.compared.items():
            if ours.get(name, pairs) != pairs:
                return f"{name} compares other numbers than in the original program"
        return unlike(*self._plans, self.divided.program.grid.size)

    def _origin(self, inputs: Sequence[Array], reason: str) -> Origin | None:
        """The first wrong instruction in a run on these inputs, for which the programs differ."""
        if self.locate is None:
            return None
        self.progress.begin("the search for the first wrong instruction", known=f"differs: {reason}")
        try:
            return self.locate(self.whole.program, self.divided.program, inputs, self.oracle)
        except TimeLimit as limit:
            self.progress.limit = limit
            return None

    def _undefined(self) -> tuple[Difference, ...]:
        """The results that were undefined in every trial."""
        found = (_first(n, ~np.asarray(d), "undefined in every trial") for n, d in enumerate(self.defined))
        return tuple(d for d in found if d is not None)

    def verdict(
        self, trials: int, difference: Difference | None = None, problem: str = "", differs: bool = False,
        uncovered: Sequence[Uncovered] = (), origin: Origin | None = None,
    ) -> Verdict:  # fmt: skip
        missing, problem = self._undefined(), problem or self.decided
        if difference is not None or differs:
            outcome, missing, problem = "differs", (), problem if differs else ""
        else:
            outcome = "unproved" if uncovered or missing or problem else "equal"
        tested, missed = (self.bounds.tested, self.bounds.chance) if outcome == "equal" else ((), 1.0)
        never = (name for plan in (self._plans if trials else ()) for name in never_run(plan))
        untaken = tuple(dict.fromkeys(never))
        outcome = "agrees" if tested else outcome
        return Verdict(
            outcome, count_outputs(self.original), trials, missed, difference, problem, missing, tuple(uncovered),
            tested, untaken, origin, unfinished=self.progress.unfinished(),
        )  # fmt: skip


def _noted(side: str, instruction: Instruction, reason: str) -> Uncovered:
    location = instruction.location
    place = f"{location.source.name}:{location.line}" if location is not None else ""
    return Uncovered(side, instruction.opcode, instruction.name, reason, place)


def _difference(expected: Sequence[Array], found: Sequence[Array], exact: Sequence[bool]) -> Difference | None:
    """The first element in which results differ; `exact` ones are not floats."""
    if len(expected) != len(found):
        return Difference(min(len(expected), len(found)), (), f"there are {len(found)} results, not {len(expected)}", 0)
    for number, (want, have) in enumerate(zip(expected, found, strict=True)):
        if want.shape != have.shape or want.dtype != have.dtype:
            return Difference(number, (), "another shape or type", have.size)
        if not exact[number]:
            want, have = (on_words(without_sign, x) for x in (want, have))
        wrong = differ(want, have)
        if wrong.any():
            leaks = not exact[number] and bool(undefined(have)[wrong].all())
            return _first(number, wrong, "padding, or what has no value" if leaks else "another value")
    return None


def _first(number: int, wrong: Array, what: str) -> Difference | None:
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return Difference(number, place, what, int(wrong.sum()))
