"""Finds annotations that imply all others: propagation gives the same shardings without those.

First annotations are added, round by round: some of the first values whose shardings propagation does not find from the
annotations so far. Then each added one is left out again if the others imply it; several are tried at once. What stays
is a set of which none can be left out. Another such set may be smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ..ir.checked_call import checked
from ..ir.diagnostics import Diagnostics
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, clone_module
from ..ir.sharding.sharding import leaf_shardings
from ..ir.sharding.tiling import Tiling
from ..ir.tools.spmd import is_region_boundary, require_undivided
from ..passes.base import PassContext, run_pipeline
from ..passes.pipelines import PROPAGATE
from .columns import columns

Names = frozenset[str]

_TOGETHER = 8  # annotations that are left out at once
_ADDED = 4  # of so many values that need an annotation, one gets it in each round


@dataclass(frozen=True, slots=True)
class MinimalAnnotations:
    """The annotated `values` that suffice, in order: names and annotations. `count` is the number of all annotations,
    `tries` that of propagations.
    """

    values: tuple[tuple[str, str], ...]
    count: int
    tries: int

    def text(self) -> str:
        """Returns a table of the values, and how many of all annotations they are."""
        table = columns([("value", "annotation"), *self.values], [False, False]) + "\n\n" if self.values else ""
        return f"{table}{len(self.values)} of {self.count} annotations imply the others"


@checked
def minimal_annotations(
    module: Module, context: PassContext | None = None, tell: Callable[[str], object] = str
) -> MinimalAnnotations:
    """Returns annotations of a program that imply all shardings; `tell` is called with how far the search is. Raises
    CompileError if it cannot be propagated.
    """
    require_undivided(module, "propagation")
    search = _Search(module, context or PassContext(), tell)
    chosen = search.pruned(search.sufficient())
    entry = f"{module.entry.name}/"
    values = tuple((n.removeprefix(entry), a) for n, a in search.annotations.items() if n in chosen)
    return MinimalAnnotations(values, len(search.annotations), search.tries)


class _Search:
    """The `annotations` by the names of their values, and the `wanted` tilings of all values."""

    def __init__(self, module: Module, context: PassContext, tell: Callable[[str], object]) -> None:
        self.module, self.tries, self.tell = module, 0, tell
        annotated = [i for c in module for i in c if i.annotation is not None]
        self.annotations = {_name(i): str(i.annotation) for i in annotated}
        borders = [i for c in module for i in c if is_region_boundary(i)]
        ends = {*borders, *(o for border in borders for o in border.operands)}  # say what the region is
        self.fixed = frozenset(_name(i) for i in annotated if i in ends)
        whole = clone_module(module)
        run_pipeline(PROPAGATE, whole, context)
        self.context = replace(context, num_devices=whole.num_partitions)
        self.wanted = _tilings(whole)

    def sufficient(self) -> Names:
        """Returns annotations that imply all shardings, perhaps with some to spare."""
        chosen, known = self.fixed, frozenset(self.annotations)
        while missing := self._missing(chosen):
            new = [name for name in missing if name in known and name not in chosen]
            if not new:
                return known  # a wrong one is not annotated itself
            chosen |= frozenset(new[: -(-len(new) // _ADDED)])
            self.tell(f"{len(chosen)} chosen, {len(missing)} values still wrong")
        return chosen

    def pruned(self, chosen: Names) -> Names:
        """Returns annotations none of which the others imply."""
        free = [name for name in reversed(self.annotations) if name in chosen - self.fixed]
        for start in range(0, len(free), _TOGETHER):
            self.tell(f"{start} of {len(free)} tried")
            chosen = self._without(chosen, free[start : start + _TOGETHER])
        return chosen

    def _without(self, chosen: Names, some: Sequence[str]) -> Names:
        """Leaves out what the others imply of some annotations."""
        if not self._missing(chosen.difference(some)):
            return chosen.difference(some)
        if len(some) == 1:
            return chosen
        half = len(some) // 2
        return self._without(self._without(chosen, some[:half]), some[half:])

    def _missing(self, chosen: Names) -> list[str]:
        """Returns the values with wrong shardings under these annotations, in order: those whose operands are right, or
        all if there are no such.
        """
        self.tries += 1
        module = clone_module(self.module)
        for i in (i for c in module for i in c if i.annotation is not None and _name(i) not in chosen):
            i.sharding = i.shardy = None
        order = {_name(i): [_name(o) for o in i.operands] for c in module for i in c}
        run_pipeline(PROPAGATE, module, replace(self.context, diagnostics=Diagnostics(), records=[]))
        found = _tilings(module)
        wrong = {name for name, tilings in self.wanted.items() if found.get(name) != tilings}
        first = [name for name in order if name in wrong and wrong.isdisjoint(order[name])]
        return first + [name for name in order if name in wrong and name not in first] if wrong else []


def _name(i: Instruction) -> str:
    return f"{i.parent.name}/{i.name}" if i.parent is not None else i.name


def _tilings(module: Module) -> dict[str, list[Tiling | None]]:
    """Returns the tilings of the leaves of all values."""
    return {_name(i): list(_leaves(i)) for c in module for i in c}


def _leaves(i: Instruction) -> Iterable[Tiling | None]:
    shapes = list(i.shape.leaves())
    for sharding, shape in zip(leaf_shardings(i.sharding, len(shapes)), shapes, strict=True):
        yield sharding.tiling(shape.rank) if sharding is not None and shape.is_array else None
