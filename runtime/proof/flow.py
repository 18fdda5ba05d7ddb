"""The dataflow graph of a program's plans: the values that each value depends on, leaf by leaf.

Tuples have no values of their own: the instructions that compute their elements stand for these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.brief import brief
from ...ir.graph.instruction import Instruction
from ..plan.interpreter import Step, StepPlan
from ..plan.steps import CallStep, ConditionalStep, StartStep, WaitStep, WhileStep


@dataclass(frozen=True)
class ValueLeaf:
    """One leaf of the value of an instruction."""

    instruction: Instruction
    leaf: int = 0

    def __str__(self) -> str:
        name = self.instruction.name
        return f"{name}[{self.leaf}]" if self.instruction.shape.is_tuple else name


Owners = dict[int, ValueLeaf]


@brief
@dataclass(frozen=True)
class Making:
    """The step that makes a value (the start, for a collective), and the values that it reads."""

    step: Step
    reads: tuple[ValueLeaf | None, ...]


class DataFlow:
    """The operands of each value of a program.

    `owners` names the value of each buffer, by plan; `making` has the step of each value, except for calls and loops.
    Pickles leave it out too, because steps are code. `entry` is the computation that runs first.
    """

    def __init__(self, plan: StepPlan) -> None:
        self.entry = plan.computation
        self.owners: dict[int, Owners] = {}
        self.making: dict[ValueLeaf, Making] = {}
        self.ends: list[ValueLeaf] = []  # the conditions of loops
        self._operands: dict[ValueLeaf, dict[ValueLeaf, None]] = {}
        self._ends_of: dict[ValueLeaf, list[ValueLeaf]] = {}  # the conditions that end the loop of a result
        self._visit(plan)
        owners = self.owners[id(plan)]
        self.parameters = [owners[b] for b in plan.parameters]
        self.inputs = frozenset(self.parameters)
        self._outputs = [owners.get(b) for b in plan.results]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"making": {}}

    def operands(self, place: ValueLeaf) -> Iterable[ValueLeaf]:
        """The operands of a value: for a parameter those at its call sites, for a loop the results of its body."""
        return self._operands.get(place, ())

    def results(self) -> list[ValueLeaf | None]:
        """The leaves of the program's result; None where nothing computes one."""
        return self._outputs

    def made_from(self, places: Iterable[ValueLeaf]) -> set[ValueLeaf]:
        """Returns these values and all that depend on them, including by the trip count of a loop."""
        return set(self.nearest(places))

    def made_of(self, places: Iterable[ValueLeaf]) -> set[ValueLeaf]:
        """Returns these values and all that they depend on, including by the trip count of a loop."""
        found = set(places)
        queue = deque(found)
        while queue:
            place = queue.popleft()
            new = {*self.operands(place), *self._ends_of.get(place, ())} - found
            found |= new
            queue += new
        return found

    def nearest(self, places: Iterable[ValueLeaf]) -> dict[ValueLeaf, ValueLeaf]:
        """Maps each value that depends on some of these to the nearest of them, by the number of steps."""
        users: dict[ValueLeaf, list[ValueLeaf]] = {}
        for sources in (self._operands, self._ends_of):
            for place, operands in sources.items():
                for operand in operands:
                    users.setdefault(operand, []).append(place)
        found = {place: place for place in places}
        queue = deque(found)
        while queue:
            place = queue.popleft()
            for user in users.get(place, ()):
                if user not in found:
                    found[user] = found[place]
                    queue.append(user)
        return found

    def places(self) -> Iterable[ValueLeaf]:
        """All values."""
        return (place for owners in self.owners.values() for place in owners.values())

    def _visit(self, plan: StepPlan) -> Owners:
        if id(plan) in self.owners:
            return self.owners[id(plan)]
        owners = self.owners[id(plan)] = {b: ValueLeaf(i) for b, i in plan.folded.items()}
        leaves = (ValueLeaf(p, n) for p in plan.computation.parameters for n in range(p.shape.num_leaves))
        owners.update(zip(plan.parameters, leaves, strict=True))
        started: dict[int, StartStep] = {}
        for step in plan.steps:
            if isinstance(step, StartStep):
                started[step.writes[0]] = step
                continue
            for leaf, buffer in enumerate(step.writes):
                owners[buffer] = ValueLeaf(step.instruction, leaf)
            maker = started[step.reads[0]] if isinstance(step, WaitStep) else step
            reads = [owners.get(b) for b in maker.reads]
            if not step.plans():
                self.making.update(dict.fromkeys((owners[b] for b in step.writes), Making(maker, tuple(reads))))
            self._connect(step, owners, reads)
        return owners

    def _connect(self, step: Step, owners: Owners, reads: list[ValueLeaf | None]) -> None:
        writes = [owners[b] for b in step.writes]
        if isinstance(step, WhileStep):
            self._parameters(step.condition, reads)
            self._parameters(step.body, reads)
            after = self._results(step.body)
            for plan in (step.condition, step.body):
                self._parameters(plan, after)
            self._link(writes, reads)
            self._link(writes, after)
            ends = [end for end in self._results(step.condition) if end is not None]
            self.ends += ends
            for write in writes:
                self._ends_of.setdefault(write, []).extend(ends)
        elif isinstance(step, CallStep):
            self._parameters(step.callee, reads)
            self._link(writes, self._results(step.callee))
        elif isinstance(step, ConditionalStep):
            for branch, part in zip(step.branches, step.slices, strict=True):
                self._parameters(branch, reads[part])
                self._link(writes, self._results(branch))
            for write in writes:
                self._link([write], reads[:1])
        else:
            for write in writes:
                for read in reads:
                    self._link([write], [read])

    def _results(self, plan: StepPlan) -> list[ValueLeaf | None]:
        owners = self._visit(plan)
        return [owners.get(b) for b in plan.results]

    def _parameters(self, plan: StepPlan, values: Sequence[ValueLeaf | None]) -> None:
        owners = self._visit(plan)
        self._link([owners[b] for b in plan.parameters], values)

    def _link(self, places: Sequence[ValueLeaf], values: Sequence[ValueLeaf | None]) -> None:
        for place, value in zip(places, values, strict=True):
            if value is not None:
                self._operands.setdefault(place, {})[value] = None
