"""The costs of an assignment: times on the machine to reshard, exchange, read, compute and write."""

from __future__ import annotations

import math

from ...ir.sharding.digit import product
from .assignment import Assignment, OpSharding


def cost(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time of all that a device receives and computes (see `cost.machine`)."""
    return operand_cost(op, assignment) + result_cost(op, assignment) + work(op, assignment)


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
    return 0.0 if op.view else tiles_cost(op, assignment)


def arithmetic(op: OpSharding, assignment: Assignment) -> float:
    """Returns the time in which a device computes."""
    if op.view or not op.shapes:
        return 0.0
    return op.machine.work(points(op, assignment), op.shapes[0].element)


def points(op: OpSharding, assignment: Assignment) -> int:
    """Returns the points of the op's index space that a device computes: the multiply-adds of a contraction."""
    return math.prod(-(-f.size // product(assignment.get(i, ()))) for i, f in enumerate(op.rule.factors))


def received_bytes(op: OpSharding, assignment: Assignment) -> float:
    """Returns the bytes that a device receives to reshard the operands and the results, without a local form's own."""
    reduced, total = op.reduced(assignment), 0.0
    for value, shape in enumerate(op.shapes):
        if value not in op.free:
            inside = op.tiling(value, assignment)
            if value < len(op.rule.operands):
                plan = op.plan(op.tilings[value], inside, shape)
            else:
                plan = op.plan(inside.partial(reduced, op.order) if reduced else inside, op.tilings[value], shape)
            total += plan.received * shape.element.byte_size
    return total


def tiles_cost(op: OpSharding, assignment: Assignment) -> float:
    total = 0.0
    for value, shape in enumerate(op.shapes):
        if value not in op.free:
            dims = op.tiling(value, assignment).local_dims(shape.dims)
            total += op.machine.memory(shape.element.byte_size * math.prod(dims))
    return total
