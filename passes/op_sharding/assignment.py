"""Assignments: which digits divide each factor of an op.

`costs` has the time that one takes, `choose` the cheapest one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...cost.machine import Machine, Transfer
from ...ir.brief import brief
from ...ir.diagnostics import InternalError
from ...ir.factors.factor_digits import dim_digits, is_expressible, value_digits
from ...ir.factors.sharding_rule import FactorKind, Monoid, ShardingRule
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import memory, started
from ...ir.graph.op import A, Algebra, OpCall
from ...ir.sharding.digit import Digits, disjoint, merge, product
from ...ir.sharding.tiling import Tiling, known_tiling
from ...ir.tools.spmd import Order
from ...ir.types.shape import Shape
from ..resharding.base.moves import ReshardPlan
from ..resharding.plan import plan_reshard
from .use import OpUse

Assignment = dict[int, Digits]
Exchanged = Callable[["OpSharding", Assignment], float]


@brief
@dataclass(frozen=True, slots=True)
class LocalForm:
    """How an op runs on tiles, where the same op on smaller operands does not suffice.

    `emit` makes the instruction from the partitioner's `LocalOp`, whose operands are in the tilings of the assignment.
    A form that communicates has `exchanged`: it returns the time of that under an assignment (see `cost.machine`),
    infinity if the form does not support it. Only such forms may divide permutation factors, and reduction factors
    without a monoid. With `by_use` it emits the same for equal uses, whatever instructions compute the operands, if
    equal ones of these are scalar constants, with equal numbers. A form that need not divide its one result as the
    assignment does `leaves` it in the tiling that this function returns.
    """

    emit: Callable[[Any], Instruction]
    exchanged: Exchanged | None = None
    by_use: bool = False
    leaves: Callable[[OpSharding, Assignment], Tiling] | None = None


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
        return memory(self.use.op).is_view

    @property
    def is_contraction(self) -> bool:
        """Whether the op sums products, so that its arithmetic may cost more than its memory traffic."""
        return self.use.op.algebra_of(self.call) is Algebra.BILINEAR

    @property
    def exchanged(self) -> Exchanged | None:
        """The cost function of the op's local form, if it communicates."""
        return self.form.exchanged if self.form is not None else None

    @property
    def manual(self) -> Digits:
        """The digits by which the program itself divides work around this op."""
        for tiling in self.use.tilings:
            if tiling.manual:
                return tiling.manual
        return ()

    def plan(self, source: Tiling, target: Tiling, shape: Shape) -> ReshardPlan:
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
        leaves = None if self.form is None or value < len(self.rule.operands) else self.form.leaves
        return self.by_rule(value, assignment) if leaves is None else leaves(self, assignment)

    def by_rule(self, value: int, assignment: Assignment) -> Tiling:
        """Returns this tiling wherever a local form leaves the result."""
        factors = self.rule.values()[value]
        if self.device is not None:
            return Tiling(((),) * len(factors), device=self.device)
        rule, manual = self.rule, self.manual
        dims = tuple([dim_digits(f, assignment, rule) for f in factors])
        partial = self.partial_digits if value in self.partial_operands else ()
        if not partial and self.use.tilings[value].unreduced:
            partial = self._started(value, assignment)
        return known_tiling(dims, partial, self.order if any(dims) or partial or manual else None, manual)

    def _started(self, value: int, assignment: Assignment) -> Digits:
        """Returns the digits over which an operand stays partial since the op sums over them, and adds to it."""
        if value >= len(self.rule.operands) or self.rule.monoid is not Monoid.ADD:
            return ()
        own = self.use.tilings[value]
        is_same = own.order == self.order and own.unreduced == self.reduced(assignment)
        return own.unreduced if is_same and value in started(self.use.op, self.call) else ()

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


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The assignment chosen for an op, and the resulting tilings of its operands and results.

    A decision is made once, so choices compare by identity.
    """

    op: OpSharding
    assignment: Assignment
    operands: tuple[Tiling, ...]
    results: tuple[Tiling, ...]

    @staticmethod
    def of(op: OpSharding, assignment: Assignment) -> Choice:
        tilings = tuple(op.tiling(value, assignment) for value in range(len(op.shapes)))
        count = len(op.rule.operands)
        return Choice(op, assignment, tilings[:count], tilings[count:])


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
    return known_tiling(digits, (), order if any(digits) else None)


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
            if all_expressible(rule, result):
                used.append(digits)
            else:
                del result[factor]
    return result


def expressible(rule: ShardingRule, dims: Sequence[Digits], value: int) -> bool:
    """Whether all values of an op can be divided like one of them, whose dimensions have the digits `dims`."""
    return all_expressible(rule, value_digits(dims, rule.values()[value], rule))


def all_expressible(rule: ShardingRule, assignment: Assignment) -> bool:
    compound = rule.compound
    return not compound or (
        all(is_expressible(dim, assignment, rule) for v in rule.values() for dim in v if len(dim) > 1)
        and all(rule.factors[f].size % product(d) == 0 for f, d in assignment.items() if f in compound)
    )
