"""The places of the ops of a computation, for passes that look for ops which most programs do not have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain

from .attributes import called_fields
from .instruction import Instruction
from .op import AnyOp, Role


class OpPlaces:
    """The instructions of a computation by their ops, until its next edit."""

    __slots__ = ("_nodes", "_places")

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self._nodes = list(instructions)
        places: dict[AnyOp, list[int]] = defaultdict(list)
        for place, instruction in enumerate(self._nodes):
            places[instruction.op].append(place)
        self._places = places

    def having(self, test: Callable[[AnyOp], object]) -> list[Instruction]:
        """Returns the instructions, in order, whose op passes a test, which is asked once per op."""
        passing = [places for op, places in self._places.items() if test(op)]
        places = passing[0] if len(passing) == 1 else sorted(chain.from_iterable(passing))
        return [self._nodes[place] for place in places]


def is_parameter(op: AnyOp) -> bool:
    """Whether the uses of an op are parameters."""
    return op.role is Role.PARAMETER


def is_collective(op: AnyOp) -> bool:
    """Whether the uses of an op are collectives."""
    return op.is_collective


def may_call(op: AnyOp) -> bool:
    """Whether uses of an op may call computations."""
    return bool(called_fields(op.attributes))
