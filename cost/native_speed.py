"""The speed of native code on the processor that runs it, by the work of its kernels.

A kernel runs loops over rows and, in a row, over strips of 16 columns (`codegen/native/loops.py`).
`codegen/native/work/times.py` counts what the kernels of a program do; here is how long each takes. A strip that waits
for the chain of its own values costs the links of the chain, any other one its operations. Products cost the work of
their plan. Bytes that caches do not hold come in part while a kernel computes. What a run, a table of kernels, a call
of numpy and a loop cost beside that is of the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from .host import HOST

HIDING = 0.7
"""The share of a kernel's time of computing during which bytes come that caches do not hold. Of nine shares from a
quarter to all, forecasts of the calibration's programs were closest with 0.69 and 0.75 on a Xeon (Sapphire Rapids), by
the sum of three calibrations.
"""

Counts = Mapping[str, float]
"""The numbers of the things that an op does, by their names."""


@dataclass(frozen=True, slots=True)
class NativeSpeed:
    """Seconds of each kind of work of native code, 0 where it costs nothing. It seems to cost nothing, too, where it is
    `unmeasured`: the calibration knew no such work.
    """

    nest: float = 0.0  # the loops of a kernel
    operation: float = 0.0  # on a strip of 16 columns of 32 bits; of an extreme or a conversion several
    division: float = 0.0  # or a square root, of a strip of floats
    remainder: float = 0.0  # or a quotient, of two integers
    move: float = 0.0  # a strip of 32 bits from memory or to it
    chain: float = 0.0  # an operation that the next one of the same row waits for
    uniform: float = 0.0  # an operation on one value for a whole row
    fold: float = 0.0  # the sum of the 16 lanes of a row
    extreme: float = 0.0  # the maximum of the 16 lanes of a row
    turned: float = 0.0  # an element of 32 bits of squares that are turned in registers
    scattered: float = 0.0  # an element that is moved alone
    narrow: float = 0.0  # one of fewer than 32 bits
    crowded: float = 0.0  # a line, one of more than the first cache holds, for they have the same place there
    combined: float = 0.0  # an update of what the row before has just written
    tile: float = 0.0  # a product of matrices by tiles
    tile_multiply: float = 0.0  # a multiply-add, the columns filled up to 16
    tile_element: float = 0.0  # of the left matrix and of the result
    tile_crowded: float = 0.0  # a line that tiles read or write again and that the first cache has no place for
    panel: float = 0.0  # an element of the right matrix
    panel_turned: float = 0.0  # an element of the right matrix if that lies by columns
    blas: float = 0.0  # a product of matrices by BLAS
    blas_multiply: float = 0.0
    blas_element: float = 0.0  # of all three matrices
    vector: float = 0.0  # a product of a matrix and a vector by BLAS
    vector_multiply: float = 0.0
    loop_multiply: float = 0.0  # a multiply-add of plain loops
    copied: float = 0.0  # an element copied to scratch or back
    close: float = 0.0  # a byte that the first cache no longer holds when a kernel uses it, but the second one
    near: float = 0.0  # a byte that the second cache no longer holds when a kernel uses it
    far: float = 0.0  # a byte that no cache holds
    run: float = 0.0  # of a program
    array: float = 0.0  # an operand or a result of the program
    table: float = 0.0  # of kernels, one after the other without Python between them
    held: float = 0.0  # an array that such a table takes from others, or makes for them
    shown: float = 0.0  # a view of its memory that it gives to others
    entry: float = 0.0  # a kernel, as a table makes it ready
    update: float = 0.0  # a slice that Python puts into an array
    call: float = 0.0  # an op that Python or numpy computes
    called: float = 0.0  # a byte of such an op
    window: float = 0.0  # a position in the windows of such an op
    windowed: float = 0.0  # an element at such a position
    cold: float = 0.0  # a microsecond of the work of Python whose code and objects the second cache no longer holds
    displaced: float = 0.0  # a microsecond of the work of Python that other work of Python comes between
    loop: float = 0.0  # a loop in machine code, from its start to its end
    state: float = 0.0  # an array that such a loop takes and gives
    placed: float = 0.0  # an array that its tables take, make or show
    taken: float = 0.0  # a byte of arrays that Python copies: state that a loop changes, and updates
    trip: float = 0.0  # of a loop in machine code
    second_cache: float = HOST.near_cache  # its bytes, with which work was counted
    unmeasured: tuple[str, ...] = ()

    def seconds(self, counts: Counts) -> float:
        """Returns the time of an op with these counts."""
        computing = waiting = rest = 0.0
        apart = self.operation * counts.get(APART, 0.0)
        for name, count in counts.items():
            if name == APART:
                continue
            seconds = getattr(self, name) * count
            if name in WAITING:
                waiting += seconds
            elif name in COMPUTING:
                computing += seconds
            else:
                rest += seconds
        return rest + computing + max(waiting - HIDING * (computing - apart), 0.0)

    def of_run(self, ops: Iterable[tuple[float, Counts]]) -> float:
        """Returns the time of ops, each with its number of executions."""
        return sum(times * self.seconds(counts) for times, counts in ops)

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return any(getattr(self, name) for name in NATIVE)

    def not_measured(self, ops: Iterable[tuple[float, Counts]]) -> tuple[str, ...]:
        """Returns the kinds of this work that seem to cost nothing, since they are `unmeasured`."""
        done = {name for _, counts in ops for name, count in counts.items() if count}
        return tuple(name for name in self.unmeasured if name in done)


APART = "apart"
"""Among the counts of an op: its operations that take place while no bytes come, since they follow in a row after more
than a processor looks ahead.
"""
UNKNOWN = NativeSpeed()
NATIVE = tuple(field.name for field in fields(NativeSpeed) if field.name not in ("second_cache", "unmeasured"))
"""The names of all kinds of work."""
FORMER = ("loop_code", "loop_array", "loop_entry", "loop_state")
"""Kinds that older calibrations measured: the code of a loop was made for each run."""
WAITING = ("close", "near", "far")
COMPUTING = frozenset(NATIVE[: NATIVE.index("close")]).difference(
    ("turned", "scattered", "narrow", "crowded", "tile_crowded")
)
"""What kernels do while bytes come. Elements that are moved alone or turned are not read ahead."""
