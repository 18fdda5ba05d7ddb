"""Runs the reference of a check: the unpartitioned program on one device, in its own types and in f64.

Samples are runs in f64 that round at random to a grid (see `retype`). They show the effect of rounding on a result
where the errors of the one run in own types do not suffice, as with a single number that happens to be exact, or with
near ties that rounding decides. Runs that add up sums in other parts (see `regrouped`) show the roundings inside of
these. All of them run only when requested.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property

from ...ir.diagnostics import CompileError
from ...ir.graph.interfaces import floats_of
from ...ir.graph.module import Module
from ...ir.time_limit import TimeLimit, time_limit
from ...ir.types.element_type import ELEMENT_TYPES, ElementType
from ...ir.types.literal import Array
from ..evaluator import UnpartitionedProgram
from ..plan.kernels import NUMPY, KernelProvider
from ..plan.limits import memory
from ..plan.peak import peak_bytes
from .regrouped import Regrouped
from .retype import WIDE, limits_of, retyped

Arrays = Sequence[Array]

FINE_BITS = 26  # of fine samples, beyond the own type: their deviations are 2^-26 of the effect of rounding
_TIMES_LONGER = 50.0  # the limit for a run in f64, in addition to some seconds
_SHARE_OF_MEMORY = 0.6


def widened(arrays: Arrays) -> list[Array]:
    """Converts arrays to the types of a retyped program."""
    wide = {source.numpy: target.numpy for source, target in WIDE.items()}
    return [a.astype(wide.get(a.dtype, a.dtype)) for a in arrays]


def element_types(module: Module) -> set[ElementType]:
    """Returns the types of all elements in a module."""
    instructions = (instruction for computation in module for instruction in computation)
    return {leaf.element for instruction in instructions for leaf in instruction.shape.leaves()}


def float_types(module: Module) -> set[str]:
    """Returns the names of all float and complex types in a module."""
    return {element.name for element in element_types(module) if element in WIDE}


class Reference:
    """Runs one program on one set of inputs. `own` holds its results in its own types. A run in f64 may take some
    `seconds` and fifty times as long as this one.

    Raises CompileError if the program cannot be run.
    """

    def __init__(self, program: UnpartitionedProgram, inputs: Arrays, seconds: float = 30.0) -> None:
        self.program = program.module
        self.inputs = inputs
        self.types = float_types(self.program)
        start = time.monotonic()
        self.own: list[Array] = program.run(inputs)
        self._seconds = seconds + _TIMES_LONGER * (time.monotonic() - start)
        self._samples: dict[tuple[int, int], list[Array]] = {}
        self._regrouped: dict[tuple[bool, int], list[Array] | None] = {}
        self.why_not_wide = ""

    @property
    def coarsest(self) -> float:
        """The largest unit of rounding of the floats in the program."""
        types = (ELEMENT_TYPES[name].numpy for name in self.types)
        return max(float(limits_of(t).eps) for t in types if t is not None)

    @cached_property
    def keeps_own_types(self) -> bool:
        """Whether an op computes with floats in their own types even where the program runs in f64."""
        return any(
            floats_of(i.op).reads_format(i.call)
            and any(leaf.element in WIDE for o in i.operands for leaf in o.shape.leaves())
            for computation in self.program
            for i in computation
        )

    @property
    def is_wide(self) -> bool:
        """Whether the program already computes in f64, or has no floats, so that it is its own reference."""
        return self.types <= {"f64", "c128"}

    @cached_property
    def wide(self) -> list[Array] | None:
        """The results in f64; None if memory or time do not suffice, and then `why_not_wide` says so."""
        if self.is_wide:
            return self.own
        found, self.why_not_wide = self._run(retyped(self.program), widened(self.inputs), NUMPY)
        return found

    def give_up(self, reason: str) -> None:
        """Gives up f64, because the partitioned program cannot run in it."""
        self.__dict__["wide"], self.why_not_wide = None, reason

    def sample(self, bits: int, seed: int) -> list[Array] | None:
        """Returns the results in f64, each float rounded at random to this many bits more than its type has."""
        key = (bits, seed)
        if key not in self._samples:
            found, _ = self._run(retyped(self.program, grid=bits, seed=seed), widened(self.inputs), NUMPY)
            if found is None:
                return None
            self._samples[key] = found
        return self._samples[key]

    def regrouped(self, seed: int, in_f64: bool) -> list[Array] | None:
        """Returns the results where sums are added up in other parts, in the program's own types or in f64; None if the
        program has no sum of floats, or if memory or time do not suffice.
        """
        key = (in_f64 and not self.is_wide, seed)
        if key not in self._regrouped:
            wide, kernels = key[0], Regrouped(seed)
            program, inputs = (retyped(self.program), widened(self.inputs)) if wide else (self.program, self.inputs)
            found, _ = self._run(program, inputs, kernels)
            self._regrouped[key] = found if kernels.count else None
        return self._regrouped[key]

    def _run(self, module: Module, inputs: Arrays, kernels: KernelProvider) -> tuple[list[Array] | None, str]:
        """Returns the results of a form of the program, or why there are none."""
        program = UnpartitionedProgram(module, kernels)
        needed = peak_bytes(program.executable.plan)
        if needed > _SHARE_OF_MEMORY * memory():
            return None, f"it would take about {needed:,} bytes"
        try:
            with time_limit(self._seconds):
                return program.run(inputs), ""
        except TimeLimit:
            return None, f"it takes more than {self._seconds:.0f} s"
        except CompileError as error:
            return None, error.diagnostics[0].message
