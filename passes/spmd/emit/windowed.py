"""Windowed einsum: computes a contraction in steps, while an operand or the result travels around a ring of devices.

An operand is not gathered: every step works on the tile at hand, which then moves on to the neighbour. A result is not
reduced and scattered: every step adds its part to the sum that just arrived. The bytes are those of the all-gather or
reduce-scatter; but each step's permute can overlap the next step's work, and no device holds the whole operand (Wang et
al., "Overlap Communication with Dependent Computation via Decomposition", 2023). This is an option of the pass, because
it pays only where devices overlap the two. Assumption: the travelling value is divided evenly.

    all-gather(b), dot(a, b)     ->  n times: dot(a[part], b), b = permute(b); the parts summed or put in place
    reduce-scatter(dot(a, b))    ->  n times: sum = permute(sum) + dot(a[part], b)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.factors.sharding_rule import FactorKind, Monoid
from ....ir.graph.instruction import Instruction
from ....ir.ops.collectives import CollectivePermuteAttributes
from ....ir.sharding.digit import Digits, cut, product, refine
from ....ir.sharding.replica_groups import enumerate_groups, over_digits
from ....ir.sharding.tiling import Tiling
from ....ir.types.element_type import S32
from ...op_sharding.assignment import Assignment, OpSharding
from ...resharding.base.moves import AllGatherMove, ReduceScatterMove
from .emitter import LocalValue
from .local_op import LocalOp, masked

_MOST_STEPS = 32  # a longer ring makes a long program of small steps


@dataclass(frozen=True, slots=True)
class Ring:
    """`digits` number the devices of a ring. Each step works on one part of `factor`, and `value` travels.

    `value` is an operand, or the result if it is not less than the number of operands.
    """

    value: int
    factor: int
    digits: Digits


def find_ring(op: OpSharding, assignment: Assignment, wanted: Sequence[Tiling], least: int) -> Ring | None:
    """Finds a value of at least `least` bytes to travel: an operand to be gathered, or a result to be reduced and
    scattered.
    """
    if op.rule.monoid is not Monoid.ADD or op.form is not None or op.manual or op.partial_digits:
        return None
    operands = len(op.rule.operands)
    for value in range(operands):
        if ring := _gathered(op, assignment, value, least):
            return ring
    reduced = op.reduced(assignment)
    if not reduced or len(op.rule.results) != 1:
        return None
    source = op.tiling(operands, assignment).partial(reduced, op.order)
    moves = op.plan(source, wanted[0], op.shapes[operands]).moves
    if len(moves) != 1 or not isinstance(move := moves[0], ReduceScatterMove):
        return None
    return _ring(op, assignment, operands, move.dim, move.digits, least)


def _gathered(op: OpSharding, assignment: Assignment, value: int, least: int) -> Ring | None:
    target = op.tiling(value, assignment)
    moves = op.plan(op.tilings[value], target, op.shapes[value]).moves
    if len(moves) != 1 or not isinstance(move := moves[0], AllGatherMove):
        return None
    ring = _ring(op, assignment, value, move.dim, move.digits, least)
    if ring and op.rule.factors[ring.factor].kind is FactorKind.REDUCTION:
        # Devices of the ring sum in different orders, so they must not hold the same part of the result.
        held = [d for dim in op.tiling(len(op.rule.operands), assignment).dims for d in dim]
        cuts = refine([held, ring.digits])
        return ring if set(cut(ring.digits, cuts)) <= set(cut(tuple(held), cuts)) else None
    return ring


def _ring(op: OpSharding, assignment: Assignment, value: int, dim: int, digits: Digits, least: int) -> Ring | None:
    """Returns the ring along one dimension, if the op can be cut there: the factor is not compound, and its parts are
    even.
    """
    factors = op.rule.values()[value][dim]
    if len(factors) != 1 or factors[0] in op.rule.compound:
        return None
    (factor,) = factors
    steps = product(digits)
    size = op.rule.factors[factor].size
    if size % (steps * product(assignment.get(factor, ()))) or not 1 < steps <= _MOST_STEPS:
        return None
    if op.rule.factors[factor].kind not in (FactorKind.PASS, FactorKind.REDUCTION):
        return None
    shape = op.shapes[value]
    held = math.prod(op.tiling(value, assignment).local_dims(shape.dims)) * shape.element.byte_size
    return Ring(value, factor, digits) if held >= least else None


def emit_windowed(op: OpSharding, local: LocalOp, ring: Ring, wanted: Sequence[Tiling]) -> list[LocalValue]:
    """Returns the result of the op. All operands are resharded, except a travelling one, which keeps its tiling."""
    operands = [masked(local, n) for n in range(len(local.operands))]
    if ring.value < len(operands):
        result = _travelling_operand(local, ring, operands)
        tiling, reduced = local.results[0], op.reduced(local.assignment)
        tiling = tiling.partial(reduced, op.order) if reduced else tiling
    else:
        result, tiling = _travelling_result(local, ring, operands), wanted[0]
    return [LocalValue(result, local.instruction.shape.without_layout(), tiling, local.rule.monoid)]


def _travelling_operand(local: LocalOp, ring: Ring, operands: Sequence[LocalValue]) -> Instruction:
    emitter, part = local.emitter, _part_size(local, ring)
    places = [d for d, factors in enumerate(local.rule.results[0]) if ring.factor in factors]
    travelling = operands[ring.value].instruction
    shape = local.local_shape()
    result = emitter.zeros(shape.element, shape.dims)
    for step in range(product(ring.digits)):
        start = _start(local, ring, step, part)
        found = _part(local, ring, operands, start, part, travelling)
        if places:
            indices = [start if d in places else emitter.constant(0, S32) for d in range(shape.rank)]
            result = emitter.add("dynamic-update-slice", (result, found, *indices))
        else:
            result = found if step == 0 else emitter.add("add", (result, found))
        if step + 1 < product(ring.digits):
            travelling = _pass_on(local, ring, travelling)
    return result


def _travelling_result(local: LocalOp, ring: Ring, operands: Sequence[LocalValue]) -> Instruction:
    part = _part_size(local, ring)
    result: Instruction | None = None
    for step in range(product(ring.digits)):
        # The sum for a device starts at its neighbour and arrives with the last step.
        start = _start(local, ring, step + 1, part)
        found = _part(local, ring, operands, start, part, None)
        result = found if result is None else local.emitter.add("add", (_pass_on(local, ring, result), found))
    assert result is not None
    return result


def _part_size(local: LocalOp, ring: Ring) -> int:
    """Returns the number of elements of the factor in one step."""
    size = local.rule.factors[ring.factor].size
    return size // product(local.assignment.get(ring.factor, ())) // product(ring.digits)


def _start(local: LocalOp, ring: Ring, step: int, part: int) -> Instruction:
    """Returns where the part of a step begins: that of the device `step` places further along the ring."""
    emitter = local.emitter
    place = emitter.coordinate(ring.digits)
    if step:
        place = emitter.shared("add", (place, emitter.constant(step, S32)))
        place = emitter.shared("remainder", (place, emitter.constant(product(ring.digits), S32)))
    return emitter.shared("multiply", (place, emitter.constant(part, S32)))


def _part(
    local: LocalOp, ring: Ring, operands: Sequence[LocalValue], start: Instruction, part: int,
    travelling: Instruction | None,
) -> Instruction:
    """Emits the op on one part of the factor."""
    given: list[Instruction] = []
    for number, value in enumerate(operands):
        if number == ring.value and travelling is not None:
            given.append(travelling)
            continue
        dims = [d for d, factors in enumerate(local.rule.operands[number]) if ring.factor in factors]
        sizes = tuple(part if d in dims else n for d, n in enumerate(value.instruction.shape.dims))
        array = value.instruction
        given.append(local.emitter.dynamic_slice(array, dict.fromkeys(dims, start), sizes) if dims else array)
    places = local.rule.results[0]
    dims = tuple(part if ring.factor in f else n for f, n in zip(places, local.local_shape().dims, strict=True))
    return local.emit(given, local.local_shape().with_dims(dims))


def _pass_on(local: LocalOp, ring: Ring, value: Instruction) -> Instruction:
    """Receives the value of the next device along the ring."""
    devices, channels = local.resharder.channels.devices, local.resharder.channels
    groups = enumerate_groups(over_digits(devices, ring.digits, local.emitter.order), devices)
    pairs = sorted((group[n], group[n - 1]) for group in groups for n in range(len(group)))
    attributes = CollectivePermuteAttributes(source_target_pairs=tuple(pairs), channel_id=channels.next())
    return local.emitter.add("collective-permute", (value,), attributes, cause={"hloom.cause": f"windowed {local.why}"})
