"""Traffic: the total cost of all shardings, in terms few of which depend on one value's sharding.

The cost of an op is its work on tiles, the exchange of its local form, and the resharding of its results, divided as
the partitioner would divide it (`op_sharding.assignment`). The cost of a value is that of resharding it to every tiling
that its users want, each tiling once. Code in a loop counts once per trip. Data flow (tuples, control flow,
annotations) wants the source in the tiling of the target.

Costs are times on a machine (`cost.machine`). They omit what the partitioner finds beyond single ops: sums that stay
partial.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ...cost.machine import Machine
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.sharding.tiling import Tiling
from ...ir.tools.spmd import Order
from ...ir.tools.trip_count import runs_of_computations
from ..op_sharding.anywhere import is_structure, makes_any_tile
from ..op_sharding.assignment import Choice
from ..op_sharding.costs import arithmetic, memory_traffic, result_cost
from ..op_sharding.decide import Decider
from ..op_sharding.forms import LocalForms
from ..op_sharding.use import OpUse
from ..resharding.plan import plan_reshard
from .values import Leaf, Relation, ValueGraph

_DEEPEST = 64  # longest chain of ops checked for whether any device can compute its value


class Cost(NamedTuple):
    """The time in which a device receives; in which it reads and writes; and in which it computes."""

    received: float
    memory: float
    arithmetic: float


_NOTHING = Cost(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class RelationCost:
    """The cost of one relation under the tilings of its leaves, without resharding its operands.

    `tilings` are those of each value in the op (operands first).
    """

    cost: Cost
    tilings: tuple[Tiling, ...]


class Traffic:
    """The tilings of a solved graph's leaves, which may be changed, and their cost."""

    def __init__(
        self, module: Module, graph: ValueGraph, order: Order, devices: int, machine: Machine, forms: LocalForms
    ) -> None:
        self.graph, self.order, self.devices, self.machine = graph, order, devices, machine
        self.decider = Decider(devices, machine, forms)
        self._runs = runs_of_computations(module)
        self._tilings: dict[Leaf, Tiling] = {}
        self._relation_costs: dict[Relation, RelationCost] = {}
        self._known: dict[OpUse, RelationCost] = {}
        self._uses: dict[Relation, OpUse | None] = {}
        self._weights: dict[Relation, int] = {}
        self._free: dict[Leaf, bool] = {}
        self._sent: dict[Leaf, float] = {}

    @property
    def decisions(self) -> int:
        """The number of uses of ops divided so far, under any tilings of their values; equal uses count once."""
        return len(self._known)

    def tiling(self, leaf: Leaf) -> Tiling:
        found = self._tilings.get(leaf)
        if found is None:
            found = self._tilings[leaf] = leaf.tiling(self.order).canonical()
        return found

    def set_tiling(self, leaf: Leaf, tiling: Tiling) -> None:
        """Sets the tiling of a leaf."""
        self._tilings[leaf] = tiling
        for relation in leaf.relations:
            self._relation_costs.pop(relation, None)
            for other in relation.leaves:
                self._sent.pop(other, None)

    def cost_around(self, leaf: Leaf) -> Cost:
        """Returns the sum of all costs that depend on the tiling of this leaf."""
        received = memory = arithmetic = 0.0
        sources: dict[Leaf, None] = {leaf: None}
        for relation in leaf.relations:
            share, weight = self.relation_cost(relation), self._weight(relation)
            received += share.cost.received * weight
            memory += share.cost.memory * weight
            arithmetic += share.cost.arithmetic * weight
            sources.update(dict.fromkeys(relation.leaves[: len(relation.rule.operands)]))
        return Cost(received + sum(map(self._sending, sources)), memory, arithmetic)

    def relation_cost(self, relation: Relation) -> RelationCost:
        found = self._relation_costs.get(relation)
        if found is None:
            found = self._relation_costs[relation] = self._relation_cost(relation)
        return found

    def is_flow(self, relation: Relation) -> bool:
        """Whether a relation only passes one value to another place in the program."""
        return len(relation.leaves) == 2 and relation.outer is None and is_structure(relation.instruction)

    def is_op(self, relation: Relation) -> bool:
        """Whether a relation is that of an op between its operands and results, not another tie between values."""
        return self._use(relation) is not None

    def _relation_cost(self, relation: Relation) -> RelationCost:
        tilings = tuple(map(self.tiling, relation.leaves))
        use = self._use(relation)
        if use is None:
            return RelationCost(_NOTHING, (tilings[1], tilings[1]) if self.is_flow(relation) else tilings)
        use = replace(use, tilings=tilings)
        found = self._known.get(use)
        if found is None:
            found = self._known[use] = _op_cost(self.decider.decide(use))
        return found

    def _use(self, relation: Relation) -> OpUse | None:
        """Returns the op use of a relation, without tilings; None for data flow and other ties."""
        if relation not in self._uses:
            instruction = relation.instruction
            own = [x for i in (*instruction.operands, instruction) for x in self.graph.leaves[i]]
            self._uses[relation] = None
            if own == relation.leaves and not is_structure(instruction):
                free = frozenset(n for n, x in enumerate(own[: len(relation.rule.operands)]) if self._is_free(x))
                self._uses[relation] = self.decider.uses.of(instruction, (), self.order, free=free)
        return self._uses[relation]

    def _weight(self, relation: Relation) -> int:
        """Returns how often a relation's data moves. The end of a loop's body ties a value inside to the state outside.
        """
        found = self._weights.get(relation)
        if found is None:
            around = [relation.instruction, *(x.instruction for x in relation.leaves)]
            counts = (self._runs[i.parent] for i in around if i.parent in self._runs)
            found = self._weights[relation] = max(counts, default=1)
        return found

    def _sending(self, leaf: Leaf) -> float:
        found = self._sent.get(leaf)
        if found is None:
            found = self._sent[leaf] = 0.0 if self._is_free(leaf) else self._sends(leaf)
        return found

    def _sends(self, leaf: Leaf) -> float:
        """Returns the cost of resharding a leaf to the tilings that its users want."""
        source = self.tiling(leaf)
        wanted: dict[Tiling, int] = {}
        for relation in leaf.relations:
            operands = relation.leaves[: len(relation.rule.operands)]
            if leaf in operands:
                inside = self.relation_cost(relation).tilings
                for user, tiling in zip(operands, inside, strict=False):
                    if user is leaf and tiling != source:
                        wanted[tiling] = max(wanted.get(tiling, 0), self._weight(relation))
        if not wanted:
            return 0.0
        size, dims = leaf.shape.element.byte_size, leaf.shape.dims
        return sum(
            count * plan_reshard(source, target, dims, self.devices, size=size, machine=self.machine).cost
            for target, count in wanted.items())

    def _is_free(self, leaf: Leaf, depth: int = _DEEPEST) -> bool:
        """Whether any device can compute any tile of a value (see `op_sharding.anywhere`) under the propagated tilings.
        """
        found = self._free.get(leaf)
        if found is None:
            found = self._free[leaf] = self._is_made_anywhere(leaf.instruction, depth)
        return found

    def _is_made_anywhere(self, instruction: Instruction, depth: int) -> bool:
        operands = instruction.operands
        if not instruction.shape.is_array or not all(o.shape.is_array for o in operands) or is_structure(instruction):
            return False
        if (operands and not depth) or not makes_any_tile(instruction, instruction.op.sharding_rule(instruction.call)):
            return False
        leaves = (self.graph.leaves[o][0] for o in operands)
        return all(x.tiling(self.order).is_replicated or self._is_free(x, depth - 1) for x in leaves)


def _op_cost(choice: Choice) -> RelationCost:
    """Returns the cost of an op as the partitioner would divide it."""
    op, assignment = choice.op, choice.assignment
    cost = Cost(result_cost(op, assignment), memory_traffic(op, assignment), arithmetic(op, assignment))
    return RelationCost(cost, tuple(t.canonical() for t in (*choice.operands, *choice.results)))
