"""Recognition of sort keys in the graph of a comparator, to sort by numbers instead.

Most comparators compare f(left) with f(right), for one or several functions, and combine the results lexicographically.
Such a comparator is a function of the comparisons of its keys. Evaluating it on all combinations of less, equal and
greater gives a table, from which follow the order of the keys and their directions.

The result is a guess. Callers must check it with the comparator on adjacent elements, because NaN or dependent keys can
invalidate it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..graph.attributes import Callee
from ..graph.clone import clone_instruction
from ..graph.computation import Computation
from ..graph.monoid import maps_scalars
from ..graph.op import Compile, Kernel, NotEvaluable, Role
from ..reached import reached
from ..types.element_type import Kind
from ..types.literal import Array
from .comparison import Compare, CompareAttributes, ComparisonType, holds
from .numerics import total_order_key

if TYPE_CHECKING:
    from ..graph.instruction import Instruction

_MOST_KEYS = 6
_LEFT, _RIGHT = 1, 2


@dataclass(frozen=True, slots=True)
class Ordering:
    """Compiles computations whose floats are other numbers than floats. `keys` gives numbers in the order of these, the
    total one if it is given true.
    """

    compile: Compile
    keys: Callable[[Array, bool], Array]

    def __call__(self, callee: Callee) -> Kernel:
        return self.compile(callee)


@dataclass(frozen=True, slots=True)
class SortKey:
    """A value computed from an element. `total` selects the total order of floats instead of the numeric order."""

    value: Instruction
    total: bool
    descending: bool

    def numbers(self, values: Array, order: Callable[[Array, bool], Array] | None = None) -> Array:
        """Returns numbers of a numpy type whose ascending order is that of the key's values. `order` gives those of
        floats, if these are other numbers.
        """
        if order is not None and self.value.shape.element.is_float:
            values = order(values, self.total)
        elif self.total and self.value.shape.element.is_float:
            values = total_order_key(values)
        if values.dtype.kind == "b":
            values = values.astype(np.uint8)
        if values.dtype.kind not in "iuf":
            values = values.astype(np.float64)
        if not self.descending:
            return values
        return -values if values.dtype.kind == "f" else ~values


class Comparator:
    """An analyzed comparator. `keys` are its probable sort keys, None if there are none. `asked` are the numbers of the
    arrays whose elements it reads.
    """

    def __init__(self, computation: Computation, compile: Compile) -> None:
        self.computation = computation
        self.compile = compile
        self._sides: dict[Instruction, int] = {}  # the elements that an instruction depends on: left, right, both
        self._forms: dict[Instruction, int] = {}  # equal for equal functions of the left and the right element
        self._values: Kernel | None = None
        self._number_forms()
        self._left = {self._forms[i]: i for i, side in self._sides.items() if side == _LEFT}
        self.keys = self._find_keys()
        used = [bool(p.users) or p is computation.root for p in computation.parameters]
        self.asked = [k for k in range(len(used) // 2) if any(used[2 * k : 2 * k + 2])]

    def key_numbers(self, elements: Sequence[Array]) -> list[Array] | None:
        """Computes numbers for each key, the primary one first, from the sorted arrays; None without keys."""
        if self.keys is None:
            return None
        if self._values is None:
            self._values = self.compile(self._of_left())
        values = self._values(*(x for element in elements for x in (element, element)))
        shape, order = elements[0].shape, self.compile.keys if isinstance(self.compile, Ordering) else None
        return [key.numbers(np.broadcast_to(v, shape), order) for key, v in zip(self.keys, values, strict=True)]

    def _of_left(self) -> Computation:
        """Returns the computation of the keys' values from the left elements. Its parameters are the comparator's."""
        keys = self.keys or []
        needed = _needed(keys)
        found = Computation(f"{self.computation.name}_keys")
        copies: dict[Instruction, Instruction] = {}
        for i in self.computation:
            if i.op.role is Role.PARAMETER or i in needed:
                copies[i] = clone_instruction(found, i, [copies[o] for o in i.operands], lambda called: called)
        found.add("tuple", [copies[key.value] for key in keys])
        return found

    def _number_forms(self) -> None:
        numbers: dict[Hashable, int] = {}
        place = {parameter: number for number, parameter in enumerate(self.computation.parameters)}
        for i in self.computation:
            form: Hashable = (i.opcode, i.attributes, i.shape, tuple(self._forms[o] for o in i.operands))
            side = 0
            for operand in i.operands:
                side |= self._sides[operand]
            if i in place:
                form, side = ("element", place[i] // 2), _RIGHT if place[i] % 2 else _LEFT
            self._sides[i] = side
            self._forms[i] = numbers.setdefault(form, len(numbers))

    def _comparison(self, i: Instruction) -> KeyComparison | None:
        """Returns the comparison, or the predicate of one element, that an instruction computes, else None.

        A predicate computed from predicates is None: its operands are the comparisons.
        """
        if self._sides[i] in (_LEFT, _RIGHT):
            made_of_others = i.operands and all(_is_predicate(o) for o in i.operands)
            return KeyComparison(self._forms[i], False) if _is_predicate(i) and not made_of_others else None
        if not isinstance(i.op, Compare) or {self._sides[o] for o in i.operands} != {_LEFT, _RIGHT}:
            return None
        x, y = i.operands
        same = self._forms[x] == self._forms[y] and not x.shape.element.is_complex
        return KeyComparison(self._forms[x], _compare_attributes(i).type is ComparisonType.TOTALORDER) if same else None

    def _find_keys(self) -> list[SortKey] | None:
        comparisons = self._comparisons_of_root()
        if comparisons is None or len(comparisons) > _MOST_KEYS or any(c.form not in self._left for c in comparisons):
            return None
        table = self._table(comparisons)
        order = None if table is None else _lexicographic(table, list(range(len(comparisons))))
        if order is None:
            return None
        keys = [SortKey(self._left[comparisons[c].form], comparisons[c].total, descending) for c, descending in order]
        return keys if all(map(_takes_arrays, _needed(keys))) else None

    def _comparisons_of_root(self) -> list[KeyComparison] | None:
        """Returns all comparisons that the root depends on; None if it depends on an element in another way."""
        found: dict[KeyComparison, None] = {}
        work, seen = [self.computation.root], set["Instruction"]()
        while work:
            i = work.pop()
            if i in seen:
                continue
            seen.add(i)
            comparison = self._comparison(i)
            if comparison is not None:
                found[comparison] = None
            elif self._sides[i] in (_LEFT, _RIGHT) and not _is_predicate(i):
                return None
            else:
                work += i.operands
        return list(found)

    def _table(self, comparisons: list[KeyComparison]) -> Array | None:
        """Evaluates the comparator with one dimension (less, equal, greater) per comparison.

        Returns None if an op has no kernel.
        """
        axes = np.meshgrid(*[np.array([-1, 0, 1])] * len(comparisons), indexing="ij") if comparisons else [np.zeros(())]
        states = dict(zip(comparisons, axes, strict=False))
        values: dict[Instruction, Array] = {}
        for i in self.computation:
            comparison = self._comparison(i)
            if comparison is not None and comparison in states:
                alone = self._sides[i] in (_LEFT, _RIGHT)
                side = self._sides[i if alone else i.operands[0]]
                order = states[comparison] if side == _LEFT else -states[comparison]
                values[i] = order > 0 if alone else holds(_compare_attributes(i).direction, order)
            elif all(o in values for o in i.operands):
                self._apply(i, values)
        root = values.get(self.computation.root)
        return None if root is None else np.broadcast_to(root, axes[0].shape)

    def _apply(self, i: Instruction, values: dict[Instruction, Array]) -> None:
        """Computes an instruction on arrays of any shape, if its op supports that."""
        if _takes_arrays(i) and i.op.role is not Role.PARAMETER:
            try:
                values[i] = i.op.kernel(i.call, self.compile)(*(values[o] for o in i.operands))
            except NotEvaluable:  # reported when the comparator itself runs
                return


class KeyComparison(NamedTuple):
    """The form whose values for both elements are compared, and whether by the total order of floats."""

    form: int
    total: bool


def _needed(keys: Sequence[SortKey]) -> set[Instruction]:
    """Returns the keys' values and everything that they depend on."""
    return set(reached((key.value for key in keys), lambda i: i.operands))


def _takes_arrays(i: Instruction) -> bool:
    """Whether the kernel of an instruction on scalars takes arrays as well, or has no operands."""
    return not i.operands or maps_scalars(i)


def _is_predicate(i: Instruction) -> bool:
    return i.shape.element.kind is Kind.PRED


def _compare_attributes(i: Instruction) -> CompareAttributes:
    assert isinstance(i.attributes, CompareAttributes)
    return i.attributes


def _lexicographic(table: Array, comparisons: list[int]) -> list[tuple[int, bool]] | None:
    """Returns the comparisons from primary to last with their directions (descending or not); None if the table is not
    lexicographic.
    """
    if table.all() or not table.any():
        return []
    for place, comparison in enumerate(comparisons):
        less, equal, greater = np.moveaxis(table, place, 0)
        for descending in (False, True):
            first, last = (greater, less) if descending else (less, greater)
            if first.all() and not last.any():
                rest = _lexicographic(equal, comparisons[:place] + comparisons[place + 1 :])
                if rest is not None:
                    return [(comparison, descending), *rest]
    return None
