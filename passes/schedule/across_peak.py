"""Finds the cheapest way through a memory peak by a minimum cut: values live on, or are made again after it.

    before:  t = tanh(h)   y = dot(t, w)   ..   d = multiply(e, t)
    after:   t = tanh(h)   y = dot(t, w)   ..   t.1 = tanh(h)   d = multiply(e, t.1)

A value that is read after the peak either lives on, or is made again by its op, for which all operands must be there in
turn. At a price for a byte that lives on, the cheapest choice for all values at once cuts a graph: an edge for each
value, of the price of its bytes, an edge for its op, of its seconds, and edges without end from the op to its operands
(Picard, "Maximal closure of a graph", 1976; PyTorch's AOTAutograd keeps values for its backward pass in this way). So a
value that the program never kept stays in place of several ones that it makes, and a layer is made again from its
input, in as many ops as it takes. A higher price keeps fewer bytes.

Collectives, control flow and effects are not repeated, but gathers are, whose operands are always there. Values
inside of a kernel take no memory, and are made again with those that leave it.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from ...cost.attention import OutsideOfAttention
from ...cost.seconds import Clock
from ...ir.analysis.awaited import passes_on
from ...ir.analysis.lifetimes import RESIDENT
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.op import Role
from ..cleanup.dce import sweep
from .regather import divert, readers_of, repeat
from .roles import can_repeat, roles_of

_SAME = 1e-9  # by which costs differ that are equal
_CLOSE = 0.01  # of the bytes to free, by which more may be freed
_NEAR = 1.02  # times a guess of a price, below which the price is likely to be
_TILT = 0.1  # of the price of a byte, for one that is made at the beginning


@brief
@dataclass(frozen=True, slots=True)
class MadeAgain:
    """Values that are made again, the seconds that this takes, and the bytes that live on, as they are and as they
    count.
    """

    again: frozenset[Instruction]
    seconds: float
    kept: float
    counted: float


@brief
@dataclass(slots=True)
class AcrossPeak:
    """The values of a computation that are read after its memory peak, which is `at` an instruction, with all that they
    are made of: the bytes that each takes if it lives on, and the seconds to make it again, where that is possible. The
    computation runs so many times. `late` are the readers of each value after the peak.
    """

    computation: Computation
    clock: Clock
    at: Instruction
    runs: int
    place: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    late: dict[Instruction, list[Instruction]] = field(default_factory=dict[Instruction, "list[Instruction]"])
    seconds: dict[Instruction, float] = field(default_factory=dict[Instruction, float])
    sizes: dict[Instruction, float] = field(default_factory=dict[Instruction, float])
    network: Any = None  # of the last choice

    def __post_init__(self) -> None:
        self.place = {i: n for n, i in enumerate(self.computation)}
        self.late = late_readers(self.computation, self.at, self.place, self.clock)
        inside, gathers = _inside(self.computation, self.clock), set(roles_of(self.computation, self.clock).gathers)
        stack = list(self.late)
        seen = set(stack)
        while stack:
            value = stack.pop()
            array, is_view = value.shape.is_array, passes_on(value)
            repeats = array and value.op.role is not Role.ELEMENT and (can_repeat(value) or value in gathers)
            self.sizes[value] = math.inf if repeats and (is_view or value in inside) else self._size(value)
            if repeats:
                self.seconds[value] = 0.0 if is_view else self.runs * self.clock.alone(value).total
                new = [o for o in dict.fromkeys(value.operands) if o not in seen and not _is_given(o)]
                seen.update(new)
                stack += new

    def _size(self, value: Instruction) -> float:
        """Returns the bytes that a value takes if it lives on: none if it does anyway."""
        early = [r for r in readers_of(value) if self.place[r] <= self.place[self.at]]
        stays = any(r is self.at or r.op.role in (Role.TUPLE, Role.LOOP) for r in early)
        if stays or value is self.computation.root:
            return 0.0
        return float(value.shape.device_bytes if value.shape.is_array else value.shape.byte_size)

    @property
    def living(self) -> float:
        """The bytes that live on through the peak now."""
        return sum(self.sizes[value] for value in self.late)

    @property
    def most(self) -> float:
        """More seconds than it takes to make all values again."""
        return 2 * sum(self.seconds.values()) or 1.0

    @property
    def nothing(self) -> MadeAgain:
        """The choice of which nothing is made again."""
        return self._made_again(frozenset(), self.late)

    def _made_again(self, again: frozenset[Instruction], wanted: Iterable[Instruction]) -> MadeAgain:
        kept = [v for v in wanted if v not in again]
        return MadeAgain(again, sum(self.seconds[v] for v in again), sum(self.sizes[v] for v in kept),
                         sum(self._longer(v) * self.sizes[v] for v in kept))  # fmt: skip

    def choice(self, price: float) -> MadeAgain:
        """Returns the cheapest choice at a price in seconds for each byte that lives on."""
        if not self.late:
            return self.nothing
        values, most = list(self.sizes), self.most
        if self.network is None:
            self.network = self._network()
        for number, value in enumerate(values):
            if math.isfinite(self.sizes[value]):
                cost = self._longer(value) * self.sizes[value] * price
                self.network[2 * number][2 * number + 1]["capacity"] = min(cost, most)
        _networkx().algorithms.flow.boykov_kolmogorov(self.network, "all", "nothing", residual=self.network)
        wanted = _reached(self.network)
        again = frozenset(v for n, v in enumerate(values) if v in self.seconds and 2 * n + 1 in wanted)
        return self._made_again(again, [v for n, v in enumerate(values) if 2 * n in wanted])

    def _network(self) -> Any:
        """Returns the graph to cut. For the value of number n, 2n is that it is wanted, 2n+1 that it is made again."""
        graph, most = _networkx().DiGraph(), self.most
        numbers = {value: 2 * number for number, value in enumerate(self.sizes)}
        graph.add_edges_from(("all", numbers[value]) for value in self.late)
        for value, number in numbers.items():
            graph.add_edge(number, number + 1, **({"capacity": most} if math.isfinite(self.sizes[value]) else {}))
            if value in self.seconds:
                graph.add_edge(number + 1, "nothing", capacity=self.seconds[value])
                graph.add_edges_from((number + 1, numbers[o]) for o in value.operands if o in numbers)
            else:
                graph.add_edge(number + 1, "nothing")
        return _networkx().algorithms.flow.build_residual_network(graph, "capacity")

    def without(self, values: Collection[Instruction]) -> AcrossPeak:
        """Returns the same if no one reads some of the values after the peak any more."""
        other = copy(self)
        other.late, other.network = {v: readers for v, readers in self.late.items() if v not in values}, None
        return other

    def _longer(self, value: Instruction) -> float:
        """Returns the factor by which a byte costs more that is made early, so that layers that are alike differ."""
        return 1 + _TILT * (1 - self.place[value] / len(self.place))

    def make(
        self, choice: MadeAgain, copies: Mapping[Instruction, Instruction], barriers: bool, channels: Iterator[int]
    ) -> int:
        """Makes values again in a copy of the computation, just before their first readers after the peak. Returns
        their number. With `barriers`, XLA does not merge them.
        """
        made: dict[Instruction, Instruction] = {}
        chosen = sorted((v for v in self.late if v in choice.again), key=lambda v: self.place[self.late[v][0]])
        computation = copies[self.at].parent
        assert computation is not None
        for value in chosen:
            late = [copies[r] for r in self.late[value]]
            with computation.at(before=late[0]):
                steps = self._steps(value, choice, made)
                inputs = {copies[o] for s in steps for o in s.operands if o not in made and o not in steps}
                behind = _behind_barrier(computation, inputs, late[0], copies[value]) if barriers else {}
                for step in steps:
                    operands = [made[o] if o in made else behind.get(copies[o], copies[o]) for o in step.operands]
                    made[step] = repeat(computation, copies[step], operands, channels)
                divert(computation, copies[value], made[value], late)
        sweep(computation)
        return len(chosen)

    def _steps(self, value: Instruction, choice: MadeAgain, made: Collection[Instruction]) -> list[Instruction]:
        """Returns the instructions that make a value again and are not made yet, in order."""
        found, stack = dict.fromkeys([value] if value not in made else []), [value]
        while stack:
            new = [o for o in stack.pop().operands if o in choice.again and o not in made and o not in found]
            found |= dict.fromkeys(new)
            stack += new
        return sorted(found, key=self.place.__getitem__)


@brief
@dataclass(slots=True)
class AcrossPeaks:
    """The values across a peak in all computations that run then, and the choices that are `known` by price."""

    found: list[AcrossPeak]
    known: dict[float, list[MadeAgain]] = field(default_factory=dict[float, "list[MadeAgain]"])

    @property
    def living(self) -> float:
        """The bytes that live on through the peak now."""
        return sum(one.living for one in self.found)

    def without(self, values: Collection[Instruction]) -> AcrossPeaks:
        """Returns the same if no one reads some of the values after the peak any more."""
        return AcrossPeaks([one.without(values) for one in self.found])

    def to_free(self, excess: float, guess: float = 0.0) -> tuple[float, list[MadeAgain]]:
        """Returns the cheapest choices that free so many bytes, all together, of those that are cheapest at some price,
        or those that free most; before them the price, 0 if nothing can be made again. A `guess` of it saves time.

        Over the price, the cost of a choice is a line. Where the lines of two choices meet, either another one is
        cheaper or none is between them.
        """
        costs = [s for one in self.found for s in one.seconds.values() if s]
        sizes = [s for one in self.found for s in one.sizes.values() if s and math.isfinite(s)]
        self.known.setdefault(0.0, [one.nothing for one in self.found])
        if not costs or not sizes or excess <= 0:
            return 0.0, self.known[0.0]
        highest = 2 * sum(costs) / min(sizes)
        most = sum(c.kept for c in self.known[0.0]) - excess
        for price in sorted((min(guess, highest), min(_NEAR * guess, highest), highest)):
            if not any(_kept(choices) <= most for choices in self.known.values()):
                self._at(price)
        more = max((p for p, choices in self.known.items() if _kept(choices) > most), default=0.0)
        price = less = min((p for p in self.known if p > more), default=highest)
        while _kept(self.known[less]) < most - _CLOSE * excess:
            few, many = self.known[less], self.known[more]
            bytes_less = sum(c.counted for c in many) - sum(c.counted for c in few)
            if bytes_less <= 0:
                break
            price = (sum(c.seconds for c in few) - sum(c.seconds for c in many)) / bytes_less
            if _cost(new := self._at(price), price) >= _cost(few, price) * (1 - _SAME):
                break
            more, less = (more, price) if _kept(new) <= most else (price, less)
        return price, self.known[less]

    def _at(self, price: float) -> list[MadeAgain]:
        """Returns the cheapest choices at a price."""
        if price not in self.known:
            self.known[price] = [one.choice(price) for one in self.found]
        return self.known[price]


def _kept(choices: Sequence[MadeAgain]) -> float:
    return sum(c.kept for c in choices)


def _networkx() -> Any:
    """Returns the library of graphs, which most commands do not load."""
    return importlib.import_module("networkx")


def _cost(choices: Sequence[MadeAgain], price: float) -> float:
    return sum(c.seconds + price * c.counted for c in choices)


def late_readers(
    computation: Computation, peak: Instruction, place: Mapping[Instruction, int], clock: Clock
) -> dict[Instruction, list[Instruction]]:
    """Maps each value that lies in memory at the peak of a computation to its readers after it, in order."""
    inside = _inside(computation, clock)
    found: dict[Instruction, list[Instruction]] = {}
    for value in itertools.islice(computation, place[peak]):
        if not passes_on(value) and value.op.role not in RESIDENT and value not in inside:
            late = [r for r in readers_of(value) if place[r] > place[peak]]
            if late:
                found[value] = sorted(late, key=place.__getitem__)
    return found


def _reached(network: Any) -> set[int | str]:
    """Returns the nodes that a flow could still reach from its source."""
    stack: list[int | str] = ["all"]
    found = set(stack)
    while stack:
        new = [n for n, edge in network[stack.pop()].items() if n not in found and edge["flow"] < edge["capacity"]]
        found.update(new)
        stack += new
    return found


def _is_given(value: Instruction) -> bool:
    """Whether a value is there for the whole run."""
    given = value.operands[0] if value.op.role is Role.ELEMENT else value
    return given.op.role in RESIDENT


def _inside(computation: Computation, clock: Clock) -> frozenset[Instruction]:
    """Returns the values that kernels hand on."""
    kernels = OutsideOfAttention.on(clock.machine)
    return kernels.inside(computation) if kernels is not None else frozenset()


def _behind_barrier(
    computation: Computation, inputs: Collection[Instruction], reader: Instruction, value: Instruction
) -> dict[Instruction, Instruction]:
    """Passes inputs of a value through an opt-barrier that waits for an operand of its reader. Returns the results."""
    held = sorted((v for v in inputs if v.shape.is_array and v.op.role is not Role.CONSTANT), key=lambda v: v.name)
    if not held:
        return {}
    others = [o for o in reader.operands if o.shape.is_array and o not in held and o is not value]
    packed = computation.build("tuple", *held, *others[-1:], like=value)
    barrier = computation.build("opt-barrier", packed, like=value)
    return {v: computation.build("get-tuple-element", barrier, index=n, like=v) for n, v in enumerate(held)}
