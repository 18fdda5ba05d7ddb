"""Traffic: the total cost of all shardings, in terms few of which depend on one value's sharding.

The cost of an op is its work on tiles, the exchange of its local form, and the resharding of its results, divided as
the partitioner would divide it (`op_sharding.assignment`). The cost of a value is that of resharding it to every tiling
that its users want, each tiling once. Code in a loop counts once per trip. Data flow (tuples, control flow,
annotations) wants the source in the tiling of the target.

Costs are times on a machine (`cost.machine`). Compilers fuse ops that compute or move single elements, so a value with
one user takes no memory traffic if both its op and its user are such. Costs omit what the partitioner finds beyond
single ops: sums that stay partial.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp, OpCall
from ...ir.sharding.tiling import Tiling
from ...ir.tools.spmd import Order
from ...ir.tools.trip_count import runs_of_computations
from ...ir.types.shape import Shape
from ..op_sharding.anywhere import DEEPEST, is_structure, makes_any_tile
from ..op_sharding.assignment import Choice
from ..op_sharding.costs import arithmetic, memory_traffic, result_cost
from ..op_sharding.decide import Decider
from ..op_sharding.use import OpUse
from ..resharding.plan import plan_reshard
from .clusters import LeafCluster
from .values import Leaf, RuleRelation, ValueGraph


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


@dataclass(frozen=True, slots=True)
class _Op:
    """The op of equal relations: its use, without tilings, its values that never lie in memory, and its costs under the
    tilings met so far, by the identities of these.
    """

    use: OpUse
    fused: frozenset[int]
    costs: dict[tuple[int, ...], RelationCost]


class Traffic:
    """The tilings of a solved graph's leaves, which may be changed, and their cost. Equal tilings are one object."""

    def __init__(self, module: Module, graph: ValueGraph, order: Order, decider: Decider) -> None:
        self.graph, self.order, self.decider = graph, order, decider
        self.decisions = 0  # uses of ops divided so far, under any tilings of their values; equal ones count once
        self._runs = runs_of_computations(module)
        self._loops = any(count != 1 for count in self._runs.values())
        self._one_of: dict[Tiling, Tiling] = {}
        self._tilings: dict[Leaf, Tiling] = {}
        self._solved: dict[Hashable, Tiling] = {}  # tilings by the digits of leaves
        self._relation_costs: dict[RuleRelation, RelationCost] = {}
        self._ops: dict[RuleRelation, _Op | None] = {}
        self._known_ops: dict[tuple[OpUse, frozenset[int]], _Op] = {}
        self._ops_of_calls: dict[tuple[int, frozenset[int], frozenset[int]], _Op] = {}
        self._free: dict[Leaf, bool] = {}
        self._fused: dict[Leaf, bool] = {}
        self._any_tile: dict[int, bool] = {}
        self._reads: dict[Leaf, tuple[tuple[RuleRelation, int, int], ...]] = {}
        self._sent: dict[Leaf, float] = {}
        self._moves: dict[tuple[int, int, tuple[int, ...], int], float] = {}  # by the identities of tilings

    def tiling(self, leaf: Leaf) -> Tiling:
        found = self._tilings.get(leaf)
        if found is None:
            key = leaf.dims, leaf.unreduced, leaf.manual, leaf.fixed_sharding
            found = self._solved.get(key)
            if found is None:
                found = self._solved[key] = self.one(leaf.tiling(self.order).canonical())
            self._tilings[leaf] = found
        return found

    def one(self, tiling: Tiling) -> Tiling:
        """Returns the object that stands for all equal tilings."""
        return self._one_of.setdefault(tiling, tiling)

    def set_tiling(self, leaf: Leaf, tiling: Tiling) -> None:
        """Sets the tiling of a leaf."""
        self._tilings[leaf] = self.one(tiling)
        for relation in leaf.relations:
            self._relation_costs.pop(relation, None)
            for other in relation.leaves:
                self._sent.pop(other, None)

    def received_around(self, cluster: LeafCluster) -> float:
        """Returns the sum of all times to receive data that depend on the tilings of a cluster's leaves."""
        costs = ((self.relation_cost(r).cost.received * self.weight(r)) for r in cluster.relations)
        sources = {x: None for r in cluster.relations for x in r.leaves[: len(r.rule.operands)]}
        return sum(costs) + sum(map(self._sending, {**dict.fromkeys(cluster.leaves), **sources}))

    def change(self, cluster: LeafCluster, tiling: Tiling) -> Cost:
        """Returns the difference of all costs if the leaves of a cluster had this tiling."""
        leaves, relations = cluster.leaves, cluster.relations
        before = list(map(self.relation_cost, relations))
        old = list(map(self.tiling, leaves))
        self._tilings.update(dict.fromkeys(leaves, self.one(tiling)))
        received = memory = arithmetic = 0.0
        after: dict[RuleRelation, RelationCost] = {}
        sources: dict[Leaf, None] = dict.fromkeys(leaves)
        for relation, was in zip(relations, before, strict=True):
            after[relation] = found = self._relation_cost(relation)
            weight = self.weight(relation) if self._loops else 1
            new, last = found.cost, was.cost
            if new is not last:
                received += (new.received - last.received) * weight
                memory += (new.memory - last.memory) * weight
                arithmetic += (new.arithmetic - last.arithmetic) * weight
            for reader, one, other in zip(relation.leaves[: len(relation.rule.operands)], found.tilings, was.tilings):
                if one is not other:
                    sources[reader] = None
        sent = [self._sends(source, after) for source in sources]
        self._tilings.update(zip(leaves, old, strict=True))
        return Cost(received + sum(sent) - sum(map(self._sending, sources)), memory, arithmetic)

    def relation_cost(self, relation: RuleRelation) -> RelationCost:
        found = self._relation_costs.get(relation)
        if found is None:
            found = self._relation_costs[relation] = self._relation_cost(relation)
        return found

    def is_flow(self, relation: RuleRelation) -> bool:
        """Whether a relation only passes one value to another place in the program."""
        return len(relation.leaves) == 2 and relation.outer is None and not relation.is_group \
            and is_structure(relation.instruction)

    def use(self, relation: RuleRelation) -> OpUse | None:
        """Returns the op that a relation is between its operands and results, without tilings; None for other ties.

        Equal uses are one object.
        """
        found = self._op(relation)
        return None if found is None else found.use

    def fused(self, relation: RuleRelation) -> frozenset[int]:
        """Returns the values of an op, operands first, that never lie in memory."""
        found = self._op(relation)
        return frozenset() if found is None else found.fused

    def weight(self, relation: RuleRelation) -> int:
        """Returns how often a relation's data moves. The end of a loop's body ties a value inside to the state outside.
        """
        if not self._loops or relation.is_group:
            return 1
        around = [relation.instruction, *(x.instruction for x in relation.leaves)]
        return max((self._runs[i.parent] for i in around if i.parent in self._runs), default=1)

    def _relation_cost(self, relation: RuleRelation) -> RelationCost:
        known, op = self._tilings, self._op(relation)
        try:
            tilings = [known[leaf] for leaf in relation.leaves]
        except KeyError:
            tilings = list(map(self.tiling, relation.leaves))
        if op is None:
            return RelationCost(_NOTHING, tuple(tilings[1:] * 2 if self.is_flow(relation) else tilings))
        key = tuple(map(id, tilings))
        found = op.costs.get(key)
        if found is None:
            self.decisions += 1
            choice = self.decider.decide(replace(op.use, tilings=tuple(tilings)))
            found = op.costs[key] = self._op_cost(choice, op.fused)
        return found

    def _op_cost(self, choice: Choice, fused: frozenset[int]) -> RelationCost:
        """Returns the cost of an op as the partitioner would divide it."""
        op, assignment = choice.op, choice.assignment
        cost = Cost(result_cost(op, assignment), memory_traffic(op, assignment, fused), arithmetic(op, assignment))
        return RelationCost(cost, tuple(self.one(t.canonical()) for t in (*choice.operands, *choice.results)))

    def _op(self, relation: RuleRelation) -> _Op | None:
        try:
            return self._ops[relation]
        except KeyError:
            pass
        found = None
        if relation.call is not None and not is_structure(relation.instruction):
            operands = relation.leaves[: len(relation.rule.operands)]
            free = frozenset([n for n, x in enumerate(operands) if self.is_free(x)])
            fused = frozenset([n for n, x in enumerate(relation.leaves) if self._is_fused(x)])
            found = self._op_of_call(relation.instruction.op, relation.call, free, fused)
        self._ops[relation] = found
        return found

    def _op_of_call(self, op: AnyOp, call: OpCall[Any], free: frozenset[int], fused: frozenset[int]) -> _Op:
        key = id(call), free, fused  # most equal calls are one object
        found = self._ops_of_calls.get(key)
        if found is None:
            use = self.decider.uses.of(op, call, (), self.order, free=free)
            found = self._ops_of_calls[key] = self._known_ops.setdefault((use, fused), _Op(use, fused, {}))
        return found

    def _sending(self, leaf: Leaf) -> float:
        found = self._sent.get(leaf)
        if found is None:
            found = self._sent[leaf] = self._sends(leaf, {})
        return found

    def _sends(self, leaf: Leaf, costs: Mapping[RuleRelation, RelationCost]) -> float:
        """Returns the cost of resharding a leaf to the tilings that its users want. `costs` are of changed relations.
        """
        source, known = self.tiling(leaf), self._relation_costs
        wanted: dict[int, tuple[Tiling, int]] = {}  # by the identities of tilings
        for relation, place, weight in self._reads.get(leaf) or self._read_by(leaf):
            tiling = (costs.get(relation) or known.get(relation) or self.relation_cost(relation)).tilings[place]
            if tiling is not source:
                other = wanted.get(id(tiling))
                wanted[id(tiling)] = tiling, weight if other is None else max(other[1], weight)
        if not wanted:
            return 0.0
        return sum([weight * self._move(source, target, leaf.shape) for target, weight in wanted.values()])

    def _move(self, source: Tiling, target: Tiling, shape: Shape) -> float:
        size, dims = shape.element.byte_size, shape.dims
        key = id(source), id(target), dims, size
        found = self._moves.get(key)
        if found is None:
            plan = plan_reshard(
                source, target, dims, self.decider.devices, size=size, machine=self.decider.machine
            )
            found = self._moves[key] = plan.cost
        return found

    def _read_by(self, leaf: Leaf) -> tuple[tuple[RuleRelation, int, int], ...]:
        """Returns the relations that read a leaf: the operand's number, and how often its data moves.

        A replicated scalar, or a value that any device can compute, is never sent.
        """
        found = self._reads.get(leaf)
        if found is None:
            sent = (leaf.shape.rank > 0 or not self.tiling(leaf).is_replicated) and not self.is_free(leaf)
            found = self._reads[leaf] = tuple(
                (relation, place, self.weight(relation))
                for relation in (leaf.relations if sent else ())
                for place, user in enumerate(relation.leaves[: len(relation.rule.operands)]) if user is leaf)
        return found

    def is_free(self, leaf: Leaf, depth: int = DEEPEST) -> bool:
        """Whether any device can compute any tile of a value (see `op_sharding.anywhere`) under the propagated tilings.
        """
        found = self._free.get(leaf)
        if found is None:
            found = self._free[leaf] = self._is_made_anywhere(leaf, depth)
        return found

    def _is_made_anywhere(self, leaf: Leaf, depth: int) -> bool:
        instruction = leaf.instruction
        own = None
        for relation in leaf.relations:
            if relation.instruction is instruction and relation.call is not None:
                own = relation
                break
        if own is None or not instruction.shape.is_array or is_structure(instruction):
            return False
        operands = own.leaves[:-1]
        if (operands and not depth) or not self._makes_any_tile(own):
            return False
        return all(x.is_replicated or self.is_free(x, depth - 1) for x in operands)

    def _is_fused(self, leaf: Leaf) -> bool:
        """Whether a compiler computes a value where its only user reads it, so that it never lies in memory."""
        found = self._fused.get(leaf)
        if found is None:
            value = leaf.instruction
            ends = [r for r in leaf.relations if r.call is not None] if len(value.users) == 1 else []
            found = self._fused[leaf] = len(ends) == 2 and all(map(self._makes_any_tile, ends))
        return found

    def _makes_any_tile(self, relation: RuleRelation) -> bool:
        instruction, call = relation.instruction, relation.call
        assert call is not None
        key = id(call)  # equal calls are one object
        if key not in self._any_tile:
            self._any_tile[key] = makes_any_tile(instruction, instruction.op.sharding_rule(call))
        return self._any_tile[key]
