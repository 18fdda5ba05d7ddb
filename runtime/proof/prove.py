"""Runs a program and its partitioned form over a finite field, and says whether they are equal.

Two rational functions that differ are equal at a random point with a chance of their degree divided by 2^61, and
functions that the field does not have are random ones. So a trial that finds no difference shows, but for a tiny
chance, that all results are the same expressions of all inputs. Comparisons, integers and the order of elements are
drawn instead: results that hang on these are tested only, unless they are shown on terms (`relations/shown`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.diagnostics import CompileError
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.tools.placement import placed_like
from ..evaluator import UnpartitionedProgram
from ..plan.interpreter import Plan
from ..simulator import SimulatedProgram
from .bounds import Bounds, ShowOnTerms
from .control import never_run, unlike
from .decisions import ending_inputs, hanging
from .effort import trials_for
from .inputs import TrialInputs, mode_of
from .kernels import FieldKernels
from .oracle import Oracle
from .pairs import differ, is_exact, undefined
from .transforms import lengths_without_roots
from .verdict import Difference, Origin, Uncovered, Verdict

Array = np.ndarray[Any, Any]

_FIRST = 2  # trials before it is asked what else shows results

Locate = Callable[[UnpartitionedProgram, SimulatedProgram, Sequence[Array], Oracle], "Origin | None"]


def prove(
    original: Module, local: Module, trials: int | None = None, seed: int = 0,
    locate: Locate | None = None, on_terms: ShowOnTerms | None = None,
) -> Verdict:  # fmt: skip
    """Whether a program per device, simulated on all devices, computes what the original does.

    The padding of inputs is undefined. More trials lower the chance that a difference is missed; without a number there
    are as many as the decisions of the program need. `local` may be the work of another partitioner: a parameter or
    result of it that has no sharding lies on the devices as `original` says. `locate` finds the first wrong instruction
    of programs that differ on some inputs, `on_terms` shows results that hang on decisions for all inputs.

    Raises CompileError for programs that cannot be run, and ValueError for no trials.
    """
    if trials is not None and trials < 1:
        raise ValueError("at least one trial is needed")
    both = _Pair(original, placed_like(local, original), locate)
    if both.uncovered:
        return both.verdict(0, uncovered=both.uncovered)
    number = 0
    while number < (both.trials(number) if trials is None else trials):
        found = both.trial(np.random.SeedSequence((seed, number)), number)
        if found is not None:
            return found
        number += 1
        if on_terms is not None and number == min(_FIRST, trials or _FIRST):
            both.bounds.show(on_terms, seed)
    return both.verdict(number)


@dataclass
class _Side:
    """One of the two programs, made ready to run."""

    name: str
    kernels: FieldKernels
    program: Any = None

    def uncovered(self) -> list[Uncovered]:
        return [_noted(self.name, i, reason) for i, reason in self.kernels.uncovered.items()]


class _Pair:
    """Both programs and what trials have shown of their results."""

    def __init__(self, original: Module, local: Module, locate: Locate | None) -> None:
        self.original, self.local, self.locate = original, local, locate
        oracle = Oracle(np.random.SeedSequence(0))
        self.whole = _Side("original", FieldKernels(original, oracle))
        self.divided = _Side("partitioned", FieldKernels(local, oracle))
        self.inputs = TrialInputs(original)
        self.defined: list[Any] = []
        self.uncovered: list[Uncovered] = []
        self._prepare(self.whole, UnpartitionedProgram, original)
        self._prepare(self.divided, SimulatedProgram, local)
        (expected, _), (lengths, transforms) = map(lengths_without_roots, (original, local))
        if lengths != expected:
            reason = "the field has no roots of unity for transforms of these lengths, which are not the original's"
            self.uncovered += [_noted(self.divided.name, i, reason) for i in transforms]
        if not self.uncovered:
            self.inputs.ending = frozenset().union(*map(ending_inputs, self._plans))

    @property
    def _plans(self) -> list[Plan]:
        return [side.program.executable.plan for side in (self.whole, self.divided)]

    @cached_property
    def bounds(self) -> Bounds:
        """What the trials show."""
        return Bounds(self.original, self.local, hanging(*self._plans))

    def trials(self, done: int) -> int:
        """The number of trials that are enough, as far as is known after some."""
        return _FIRST if done < _FIRST else done if self.bounds.are_small else trials_for(self._plans, done)

    def _prepare(self, side: _Side, program: Callable[[Module, FieldKernels], Any], module: Module) -> None:
        try:
            side.program = program(module, side.kernels)
        except CompileError:
            if not side.kernels.uncovered:
                raise
        self.uncovered += side.uncovered()

    def trial(self, seed: np.random.SeedSequence, number: int) -> Verdict | None:
        """Runs both once. The verdict, if that already is one."""
        of_oracle, of_inputs = seed.spawn(2)
        mode = mode_of(number, self.bounds.flow_only)
        oracle = Oracle(of_oracle, mode.free, mode.zero)
        for side in (self.whole, self.divided):
            side.kernels.oracle, side.kernels.compared = oracle, {}
        inputs = self.inputs.draw(of_inputs, mode)
        try:
            expected = self.whole.program.run(inputs)
        except CompileError as error:
            return self.verdict(number, problem=f"the original cannot be run: {error.diagnostics[0].message}")
        try:
            found = self.divided.program.simulate(inputs, poison=True).outputs
        except CompileError as error:
            origin = None if oracle.exhausted else self._origin(inputs)
            problem, differs = error.diagnostics[0].message, not oracle.exhausted
            return self.verdict(number + 1, problem=problem, differs=differs, origin=origin)
        exact = [is_exact(leaf) for leaf in self.original.entry.root.shape.leaves() if leaf.is_array]
        difference = _difference(expected, found, exact)
        if difference is not None and oracle.exhausted:
            return self.verdict(number + 1, problem=oracle.exhausted)
        if difference is not None:
            return self.verdict(number + 1, difference=difference, origin=self._origin(inputs))
        if problem := self._other_decision():
            return self.verdict(number + 1, problem=problem)
        if mode.floats == "random":
            self.bounds.after_trial(oracle.made, sum(x.size for x in expected))
        defined = [is_integer or ~undefined(x) for x, is_integer in zip(expected, exact, strict=True)]
        self.defined = [a | b for a, b in zip(self.defined or defined, defined, strict=True)]
        return None

    def _other_decision(self) -> str:
        """Describes what the devices decide otherwise, though no result shows it. Empty if they decide nothing so."""
        ours = self.divided.kernels.compared
        for name, pairs in self.whole.kernels.compared.items():
            if ours.get(name, pairs) != pairs:
                return f"{name} compares other numbers than in the original program"
        return unlike(*self._plans, self.divided.program.grid.size)

    def _origin(self, inputs: Sequence[Array]) -> Origin | None:
        """The first wrong instruction in a run on these inputs."""
        if self.locate is None:
            return None
        return self.locate(self.whole.program, self.divided.program, inputs, self.whole.kernels.oracle)

    def verdict(
        self, trials: int, difference: Difference | None = None, problem: str = "", differs: bool = False,
        uncovered: Sequence[Uncovered] = (), origin: Origin | None = None,
    ) -> Verdict:  # fmt: skip
        undefined = [_first(n, ~np.asarray(d), "undefined in every trial") for n, d in enumerate(self.defined)]
        missing = tuple(d for d in undefined if d is not None)
        if difference is not None or differs:
            outcome, missing = "differs", ()
        else:
            outcome = "unproved" if uncovered or missing or problem else "equal"
        outputs = sum(leaf.is_array for leaf in self.original.entry.root.shape.leaves())
        tested, missed = (self.bounds.tested, self.bounds.chance) if outcome == "equal" else ((), 1.0)
        never = (name for plan in (self._plans if trials else ()) for name in never_run(plan))
        untaken = tuple(dict.fromkeys(never))
        outcome = "agrees" if tested else outcome
        return Verdict(
            outcome, outputs, trials, missed, difference, problem, missing, tuple(uncovered), tested, untaken, origin
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
