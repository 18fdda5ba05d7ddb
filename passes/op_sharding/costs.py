"""The costs of an assignment: times on the machine to reshard, exchange, read, compute and write."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...cost.memory_traffic import traffic
from ...ir.sharding.digit import Digits, complement, product
from ...ir.types.shape import Shape
from ..resharding.base.moves import ReshardPlan
from .assignment import Assignment, OpSharding


def cost(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time of all that a device receives and computes (see `cost.machine`)."""
    return operand_cost(op, assignment) + result_cost(op, assignment) + work(op, assignment)


def operand_cost(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time to reshard the operands as the assignment needs them."""
    return sum(plan.cost for plan, _ in _operand_plans(op, assignment))


def result_cost(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time of the local form's exchange, and to reshard the results as they are wanted.

    A later op reads what stays partial, which is larger.
    """
    total = op.exchanged(op, assignment) if op.exchanged is not None else 0.0
    if op.use.stays_partial and op.reduced(assignment):
        total += sum(_read_later(op, assignment, value) for value in range(len(op.rule.operands), len(op.shapes)))
    return total + sum(plan.cost for plan, _ in _result_plans(op, assignment))


def _read_later(op: OpSharding, assignment: Assignment, value: int) -> float:
    """Returns the time in which the next op reads more than if a result were as it is wanted."""
    shape, memory = op.shapes[value], op.machine.memory
    local, wanted = (t.local_shape(shape).byte_size for t in (op.tiling(value, assignment), op.tilings[value]))
    return memory(local) - memory(wanted)


def received_bytes(op: OpSharding, assignment: Assignment) -> float:
    """Returns the bytes that a device receives to reshard the operands and the results, without a local form's own."""
    plans = (*_operand_plans(op, assignment), *_result_plans(op, assignment))
    return sum(plan.received * shape.element.byte_size for plan, shape in plans)


def _operand_plans(op: OpSharding, assignment: Assignment) -> Iterator[tuple[ReshardPlan, Shape]]:
    for value, (shape, tiling) in enumerate(zip(op.shapes[: len(op.rule.operands)], op.tilings, strict=False)):
        if value not in op.free:
            yield op.plan(tiling, op.tiling(value, assignment), shape), shape


def _result_plans(op: OpSharding, assignment: Assignment) -> Iterator[tuple[ReshardPlan, Shape]]:
    reduced = op.reduced(assignment)
    for value in range(len(op.rule.operands), len(op.shapes)):
        shape, local = op.shapes[value], op.tiling(value, assignment)
        source = local.partial(reduced, op.order) if reduced and not op.use.stays_partial else local
        yield op.plan(source, op.tilings[value], shape), shape


def work(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which a device reads, computes and writes."""
    return memory_traffic(op, assignment) + arithmetic(op, assignment)


def memory_traffic(op: OpSharding, assignment: Assignment, untouched: frozenset[int] = frozenset()) -> float:
    """Returns the time in which a device reads and writes, without that for the `untouched` values."""
    return 0.0 if op.view else tiles_cost(op, assignment, untouched)


def arithmetic(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which a device computes."""
    if op.view or not op.shapes:
        return 0.0
    count = points(op, assignment) if op.is_contraction else _most_elements(op, assignment)
    return op.machine.work(count, op.shapes[0].element)


def points(op: OpSharding, assignment: Assignment) -> int:
    """Returns the points of the op's index space that a device computes: the multiply-adds of a contraction."""
    return math.prod(-(-f.size // product(assignment.get(i, ()))) for i, f in enumerate(op.rule.factors))


def _most_elements(op: OpSharding, assignment: Assignment) -> int:
    """Returns the elements in the largest tile of an op, or in the largest part of one that it reads or writes. Ops
    that are no contractions compute each element once: a gather does not visit all rows of its table for each row that
    it takes.
    """
    sizes = [-(-f.size // product(assignment.get(i, ()))) for i, f in enumerate(op.rule.factors)]
    return max(_used(op, [math.prod(sizes[f] for dim in factors for f in dim) for factors in op.rule.values()]))


def idle_digits(op: OpSharding, assignment: Assignment) -> Digits:
    """Returns the digits that divide nothing of an op: devices that differ in them compute the same."""
    if op.device is not None:
        return ()
    used = [d for digits in (*assignment.values(), op.manual, op.partial_digits) for d in digits]
    return complement(op.devices, used) or ()


def tiles_cost(op: OpSharding, assignment: Assignment, untouched: frozenset[int] = frozenset()) -> float:
    """Returns the time in which a device reads and writes its tiles, without those of the `untouched` values."""
    sizes = [op.tiling(value, assignment).local_shape(shape).byte_size for value, shape in enumerate(op.shapes)]
    return sum(op.machine.memory(size) for value, size in enumerate(_used(op, sizes))
               if value not in op.free and value not in untouched)  # fmt: skip


def _used(op: OpSharding, sizes: list[int]) -> list[int]:
    """Returns how much an op reads and writes of its tiles; of several results the first stands for all."""
    first = len(op.rule.operands)
    if not op.use.moves and not op.use.kept:
        return sizes
    read, written = traffic(sizes[:first], sum(sizes[first:]), op.use.moves, op.use.kept)
    return [*read, written, *[0] * (len(sizes) - first - 1)]
