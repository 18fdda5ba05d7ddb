"""Proves programs equal, and finds the first wrong instruction of those that differ.

It shows for all inputs which results and values equal the original's: those that agree when both run on terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np

from ....ir.checked_call import NotNegative, checked
from ....ir.diagnostics import CompileError
from ....ir.graph.module import Module
from ....ir.graph.op import NotEvaluable
from ....ir.time_limit import TimeLimit, time_limit
from ....ir.tools.placement import Placement, placed_like
from ....ir.types.literal import Array
from ...evaluator import UnpartitionedProgram
from ...global_arrays import join_outputs
from ...simulator import SimulatedProgram
from ..degrees import chance, largest_degree
from ..field import PRIME, UNDEFINED
from ..oracle import Oracle
from ..progress import Progress, Tell
from ..prove import TIMEOUT
from ..prove import prove as proved
from ..readings import read_again
from ..verdict import OnTerms, Origin, Shown, Verdict
from .index import Source
from .origin import Search
from .relate import as_ops, related
from .relation import Relation, RelationKind
from .symbolic import SymbolicKernels

_MOST_RUNS = 4  # whose chances multiply
_SMALL = 1e-6  # a chance that needs no further run


class _Terms:
    """Both programs, ready to run on terms, and the inputs of a run. Raises CompileError or NotEvaluable for programs
    that cannot run on terms.
    """

    def __init__(self, original: Module, local: Module, seed: int) -> None:
        self._seed = seed
        self.oracle = Oracle(np.random.SeedSequence(seed))
        self._kernels = [SymbolicKernels(module, self.oracle) for module in (original, local)]
        self.whole = UnpartitionedProgram(original, self._kernels[0])
        self.divided = SimulatedProgram(local, self._kernels[1])
        self._leaves = [leaf for p in original.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
        self.draw(0)

    def draw(self, number: int) -> None:
        """Draws the inputs and the functions of a run."""
        of_oracle, of_inputs = np.random.SeedSequence((self._seed, 1 + number)).spawn(2)
        self.oracle.begin(of_oracle)
        for kernels in self._kernels:
            kernels.begin()
        generator = np.random.Generator(np.random.PCG64(of_inputs))
        self.inputs = [generator.integers(0, PRIME, leaf.dims, np.uint64) for leaf in self._leaves]

    def expected(self) -> list[Array]:
        """Runs the original."""
        return self.whole.run(self.inputs)

    def known(self, expected: Sequence[Array]) -> list[bool]:
        """Returns, per result of the original, whether inputs determine all its elements: whether it stays the same
        when unknown elements are drawn anew.
        """
        if not self.oracle.has_made_up:
            return [_same(x, x) for x in expected]
        made = deepcopy(self.oracle.made)
        again = self.expected()
        self.oracle.made = made  # as after one run
        return [_same(*both) for both in zip(expected, again, strict=True)]

    def outputs(self, expected: Sequence[Array]) -> list[bool]:
        """Returns, per result, whether all its elements equal the original's."""
        found = self.divided.per_device(self.inputs, poison=True)
        places = enumerate(p for p in self.divided.results if p.shape.is_array)
        return [_same(want, self._joined(found, *place)) for want, place in zip(expected, places, strict=True)]

    def _joined(self, found: Sequence[Sequence[Array]], number: int, place: Placement) -> Array | None:
        """A global result; None where the devices that hold an element disagree."""
        program = self.divided
        with suppress(CompileError):
            return join_outputs([[r[number]] for r in found], [place], program.grid, program.executable.kernels)[0]
        return None


def on_terms(original: Module, local: Module, asked: Sequence[bool], seed: int = 0) -> OnTerms | None:
    """The results that are shown for all inputs; None if the programs cannot run on terms, or if none of those that are
    asked for can be among them.
    """
    degrees = [largest_degree(module, on_terms=True) for module in (original, local)]
    elements = sum(leaf.num_elements for leaf in original.entry.root.shape.leaves() if leaf.is_array)
    if None in degrees:
        return None
    shown, missed = list(asked), 1.0
    try:
        terms = _Terms(original, local, seed)
        for number in range(_MOST_RUNS):
            terms.draw(number)
            expected = terms.expected()
            if not number:
                shown = terms.known(expected)
            if not any(a and b for a, b in zip(asked, shown, strict=True)):
                return None
            shown = [a and b for a, b in zip(shown, terms.outputs(expected), strict=True)]
            missed *= chance(terms.oracle.made, elements, sum(d or 0 for d in degrees))
            if missed <= _SMALL:
                break
    except (CompileError, NotEvaluable):
        return None
    return OnTerms(tuple(shown), missed)


def shown(original: Module, local: Module, seed: int = 0) -> Shown | None:
    """Counts the outputs and values that are shown for all inputs; None if the programs cannot run on terms."""
    try:
        terms = _Terms(original, local, seed)
        found = related(terms.whole, terms.divided, terms.inputs, None)
    except (CompileError, NotEvaluable):
        return None
    results = list(Search(found, terms.divided.results).results())
    right = [r for r in results if isinstance(r, Source) and not (r.array == UNDEFINED).any()]
    values = sum(_is_shown(v.relation) for v in found.values)
    return Shown(len(right), len(results), values, len(found.values))


def _is_shown(relation: Relation) -> bool:
    return relation.kind is not RelationKind.NONE


def _same(want: Array, have: Array | None) -> bool:
    if have is None or want.shape != have.shape:
        return False
    return bool(((want == have) & (want != UNDEFINED)).all())


@checked
def prove(
    original: Module, local: Module, trials: int | None = None, seed: NotNegative = 0, all_inputs: bool = False,
    timeout: float = TIMEOUT, tell: Tell | None = None,
) -> Verdict:  # fmt: skip
    """Whether a program per device, simulated on all devices, computes what the original does, and if not, since which
    of its instructions.

    The padding of inputs is undefined. Outputs are shown to be equal but for a tiny chance, or else they are tested
    only: by as many trials as the decisions of the program need, if `trials` gives no number. `local` may be the work
    of another partitioner: a parameter or result of it that has no sharding lies on the devices as `original` says.
    With `all_inputs` programs in which no trial finds a difference run once more to count the values that are right for
    all inputs, integers and comparisons included. All that takes no longer than about `timeout` seconds: then the
    verdict is undecided, and says what was running. `tell` is called with each part of the proof that begins.

    Raises CompileError for programs that cannot be run, and ValueError for no trials or no time.
    """
    original, local = map(as_ops, (original, local))  # degrees are the ops'
    with time_limit(timeout):
        verdict = proved(original, local, trials, seed, _origin, on_terms, timeout, tell)
        again = partial(proved, trials=trials, seed=seed, on_terms=on_terms, timeout=timeout, tell=tell)
        verdict, read = read_again(original, placed_like(local, original), verdict, seed, again)
        original, local = read.original, read.local
        if not all_inputs or not verdict.agrees:
            return verdict
        progress = Progress(original, timeout, tell)
        progress.begin("the count of values that are right for all inputs")
        try:
            return replace(verdict, shown=shown(original, placed_like(local, original), seed))
        except TimeLimit as limit:
            progress.limit = limit
            return replace(verdict, unfinished=progress.unfinished())


def _origin(
    original: UnpartitionedProgram, local: SimulatedProgram, inputs: Sequence[Array], oracle: Oracle
) -> Origin | None:
    return Search(related(original, local, inputs, oracle), local.results).origin()
