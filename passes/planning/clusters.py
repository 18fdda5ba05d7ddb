"""Clusters: groups of ops that are divided alike, so that one decision stands for all of them.

A cluster has factors, an index space of its own; each member op maps the factors of its rule to them. Parameters, the
state of loops, contractions, gathers, scatters, and ops whose local form communicates are clusters of their own. Ops on
elements, transposes and sums follow their largest operand if their factors map one to one. Broadcasts, and whatever
else is computed from smaller values, float until an op reads them, and join its cluster. Values that any device can
make of scalars are free: they take no part.

Assumption: the module is prepared as for propagation (calls are inlined), and has no annotations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...cost.seconds import trips_of
from ...ir.brief import brief
from ...ir.factors.sharding_rule import FactorKind, ShardingRule
from ...ir.graph.algebra import Algebra
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Movement
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.tools.trip_count import runs_of_computations
from ..annotating.sharded_optimizer import new_values
from ..op_sharding.anywhere import is_structure
from ..op_sharding.forms import LocalForms
from ..propagation.values import Leaf, RuleRelation, ValueGraph
from ..resharding.table import PARTIAL, WHOLE, Division

Dims = tuple[tuple[int, ...], ...]  # the cluster's factors of each dimension
_SIMPLE = frozenset({FactorKind.PASS, FactorKind.REDUCTION})


@brief
@dataclass(eq=False, slots=True)
class ClusterMember:
    """An op of a cluster, run `runs` times. `factors` has the cluster's factor of each factor of its rule."""

    relation: RuleRelation
    factors: tuple[int, ...]
    runs: int

    def dims(self, value: int) -> Dims:
        """Returns the cluster's factors of a value of the op, operands first."""
        return tuple(tuple(self.factors[f] for f in dim) for dim in self.relation.rule.values()[value])


@brief
@dataclass(eq=False, slots=True)
class OpCluster:
    """A group of ops. `sizes` are those of its factors. `leaf` is the parameter or the loop state that it stands for.
    `is_open` if further ops may join.
    """

    number: int
    sizes: list[int] = field(default_factory=list[int])
    members: list[ClusterMember] = field(default_factory=list[ClusterMember])
    leaf: Leaf | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Stand:
    """How a value stands in the index space of a cluster: a table from its factors (and, last, none) to the place of
    an axis that divides the factor: a dimension of the value, WHOLE or PARTIAL.
    """

    cluster: int
    places: tuple[int, ...]

    def division(self, division: Division) -> Division:
        """Returns the division of the value under one of the cluster."""
        return tuple(self.places[factor] for factor in division)

    @property
    def factors(self) -> frozenset[int]:
        """The factors of the value's dimensions."""
        return frozenset(factor for factor, place in enumerate(self.places) if place >= 0)


def factors_of(dims: Dims) -> frozenset[int]:
    """Returns the factors of all dimensions."""
    return frozenset(factor for dim in dims for factor in dim)


def stand_of(cluster: OpCluster, dims: Dims, summed: Iterable[int] = ()) -> Stand:
    """Returns how a value with these factors stands in a cluster; it is partial over the `summed` ones."""
    places = [WHOLE] * (len(cluster.sizes) + 1)
    for factor in summed:
        places[factor] = PARTIAL
    for dim, factors in enumerate(dims):
        for factor in factors:
            places[factor] = dim
    return Stand(cluster.number, tuple(places))


@dataclass(frozen=True, slots=True)
class Flow:
    """A value that must come in the division of another: the state of a loop, or a result in a parameter's memory."""

    source: Leaf
    target: Leaf
    runs: int


class Clusters:
    """The clusters of a module, and where each value is at home: its cluster, its dimensions there, and the factors
    that are summed.
    """

    def __init__(self, module: Module, forms: LocalForms) -> None:
        self.module, self.forms = module, forms
        self.graph = ValueGraph(module)
        self.runs = runs_of_computations(module, trips_of)  # as the forecast counts them
        self.all: list[OpCluster] = []
        self.home: dict[Leaf, tuple[OpCluster, Dims, tuple[int, ...]]] = {}
        self.flows: list[Flow] = []
        self.free: set[Leaf] = set()
        self.renewed = self._renewed()
        self._floating: dict[Leaf, RuleRelation] = {}
        for parameter in module.entry.parameters:
            for leaf in self.graph.leaves[parameter]:
                self._own_value(leaf)
        for relation in sorted(self.graph.relations, key=lambda r: r.depth):
            if relation.call is None:
                self._flow(relation)
            else:
                self._place(relation)
        while self._floating:  # nobody reads them
            leaf = next(iter(self._floating))
            self._own(self._floating.pop(leaf), True)
        self.results = self._results()

    def is_free(self, leaf: Leaf) -> bool:
        return leaf.made_of_scalars or not leaf.shape.is_array or leaf in self.free

    def stand(self, leaf: Leaf) -> Stand:
        """Returns how a value stands in its own cluster."""
        return stand_of(*self.home[leaf])

    def _results(self) -> list[Leaf]:
        """Returns a value to stand for each result: its own, or the parameter that it renews."""
        root = self.module.entry.root
        leaves = self.graph.leaves[root]
        if root.op.role is Role.TUPLE or root.op.is_control or leaves[0] in self.renewed:
            return [self.renewed.get(leaf, leaf) for leaf in leaves]
        found: list[Leaf] = []
        for leaf in leaves:
            copy = Leaf(leaf.shape, root, leaf.dims, leaf.closed, [[] for _ in leaf.dims], leaf.made_of_scalars)
            self._own_value(copy)
            self.flows.append(Flow(leaf, copy, 1))
            found.append(copy)
        return found

    def _renewed(self) -> dict[Leaf, Leaf]:
        """Returns the results that are new values of parameters, with these: a step takes them as it returns them."""
        root, found = self.module.entry.root, dict[Leaf, Leaf]()
        for parameter, number in new_values(self.module).items() if root.op.role is Role.TUPLE else ():
            place = root.shape.leaf_range(number)[0]
            (found[self.graph.leaves[root][place]],) = self.graph.leaves[parameter]
        return found

    def _new(self, is_open: bool = False, leaf: Leaf | None = None) -> OpCluster:
        found = OpCluster(len(self.all), leaf=leaf, is_open=is_open)
        self.all.append(found)
        return found

    def _own_value(self, leaf: Leaf) -> None:
        cluster = self._new(leaf=leaf)
        cluster.sizes = list(leaf.shape.dims) if leaf.shape.is_array else []
        self.home[leaf] = cluster, tuple((d,) for d in range(len(cluster.sizes))), ()

    def _flow(self, relation: RuleRelation) -> None:
        if len(relation.leaves) != 2:
            return
        source, target = relation.leaves
        root = self.module.entry.root
        if target in self.renewed:
            target = self.renewed[target]
        elif target not in self.home:
            if not target.instruction.op.is_control and target.instruction is not root:
                if source in self._floating:
                    self._own(self._floating.pop(source), True)
                if source in self.home:
                    self.home[target] = self.home[source]
                return
            self._own_value(target)
        runs = max(self._runs(source.instruction), self._runs(relation.instruction))
        self.flows.append(Flow(source, target, runs))

    def _runs(self, instruction: Instruction) -> int:
        return self.runs.get(instruction.parent, 1) if instruction.parent is not None else 1

    def _place(self, relation: RuleRelation) -> None:
        instruction, rule = relation.instruction, relation.rule
        count = len(rule.operands)
        operands, results = relation.leaves[:count], relation.leaves[count:]
        if (results and all(r in self.home for r in results)) or all(map(self.is_free, relation.leaves)):
            return
        op, kinds = instruction.op, {f.kind for f in rule.factors}
        if not instruction.op.has_side_effect(instruction.attributes) and not instruction.called() \
                and kinds <= {FactorKind.PASS, FactorKind.PERMUTATION} and all(map(self.is_free, operands)):
            self.free.update(results)  # made of scalars, by several ops
            return
        light = self._is_light(relation)
        if light and len(results) == 1 and kinds <= {FactorKind.PASS}:
            known = [o.shape.num_elements for o in operands if not self.is_free(o)]
            floats = all(self.is_free(o) or o in self._floating for o in operands)
            if not op.is_control and (floats or results[0].shape.num_elements > max(known, default=0)):
                self._floating[results[0]] = relation
                return
        if light:
            for number in sorted(range(count), key=lambda n: -operands[n].shape.num_elements):
                if operands[number] in self.home and not self.is_free(operands[number]):
                    cluster, dims, _ = self.home[operands[number]]
                    factors = _mapped(rule, number, dims, cluster) if cluster.is_open else None
                    if factors is not None:
                        self._join(relation, cluster, factors)
                        return
        self._own(relation, light)

    def _is_light(self, relation: RuleRelation) -> bool:
        """Whether an op may share its division with others."""
        instruction, rule = relation.instruction, relation.rule
        kinds = {f.kind for f in rule.factors}
        if not kinds <= _SIMPLE or (rule.monoid is None and FactorKind.REDUCTION in kinds):
            return False
        if FactorKind.REDUCTION in kinds and sum(map(bool, rule.operands)) > 1:  # a gather, or a scatter
            return False
        if instruction.op.algebra_of(instruction.call) is Algebra.BILINEAR or is_structure(instruction):
            return False
        form = self.forms.of(instruction.opcode, instruction.call.attributes)
        if form is not None and form.exchanged is not None and rule.compound:
            return False
        moves = instruction.op.interface(Movement)
        return moves is None or moves.windows(instruction.call) is None

    def _own(self, relation: RuleRelation, is_open: bool = False) -> None:
        self._join(relation, self._new(is_open), [None] * len(relation.rule.factors))

    def _join(self, relation: RuleRelation, cluster: OpCluster, factors: Sequence[int | None]) -> None:
        """Adds an op to a cluster, which gets the factors that it lacks; floating operands come along."""
        rule, own = relation.rule, list[int]()
        for factor, known in zip(rule.factors, factors, strict=True):
            if known is None:
                cluster.sizes.append(factor.size)
            own.append(len(cluster.sizes) - 1 if known is None else known)
        member = ClusterMember(relation, tuple(own), self._runs(relation.instruction))
        for number, leaf in enumerate(relation.leaves[: len(rule.operands)]):
            other = self._floating.pop(leaf, None)
            if other is not None:
                mapped = _mapped(other.rule, len(other.rule.operands), member.dims(number), cluster)
                if mapped is None:
                    self._own(other, True)
                else:
                    self._join(other, cluster, mapped)
        cluster.members.append(member)
        reduced = [f.kind is FactorKind.REDUCTION and rule.monoid is not None for f in rule.factors]
        summed = tuple(f for f, is_reduced in zip(own, reduced, strict=True) if is_reduced)
        for number in range(len(rule.operands), len(relation.leaves)):
            self.home[relation.leaves[number]] = cluster, member.dims(number), summed


def _mapped(rule: ShardingRule, value: int, dims: Dims, cluster: OpCluster) -> list[int | None] | None:
    """Returns the cluster's factor of each factor of a rule, by which a value has these dimensions; None if they do
    not fit one to one.
    """
    found: list[int | None] = [None] * len(rule.factors)
    for own, wanted in zip(rule.values()[value], dims, strict=True):
        if [rule.factors[f].size for f in own] != [cluster.sizes[f] for f in wanted]:
            return None
        for factor, place in zip(own, wanted, strict=True):
            if found[factor] not in (None, place):
                return None
            found[factor] = place
    used = [place for place in found if place is not None]
    return found if len(set(used)) == len(used) else None


