"""Assignments: which digits divide each factor of an op.

Candidates come from the shardings of operands and results: each value's own sharding, the same extended by the offers
of the others, and the same with the digits of indivisible factors moved to divisible ones. The cheapest candidate wins.
Its cost is the time to reshard the operands, to reshard the results, to exchange data in the op's local form, and to do
the local work. The choice depends on no opcode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...cost.machine import Machine, Transfer
from ...ir.diagnostics import InternalError
from ...ir.factors.factor_digits import dim_digits, is_expressible, value_digits
from ...ir.factors.sharding_rule import FactorKind, ShardingRule, ValueFactors
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import A, OpCall
from ...ir.sharding.digit import Digits, disjoint, merge, product
from ...ir.sharding.tiling import Tiling
from ...ir.tools.spmd import Order
from ...ir.types.shape import Shape
from ..resharding.base.moves import Plan
from ..resharding.plan import plan_reshard
from .use import OpUse

Assignment = dict[int, Digits]
Exchanged = Callable[["OpSharding", Assignment], float]


@dataclass(frozen=True, slots=True)
class LocalForm:
    """How an op runs on tiles, where the same op on smaller operands does not suffice.

    `emit` makes the instruction from the partitioner's `LocalOp`, whose operands are in the tilings of the assignment.
    A form that communicates has `exchanged`: it returns the time of that under an assignment (see `cost.machine`),
    infinity if the form does not support it. Only such forms may divide permutation factors, and reduction factors
    without a monoid.
    """

    emit: Callable[[Any], Instruction]
    exchanged: Exchanged | None = None


@dataclass(frozen=True, slots=True)
class OpSharding:
    """One use of an op by one of its sharding rules, before an `Assignment` divides its factors.

    `form` is the op's local form, if it needs one. The `partial_operands`, and therefore the results, are partial over
    `partial_digits`. With a `device` the operands are brought to that device, and only its result counts.
    """

    use: OpUse
    devices: int
    machine: Machine
    form: LocalForm | None
    rule: ShardingRule
    order: Order
    partial_digits: Digits = ()
    partial_operands: frozenset[int] = frozenset()
    device: int | None = None

    @property
    def call(self) -> OpCall[Any]:
        return self.use.call

    def attributes_as(self, kind: type[A]) -> A:
        """Returns the attributes of the op as this class. Raises InternalError if they have another class."""
        attributes = self.call.attributes
        if not isinstance(attributes, kind):
            raise InternalError(f"{self.use.op.opcode} has {type(attributes).__name__}, not {kind.__name__}")
        return attributes

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return self.use.shapes

    @property
    def tilings(self) -> tuple[Tiling, ...]:
        return self.use.tilings

    @property
    def free(self) -> frozenset[int]:
        return self.use.free

    @property
    def view(self) -> bool:
        """Whether the op is a view, which costs no time."""
        return self.use.op.is_view

    @property
    def exchanged(self) -> Exchanged | None:
        """The cost function of the op's local form, if it communicates."""
        return self.form.exchanged if self.form is not None else None

    @property
    def manual(self) -> Digits:
        """The digits by which the program itself divides work around this op."""
        return next((t.manual for t in self.tilings if t.manual), ())

    def plan(self, source: Tiling, target: Tiling, shape: Shape) -> Plan:
        """Plans the resharding of an array of this (global) shape from one tiling to another."""
        size = shape.element.byte_size
        return plan_reshard(source, target, shape.dims, self.devices, size=size, machine=self.machine)

    def rounds(self, digits: Digits) -> Transfer:
        """Returns the cost of a collective-permute along these digits."""
        return self.machine.collective("collective-permute", digits, self.order)

    def divisible(self, factor: int) -> bool:
        """Whether devices can work on parts of a factor."""
        kind = self.rule.factors[factor].kind
        return self.independent(factor) or (self.exchanged is not None and kind is not FactorKind.REPLICATE)

    def independent(self, factor: int) -> bool:
        """Whether devices can work on parts of a factor without the op's local form exchanging data."""
        return is_independent(self.rule, factor)

    def tiling(self, value: int, assignment: Assignment) -> Tiling:
        """Returns the tiling of one value (operands first) under an assignment, without the unreduced digits of
        results.
        """
        factors = self.rule.values()[value]
        if self.device is not None:
            return Tiling(((),) * len(factors), device=self.device)
        dims = tuple(dim_digits(f, assignment, self.rule) for f in factors)
        partial = self.partial_digits if value in self.partial_operands else ()
        return Tiling(dims, partial, self.order if any(dims) or partial or self.manual else None, self.manual)

    def reduced(self, assignment: Assignment) -> Digits:
        """Returns the digits over which results are partial."""
        if self.rule.monoid is None:
            return self.partial_digits
        factors = self.rule.factors
        found = [d for f, part in assignment.items() if factors[f].kind is FactorKind.REDUCTION for d in part]
        return merge(sorted((*found, *self.partial_digits), key=lambda d: -d.stride))


def is_independent(rule: ShardingRule, factor: int) -> bool:
    """Whether devices can work on parts of a factor without exchanging data."""
    kind = rule.factors[factor].kind
    return kind is FactorKind.PASS or (kind is FactorKind.REDUCTION and rule.monoid is not None)


@dataclass(frozen=True, slots=True)
class Choice:
    """The assignment chosen for an op, and the resulting tilings of its operands and results."""

    op: OpSharding
    assignment: Assignment
    operands: tuple[Tiling, ...]
    results: tuple[Tiling, ...]

    @staticmethod
    def of(op: OpSharding, assignment: Assignment) -> Choice:
        tilings = tuple(op.tiling(value, assignment) for value in range(len(op.shapes)))
        count = len(op.rule.operands)
        return Choice(op, assignment, tilings[:count], tilings[count:])


def choose(op: OpSharding) -> Assignment:
    """Returns the cheapest assignment. The empty one, which replicates everything, is always a candidate."""
    if (settled := _settled(op)) is not None:
        return settled
    candidates: dict[tuple[tuple[int, Digits], ...], Assignment] = {}
    for assignment in _candidates(op):
        candidates.setdefault(tuple(sorted(assignment.items())), assignment)
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    return min(candidates.values(), key=lambda a: _rank(op, a))


def choose_rule(
    op: OpSharding, groups: Sequence[frozenset[int]], others: Callable[[], Sequence[ShardingRule]]
) -> tuple[OpSharding, Assignment]:
    """Extends `choose_partial` to alternative rules of the op; calls `others` for them only if need be."""
    if _settled(op) is not None or not (rules := others()):
        return choose_partial(op, groups)
    choices = [choose_partial(variant, groups) for variant in (op, *(replace(op, rule=rule) for rule in rules))]
    return min(choices, key=lambda choice: _rank(*choice))


def choose_partial(op: OpSharding, groups: Sequence[frozenset[int]]) -> tuple[OpSharding, Assignment]:
    """Extends `choose` to partial operands and to operands on one device.

    Partial operands are reduced first, or the op runs on their parts. Operands on one device are sent to the others, or
    the op runs there. Digits may count in the device order of any value. `groups` are those of `Op.additive`.
    """
    variants = [op]
    for group in groups:
        found = dict.fromkeys((op.tilings[n].unreduced, op.tilings[n].order) for n in sorted(group))
        variants += [
            replace(op, partial_digits=digits, partial_operands=group, order=order) for digits, order in found if digits
        ]
    held = () if op.use.op.refuses_values else op.tilings[: len(op.rule.operands)]
    holders = dict.fromkeys(t.device for t in held if t.device is not None)
    if holders and (op.exchanged is None or not op.exchanged(op, {})):  # else the form would use data of other devices
        variants += [replace(op, device=device) for device in holders]
    orders = dict.fromkeys(t.order for t in op.tilings if any(t.dims) and not op.manual)
    variants += [replace(op, order=order) for order in orders if order != op.order]
    if len(variants) == 1:
        return op, choose(op)
    choices = [(variant, choose(variant)) for variant in variants]
    return min(choices, key=lambda choice: _rank(*choice))


def _settled(op: OpSharding) -> Assignment | None:
    """Returns the assignment under which every value keeps its tiling, if there is one without partial results."""
    if op.partial_digits or any(t.unreduced for t in op.tilings):
        return None
    offers: Assignment = {}
    for tiling, factors in zip(op.tilings, op.rule.values(), strict=True):
        offers.update(value_digits(tiling.dims, factors, op.rule))
    if any(op.rule.factors[f].kind is not FactorKind.PASS for f in offers):
        return None
    if any(op.tiling(v, offers) != tiling for v, tiling in enumerate(op.tilings)):
        return None
    used: list[Digits] = []
    for digits in offers.values():
        if any(not disjoint(digits, other) for other in used):
            return None
        used.append(digits)
    return offers if _all_expressible(op.rule, offers) else None


def cost(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time of all that a device receives and computes (see `cost.machine`)."""
    return operand_cost(op, assignment) + result_cost(op, assignment) + work(op, assignment)


def _rank(op: OpSharding, assignment: Assignment) -> tuple[float, float]:
    """Returns the cost, followed for views by the size of tiles: of equally costly assignments the smaller tiles win.
    """
    return cost(op, assignment), _tiles(op, assignment) if op.view else 0.0


def operand_cost(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time to reshard the operands as the assignment needs them."""
    total = 0.0
    for value, (shape, tiling) in enumerate(zip(op.shapes[: len(op.rule.operands)], op.tilings, strict=False)):
        if value not in op.free:
            total += op.plan(tiling, op.tiling(value, assignment), shape).cost
    return total


def result_cost(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time of the local form's exchange, and to reshard the results as they are wanted."""
    total = op.exchanged(op, assignment) if op.exchanged is not None else 0.0
    reduced = op.reduced(assignment)
    for value in range(len(op.rule.operands), len(op.shapes)):
        shape, local = op.shapes[value], op.tiling(value, assignment)
        source = local.partial(reduced, op.order) if reduced and not op.use.stays_partial else local
        total += op.plan(source, op.tilings[value], shape).cost
    return total


def work(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which a device reads, computes and writes."""
    return memory_traffic(op, assignment) + arithmetic(op, assignment)


def memory_traffic(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which a device reads and writes."""
    return 0.0 if op.view else _tiles(op, assignment)


def arithmetic(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which a device computes."""
    if op.view or not op.shapes:
        return 0.0
    points = (-(-f.size // product(assignment.get(i, ()))) for i, f in enumerate(op.rule.factors))
    return op.machine.work(math.prod(points), op.shapes[0].element)


def _tiles(op: OpSharding, assignment: Assignment) -> float:
    total = 0.0
    for value, shape in enumerate(op.shapes):
        if value not in op.free:
            dims = op.tiling(value, assignment).local_dims(shape.dims)
            total += op.machine.memory(shape.element.byte_size * math.prod(dims))
    return total


def _candidates(op: OpSharding) -> Iterator[Assignment]:
    values = op.rule.values()
    offers: list[Assignment] = [
        value_digits(t.dims, f, op.rule) if t.order == op.order else {}
        for t, f in zip(op.tilings, values, strict=True)
    ]
    yield {}
    if not any(offers) or op.device is not None:
        return
    # Results come first, then operands by size: later offers only add digits compatible with earlier ones.
    by_size = sorted(range(len(values)), key=lambda v: (v < len(op.rule.operands), -op.shapes[v].byte_size, v))
    for first in range(len(values)):
        if not offers[first]:
            continue
        alone = legal(op, [offers[first]])
        yield alone
        rest = [offers[v] for v in by_size if v != first]
        yield legal(op, [offers[first], *rest])
        yield legal(op, [offers[first], *reversed(rest)])
        moved = _moved(op, offers[first], legal(op, [offers[first]], op.independent), values[first])
        if moved is not None:
            yield moved


def legal(
    op: OpSharding, offers: Sequence[Assignment], divisible: Callable[[int], bool] | None = None
) -> Assignment:
    """Merges offers in their order, as far as they are disjoint and every value can express the result."""
    return _legal(op.rule, offers, divisible or op.divisible, [op.partial_digits, op.manual])


def compatible_tiling(rule: ShardingRule, value: int, dims: Sequence[Digits], other: int, order: Order) -> Tiling:
    """Returns the tiling of value `other` of an op under which value `value` can keep the digits `dims`."""
    offer = value_digits(dims, rule.values()[value], rule)
    found = _legal(rule, [offer], partial(is_independent, rule), [])
    digits = tuple(dim_digits(f, found, rule) for f in rule.values()[other])
    return Tiling(digits, (), order if any(digits) else None)


def _legal(
    rule: ShardingRule, offers: Sequence[Assignment], divisible: Callable[[int], bool], used: list[Digits]
) -> Assignment:
    """Merges offers; `used` digits are already taken."""
    result: Assignment = {}
    for offer in offers:
        for factor, digits in offer.items():
            if factor in result or not divisible(factor):
                continue
            if any(not disjoint(digits, other) for other in used):
                continue
            result[factor] = digits
            if _all_expressible(rule, result):
                used.append(digits)
            else:
                del result[factor]
    return result


def expressible(rule: ShardingRule, dims: Sequence[Digits], value: int) -> bool:
    """Whether all values of an op can be divided like one of them, whose dimensions have the digits `dims`."""
    return _all_expressible(rule, value_digits(dims, rule.values()[value], rule))


def _all_expressible(rule: ShardingRule, assignment: Assignment) -> bool:
    return all(is_expressible(dim, assignment, rule) for v in rule.values() for dim in v if len(dim) > 1) and all(
        rule.factors[f].size % product(d) == 0 for f, d in assignment.items() if f in rule.compound
    )


def _moved(op: OpSharding, offer: Assignment, legal: Assignment, factors: ValueFactors) -> Assignment | None:
    """Moves the digits that their own factors cannot take to other factors of the same value.

    An all-to-all then moves the digits of a dimension that must be replicated, instead of an all-gather.
    """
    taken = [op.partial_digits, op.manual, *legal.values()]
    unplaced = [d for f, part in offer.items() if f not in legal for d in part
                if all(disjoint((d,), other) for other in taken)]  # fmt: skip
    if not unplaced:
        return None
    result: Assignment = dict(legal)
    candidates = [f for dim in factors for f in dim if op.rule.factors[f].kind is FactorKind.PASS]
    candidates.sort(key=lambda f: -op.rule.factors[f].size)
    for digit in unplaced:
        for factor in candidates:
            trial = result | {factor: merge((*(result.get(factor) or ()), digit))}
            if op.rule.factors[factor].size % product(trial[factor]) == 0 and _all_expressible(op.rule, trial):
                result = trial
                break
    return result if result != legal else None
