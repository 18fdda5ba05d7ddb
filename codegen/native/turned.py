"""Chooses the loads of a nest that read squares of elements and turn them in registers.

Where the columns of a nest stride along memory while its innermost rows move by single elements, as in a transposition,
a strip would gather 16 elements of 16 cache lines, which the next rows need again. Lines at a distance of a power of
two share few places in the caches, and would be gone by then. So 16 rows at a time, all their columns are loaded along
memory, turned, and kept in a small array, from which the rows read (blocks of columns, see `space`, keep it small).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...cost.host import HOST
from .loops import LANES, Access, Do, Nest, Strip


def turned_loads(nest: Nest) -> tuple[int, list[Access]]:
    """Returns the accesses whose unmasked loads read turned squares, and the loop of which a square takes several
    iterations: with all iterations of the loops within it they are the 16 rows of a square. What the nest itself writes
    is not read ahead.
    """
    if nest.columns > HOST.strided_columns:
        return 0, []
    written = {store.access.buffer for step in nest.steps for store in step.stores}
    nodes = [node for step in nest.steps if isinstance(step, Strip) for node in step.nodes]
    loaded = dict.fromkeys(node.data for node in nodes if node.do is Do.LOAD and not node.operands)
    accesses = [a for a in loaded if a.column not in (0, 1) and a.buffer not in written]
    found = {a: run for a in accesses if (run := along_memory(nest.rows, a.strides[:-1]))}
    loop = next((run[-1] for run in found.values()), 0)
    return loop, [access for access, run in found.items() if run[-1] == loop]


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
