"""Chooses the accesses of a nest that read or write squares of elements, turned in registers.

Where the columns of a nest stride along memory while its innermost rows move by single elements, as in a transposition,
a strip would gather 16 elements of 16 cache lines, which the next rows need again. Lines at a distance of a power of
two share few places in the caches, and would be gone by then. So 16 rows at a time, all their columns are loaded along
memory, turned, and kept in a small array, from which the rows read (blocks of columns, see `space`, keep it small). The
other way round, rows whose strips would scatter their elements write to such an array, which is turned after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...cost.host import HOST
from .loops import LANES, LOADS, Access, Do, Nest, Strip


@dataclass(frozen=True, slots=True)
class TurnedSquares:
    """The accesses of a nest by turned squares, and the loop of which a square takes several iterations: with all
    iterations of the loops within it they are the 16 rows of a square.
    """

    loop: int = 0
    loads: tuple[Access, ...] = ()
    stores: tuple[Access, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.loads or self.stores)


def turned_in(nest: Nest) -> TurnedSquares:
    """Returns the accesses by turned squares: of unmasked loads and plain stores. A square is read before its rows and
    written after them, so no array is both read and written.
    """
    if nest.columns > HOST.strided_columns:
        return TurnedSquares()
    strips = [step for step in nest.steps if isinstance(step, Strip)]
    loads = [node for strip in strips for node in strip.nodes if node.do in LOADS]
    stores = [store for step in nest.steps for store in step.stores]
    read, written = {node.data.buffer for node in loads}, {store.access.buffer for store in stores}
    plain = {s.access: None for strip in strips for s in strip.stores if s.do is None and s.at is None}
    free: dict[Access, None] = {node.data: None for node in loads if node.do is Do.LOAD and not node.operands}
    runs = {a: along_memory(nest.rows, a.strides[:-1]) for a in (*free, *plain)
            if a.column not in (0, 1) and not (a.buffer in read and a.buffer in written)}  # fmt: skip
    loop = next((run[-1] for run in runs.values() if run), 0)
    found = [access for access, run in runs.items() if run and run[-1] == loop]
    return TurnedSquares(loop, tuple(a for a in found if a in free), tuple(a for a in found if a in plain))


def along_memory(rows: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Returns the loops, the innermost first, whose iterations move along memory by single elements: as many as 16
    iterations take; none where no run is so long.
    """
    found, step = list[int](), 1
    for loop in reversed(range(len(rows))):
        if strides[loop] != step or LANES % step:
            return []
        found.append(loop)
        step *= rows[loop]
        if step >= LANES:
            return found
    return []


def turned(emit: Callable[[str], str], kind: str, rows: list[str]) -> list[str]:
    """Transposes a square of vectors of LLVM type `kind`: pairs of rows exchange blocks of columns, of half the size
    each time. `emit` adds an instruction and returns the name of its result.
    """
    rows, lanes = list(rows), len(rows)
    half = lanes // 2
    while half:
        low = [e if not e & half else lanes + e - half for e in range(lanes)]
        high = [e + half if not e & half else lanes + e for e in range(lanes)]
        for i in (i for i in range(lanes) if not i & half):
            pair = f"{kind} {rows[i]}, {kind} {rows[i + half]}"
            for n, chosen in ((i, low), (i + half, high)):
                indices = ", ".join(f"i32 {e}" for e in chosen)
                rows[n] = emit(f"shufflevector {pair}, <{lanes} x i32> <{indices}>")
        half //= 2
    return rows
