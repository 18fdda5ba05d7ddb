"""The usual shardings of a training step, as far as a model has them: data parallel, fully sharded, tensor parallel.

Small integer programs divide by one axis of the mesh after the other, the best way with all weights whole (`data`),
with weights whole and the optimizer's other state divided (`zero`), with all of them divided (`sharded`), and with
those of products divided and none moved along the axis (`tensor`): products then divide as their weights do. The
sequence between products, heads and experts are divided as costs least; and once more with partial sums of products
made whole at once (`WHOLE_SUMS`), as in Megatron-LM: an all-reduce in pieces may hide where the two collectives around
a divided sequence do not, which the model does not know.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...cost.work import is_contraction
from ..resharding.table import WHOLE
from .choice_costs import ChoiceCosts
from .descent import whole_where_equal
from .model import Choice
from .program import Allowed, Still, solve

ALWAYS = ("all data parallel", "all sharded")  # the names of those that are candidates whatever they take
WHOLE_SUMS = ", whole sums"  # ends the names of those in which no value between products is divided by a tensor axis
USUAL_STATE = "state as usual"  # the name of a proposal that divides the state as the best of the others does
_SECONDS = 5.0  # of an integer program on one axis
_GAIN = 1e-3  # share of the time from which on another division of the state is taken
_BETTER = 1e-2  # likewise, from which on tensor parallelism comes first
_COUNTER = 8  # bytes of a value by which slices are taken
_FIRST = ("sharded", "data", "zero")  # kinds of the axes beside that of tensor parallelism


@dataclass(eq=False)
class Usual:
    """The usual shardings of a program on a mesh, given the costs of its model."""

    costs: ChoiceCosts
    found: list[tuple[str, Choice]] = field(default_factory=list[tuple[str, Choice]])
    with_whole_sums: list[tuple[str, Choice]] = field(default_factory=list[tuple[str, Choice]])

    @cached_property
    def renewed(self) -> frozenset[int]:
        """The classes of the state that the step renews."""
        clusters, of = self.costs.model.of.clusters, self.costs.model.of.of
        return frozenset(of[clusters.home[leaf][0].number] for leaf in clusters.renewed.values())

    @cached_property
    def weights(self) -> frozenset[int]:
        """The classes of the renewed state that products read, in loops by way of slices of theirs."""
        return frozenset(self._on_the_way)

    @cached_property
    def moving(self) -> frozenset[int]:
        """The classes of weights, and of values made of them alone on the way to products."""
        return self.weights.union(*self._on_the_way.values())

    @cached_property
    def _on_the_way(self) -> dict[int, set[int]]:
        """Maps each weight to the classes of the values that are made of it alone."""
        found = ((number, self._read_by_products(number)) for number in sorted(self.renewed))
        return {number: reached for number, reached in found if reached is not None}

    def _read_by_products(self, number: int) -> set[int] | None:
        """Returns the classes of values that are made of one of the state alone; None if no product reads them."""
        reached, queue, is_read = set[int](), [number], False
        while queue:
            for reader in self._readers[queue.pop()]:
                is_read |= reader in self._products
                if reader in self._of_state and reader not in reached:
                    reached.add(reader)
                    queue.append(reader)
        return reached if is_read else None

    @cached_property
    def _products(self) -> frozenset[int]:
        return frozenset(
            number for number, cluster in enumerate(self.costs.model.of.examples)
            if any(is_contraction(member.relation.instruction) for member in cluster.members)
        )  # fmt: skip

    @cached_property
    def _readers(self) -> dict[int, set[int]]:
        """The classes that read the values of each class."""
        found = {number: set[int]() for number in range(len(self.costs.model.classes))}
        for reads in self.costs.model.of.reads:
            found[reads.stand.cluster].update(reader.stand.cluster for reader in reads.readers)
        return found

    @cached_property
    def _of_state(self) -> frozenset[int]:
        """The classes of values that are made, without products, of the renewed state alone (and of counters)."""
        sources: dict[int, set[int]] = {number: set() for number in range(len(self.costs.model.classes))}
        for reads in self.costs.model.of.reads:
            for reader in reads.readers if reads.size > _COUNTER else ():
                sources[reader.stand.cluster].add(reads.stand.cluster)
        found = {n for n, given in sources.items() if given and n not in self._products} | self.renewed
        while True:
            fewer = {n for n in found if n in self.renewed or sources[n] <= found}
            if fewer == found:
                return frozenset(found - self.renewed)
            found = fewer

    def search(self, seconds: float) -> None:
        """Finds the shardings in about this many seconds: `found`, and then `with_whole_sums`, have their names and
        choices.
        """
        deadline, count = time.monotonic() + seconds, len(self.costs.model.divisions.sizes)
        for name, divides in zip(ALWAYS, (False, True)) if self.renewed else ():
            choice = self._alike(divides)
            if choice is not None:
                self.found.append((name, choice))
        every = [("tensor",) * count]
        for kind in _FIRST if count > 1 else ():
            every += [tuple("tensor" if a == axis else kind for a in range(count)) for axis in reversed(range(count))]
        for sums, found in ((False, self.found), (True, self.with_whole_sums)) if self.weights else ():
            for kinds in every:
                if time.monotonic() > deadline:
                    return
                choice = self._by_axes(kinds, sums)
                if choice is not None and sums:
                    choice = whole_where_equal(self.costs, choice, self.renewed)
                if choice is not None:
                    found.append((" x ".join(kinds) + WHOLE_SUMS * sums, choice))

    def _alike(self, divides: bool) -> Choice | None:
        """Returns the best choice in which all axes divide alike, and all of the state or nothing of it."""
        allowed: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        for number, of_class in enumerate(self.costs.model.classes):
            rows = [row for row, division in enumerate(of_class.divisions) if len(set(division)) == 1]
            if number in self.renewed:
                rows = [r for r in rows if (of_class.divisions[r][0] != WHOLE) is divides] or rows
            allowed[number] = np.array(rows or range(len(of_class.rows)), np.int64)
        return solve(self.costs, allowed, seconds=_SECONDS, relaxes=True).choice

    def _by_axes(self, kinds: tuple[str, ...], sums: bool) -> Choice | None:
        """Returns the choice that divides by one axis after the other, tensor parallelism, perhaps with whole `sums`,
        last, or first where that is clearly better. Then other axes divide the state again if that costs less: the best
        dimension depends on the one for tensor parallelism.
        """
        last = sorted(range(len(kinds)), key=lambda a: kinds[a] == "tensor")
        choice = self._in_turn(last, kinds, sums)
        if choice is None or len(set(kinds)) == 1:
            return choice
        first = self._in_turn([*last[-1:], *last[:-1]], kinds, sums)
        if first is not None and self._seconds(first) < (1 - _BETTER) * self._seconds(choice):
            choice = first
        for axis in (a for a in last if kinds[a] == "sharded"):
            again = self._divided(axis, kinds[axis], choice, free=self.renewed | self.moving)
            if again is not None and self._seconds(again) < (1 - _GAIN) * self._seconds(choice):
                choice = again
        return choice

    def _in_turn(self, axes: Iterable[int], kinds: Sequence[str], sums: bool) -> Choice | None:
        """Returns the choice that divides by these axes in turn; None if one divides nothing."""
        choice: Choice | None = None
        for axis in axes:
            choice = self._divided(axis, kinds[axis], choice, sums)
            if choice is None:
                return None
        return choice

    def _seconds(self, choice: Choice) -> float:
        return self.costs.value(choice).seconds

    def _divided(
        self, axis: int, kind: str, given: Choice | None, sums: bool = False, free: Collection[int] = ()
    ) -> Choice | None:
        """Returns the best choice that differs from a given one in one axis, of the `free` classes if there are any.
        With whole `sums` tensor parallelism scatters none.
        """
        whole = {"data": self.renewed, "zero": self.weights}.get(kind, frozenset[int]())
        divided = {"zero": self.renewed - self.weights, "sharded": self.renewed, "tensor": self.weights}.get(
            kind, frozenset[int]()
        )
        still = Still(axis, self.renewed | self.moving, sums) if kind == "tensor" else None
        rows = self._rows(axis, given, whole, divided)
        if free and given is not None:
            rows = {n: allowed if n in free else np.array([given[n]]) for n, allowed in rows.items()}
        return solve(self.costs, rows, seconds=_SECONDS, still=still, relaxes=True).choice

    def _rows(self, axis: int, given: Choice | None, whole: Collection[int], divided: Collection[int]) -> Allowed:
        """Returns the rows that differ from a choice in one axis alone, of some classes those that are whole or divided
        by it. Without a choice the other axes are idle.
        """
        allowed: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        for number, of_class in enumerate(self.costs.model.classes):
            count = len(self.costs.model.divisions.sizes)
            own = of_class.divisions[given[number]] if given is not None else (WHOLE,) * count
            rows = [
                row for row, division in enumerate(of_class.divisions)
                if all(a == axis or place == own[a] for a, place in enumerate(division))
            ]  # fmt: skip
            if number in whole:
                rows = [r for r in rows if of_class.divisions[r][axis] == WHOLE] or rows
            if number in divided:
                rows = [r for r in rows if of_class.divisions[r][axis] != WHOLE] or rows
            allowed[number] = np.array(rows or range(len(of_class.rows)), np.int64)
        return allowed
