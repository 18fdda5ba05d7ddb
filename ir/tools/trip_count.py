"""Static trip counts of loops with a counter from a constant, by a constant, up to a constant.

A fusion may compute the next value of the counter. XLA records the trip count that it inferred in the loop's
`backend_config`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..graph.attributes import ParameterAttributes
from ..graph.computation import Computation
from ..graph.instruction import Instruction
from ..graph.module import Module
from ..graph.op import Role
from ..ops.comparison import CompareAttributes
from ..ops.control import WhileAttributes
from ..ops.conversion import Convert, Copy
from ..ops.elementwise import ADD, SUBTRACT
from ..ops.shaping import Reshape
from ..ops.structure import (
    OptimizationBarrier,
    constant_array,
    element_index,
)
from .control_flow import computations_run, is_control

_UNCHANGED = (Copy, OptimizationBarrier, Convert, Reshape)  # the search for a counter looks through these

UNKNOWN_TRIPS = 2  # assumed for loops without a static trip count: work inside counts more than work outside


def weighed_trips(instruction: Instruction) -> int:
    """Returns the number of times that control flow runs its callees, for choices that do not count seconds."""
    trips = trip_count(instruction) if instruction.op.role is Role.LOOP else 1
    return UNKNOWN_TRIPS if trips is None else max(trips, 1)


def runs_of_computations(
    module: Module, trips_of: Callable[[Instruction], int] = weighed_trips
) -> dict[Computation, int]:  # fmt: skip
    """Returns how often each computation runs that control flow calls, as far as known, given the trips of control
    flow.
    """
    found = {module.entry: 1}
    for computation in reversed(list(module.callees_first())):
        for instruction in computation.having(is_control) if computation in found else ():
            runs = found[computation] * trips_of(instruction)
            for called in dict.fromkeys(instruction.called()):
                found[called] = found.get(called, 0) + runs
    return found


def uncounted_loops(module: Module) -> list[Instruction]:
    """Returns the loops that control flow runs whose trip count is not known."""
    loops = [i for c in computations_run(module) for i in c.having(is_control) if i.op.role is Role.LOOP]
    return [loop for loop in loops if trip_count(loop) is None]


@dataclass(frozen=True, slots=True)
class Counter:
    """The counter of a loop: element `index` of its state goes from `start` by `step` while `direction` holds between
    it and `limit`. `bound` is the constant in the condition that is the limit.
    """

    index: int
    start: int
    limit: int
    step: int
    direction: str
    bound: Instruction

    @property
    def trips(self) -> int | None:
        """The number of trips; None if the counter misses the limit or moves away from it."""
        return _trips(self.start, self.limit, self.step, self.direction)


def trip_count(loop: Instruction) -> int | None:
    """Returns the trip count of a `while` that counts one state element up (LT, LE, NE) or down (GT, GE, NE), or None.

    Looks through tuples, copies and optimization barriers, but not through computed bounds.
    """
    known = re.search(r'"known_trip_count"\s*:\s*\{\s*"n"\s*:\s*"?(\d+)', loop.call.config)
    if known:
        return int(known[1])
    found = counter(loop)
    return None if found is None else found.trips


def counter(loop: Instruction) -> Counter | None:
    """Returns the counter of a `while` if it has one that goes from a constant by a constant to a constant."""
    attributes = loop.attributes_as(WhileAttributes)
    test = _look_through(attributes.condition.root)
    if not isinstance(test.attributes, CompareAttributes):
        return None
    left, right = (_look_through(o) for o in test.operands)
    direction = test.attributes.direction.value
    if _number(left) is not None:
        left, right = right, left
        direction = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
    limit, place = _number(right), _state_index(left)
    if limit is None or place is None:
        return None
    start = _number(_element(loop.operands[0], place))
    step = _step(_element(attributes.body.root, place), place)
    if start is None or not step:
        return None
    return Counter(place, start, limit, step, direction, right)


def _trips(start: int, limit: int, step: int, direction: str) -> int | None:
    if direction in ("LE", "GE"):
        limit += 1 if direction == "LE" else -1
    upwards = direction in ("LT", "LE") or (direction == "NE" and step > 0)
    if (step > 0) != upwards or direction == "EQ":
        return None
    if direction == "NE" and ((limit - start) % step or (limit - start) // step < 0):
        return None  # the counter misses the limit or moves away from it
    return max(0, -((start - limit) // step))


def _look_through(value: Instruction | None) -> Instruction:
    assert value is not None
    while isinstance(value.op, _UNCHANGED) and len(value.operands) == 1:
        if value.operands[0].shape.num_elements != value.shape.num_elements:
            break
        value = value.operands[0]
    return value


def _element(value: Instruction, place: int) -> Instruction | None:
    value = _look_through(value)
    if not value.shape.is_tuple:
        return value if place == 0 else None
    return _look_through(value.operands[place]) if value.op.role is Role.TUPLE else None


def _number(value: Instruction | None) -> int | None:
    array = None if value is None else constant_array(value)
    return int(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "iu" else None


def _state_index(value: Instruction) -> int | None:
    """Returns the index of the loop state element that a value is; 0 if the state is a single array."""
    if value.op.role is Role.PARAMETER:
        return 0
    return element_index(value) if value.operands and value.operands[0].op.role is Role.PARAMETER else None


def _step(value: Instruction | None, place: int) -> int | None:
    """Returns the increment that the body adds to the state element at `place`."""
    value, given = _in_fusion(value)
    if value is None or value.op not in (ADD, SUBTRACT):
        return None
    left, right = (_from_outside(_look_through(o), given) for o in value.operands)
    if left is None or right is None:
        return None
    if value.op is ADD and _number(left) is not None:
        left, right = right, left
    amount = _number(right)
    if amount is None or _state_index(left) != place:
        return None
    return amount if value.op is ADD else -amount


def _in_fusion(value: Instruction | None) -> tuple[Instruction | None, Sequence[Instruction]]:
    """Returns the value in a fusion that is its result or an element of it, and the operands of the fusion; the value
    itself, and none, for any other.
    """
    if value is None:
        return None, ()
    place = element_index(value)
    fusion = value if place is None else value.operands[0]
    if fusion.op.role is not Role.FUSION:
        return value, ()
    root = fusion.called()[0].root
    return _look_through(root) if place is None else _element(root, place), fusion.operands


def _from_outside(value: Instruction, given: Sequence[Instruction]) -> Instruction | None:
    """Returns the operand of a fusion that a parameter stands for there, and a constant itself; None for values that
    the fusion makes. Without a fusion, which has no operands then, it returns the value itself.
    """
    if not given or value.op.role is Role.CONSTANT:
        return value
    if value.op.role is not Role.PARAMETER:
        return None
    return _look_through(given[value.attributes_as(ParameterAttributes).number])
