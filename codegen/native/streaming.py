"""Chooses the results of a kernel that bypass the caches, and the operands to prefetch.

A store to a cache line first reads it, unless it is a streaming store, which memcpy uses for large arrays too. That
pays where the array exceeds the cache that survives until the next kernel, and where the loop is bound by memory.
Several such results at once fill the processor's few write-combining buffers before these are complete: then it is very
slow.
"""

from __future__ import annotations

import math

from .loops import LOADS, Access, Do, Kernel, Lane, Nest, Store, Strip

MOST_VALUES = 8  # values computed for each array that a strip moves along; more take longer than memory
ALIGNMENT = 16  # bytes, of a place to which streaming stores write


def streams(kernel: Kernel, nest: Nest, strip: Strip, store: Store, large: int) -> bool:
    """Whether whole strips should use streaming stores, where the buffer is aligned and no operand's. Arrays of `large`
    bytes go past the caches.
    """
    access, size = store.access, store.value.lane.bits // 8
    arrays = len(strip.stores) + sum(node.do in LOADS and node.data.column != 0 for node in strip.nodes)
    return (
        [s for s in strip.stores if _bytes(nest, s.access, s.value.lane) >= large] == [store]
        and store.do is None
        and store.at is None
        and access.column == 1
        and len(strip.nodes) <= MOST_VALUES * arrays
        and all(n * size % ALIGNMENT == 0 for n in (access.offset, *access.strides[:-1]))
        and access.buffer not in loaded(kernel)
    )


def next_row(nest: Nest, strip: Strip, large: int) -> list[Access]:
    """Returns the rows of arrays of `large` bytes to prefetch in the last of several strips: those that the first strip
    loads in the next row. Without this, memory would idle while later strips work on the data of the first.
    """
    strips = [step for step in nest.steps if isinstance(step, Strip)]
    if strip is not strips[-1] or len(strips) == 1 or not nest.rows:
        return []
    loads = [node for node in strips[0].nodes if node.do is Do.LOAD and node.data.column == 1]
    moving = [node for node in loads if node.data.strides[-2]]
    return list(dict.fromkeys(n.data for n in moving if _bytes(nest, n.data, n.lane) >= large))


def _bytes(nest: Nest, access: Access, lane: Lane) -> int:
    """Returns the bytes of an array that a nest walks through."""
    rows = math.prod(n for n, stride in zip(nest.rows, access.strides, strict=False) if stride)
    return rows * nest.columns * lane.bits // 8


def loaded(kernel: Kernel) -> list[int]:
    """Returns the buffers that a kernel reads, in order."""
    steps = [step for nest in kernel.nests for step in nest.steps]
    accesses: list[Access] = [node.data for step in steps for node in step.nodes if node.do in LOADS]
    return sorted({access.buffer for access in accesses})
