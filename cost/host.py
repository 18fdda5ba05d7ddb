"""The figures of the processor that runs programs here. Native code and the runtime choose by them.

They are measured on one core of an AMD EPYC (Zen 4) and only have to order choices; docs/native.md has the tables.
`Machine` describes the devices that a forecast is for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProductCosts:
    """Nanoseconds of the parts of a matrix product on one core."""

    blas_call: float = 90.0
    blas_multiply: float = 0.02  # per multiply-add
    blas_pack: float = 0.25  # per element of the matrices
    loop_entry: float = 5.0  # of plain loops
    loop_multiply: float = 1.0  # per multiply-add
    tile_start: float = 30.0
    tile_multiply: float = 0.018  # per multiply-add
    tile_element: float = 0.05  # per element of the left matrix and the result
    panel_rows: float = 0.1  # per element of a panel that is copied by rows
    panel_columns: float = 0.25  # by columns
    panel_single: float = 1.0  # one by one
    copy_start: float = 20.0
    copy_element: float = 0.3
    copy_scattered: float = 1.0  # more per element, where neighbours do not stay neighbours
    copy_far: float = 0.6  # more per element, of a copy that exceeds the cache


@dataclass(frozen=True, slots=True)
class Host:
    """Thresholds between implementations: bytes, unless a comment says otherwise."""

    cache_line: int = 64
    cache_way: int = 1 << 12  # bytes after which lines of the first cache have the same place ..
    cache_ways: int = 12  # .. which holds this many of them
    near_cache: int = 1 << 20  # the second cache of a core ..
    second_ways: int = 16  # .. of whose lines this many have the same place
    cached_elements: int = 1 << 16  # of a copy that stays in the cache
    sums_at_once: int = 8  # vectors: two begin in a cycle to be multiplied and added, and are done four cycles later
    streamed: int = 1 << 24  # arrays of this size go past the caches: half of the last cache of a cluster of cores
    strided_columns: int = 64  # columns whose cache lines a strided access keeps until the next row
    panel_rows: int = 512  # rows of a panel of the right matrix that stays in the second cache
    left_rows: int = 1020  # rows of the left matrix that stay in the third cache
    copied_rows: int = 240  # the same of copies of its rows, in the second cache
    combined_block: int = 1 << 18  # combined at a time by an all-reduce, so that intermediate results stay in the cache
    direct_reduction: int = 1 << 15  # larger reductions are divided among the ranks of a group
    stacked_elements: int = 1 << 13  # of an operand, up to which devices call a numpy kernel together
    piece: int = 1 << 20  # touched by the steps of a table between looks at other work: a tenth of a millisecond
    pause: int = 1 << 25  # touched by trips of a loop between looks at the time: a few milliseconds
    trip: int = 4096  # fixed cost of a trip, expressed in bytes
    threads: int = 1 << 20  # touched by tables, below which starting threads takes longer
    saved_per_byte: float = 0.12e-9  # seconds that native code saves per byte that an unfused op reads or writes
    saved_per_run: float = 5e-6  # seconds that it saves of each execution of an op
    compiling: float = 0.4e-3  # seconds to fuse and compile an op of the text
    scheduling: float = 0.7e-3  # seconds to schedule an instruction of the text
    scheduled_share: float = 0.3  # share of the exposed communication that a schedule is expected to save
    products: ProductCosts = ProductCosts()

    def excess(self, lines: int, stride: int) -> float:
        """Returns the cache lines at a stride in bytes for which the first cache has no place, relative to its places
        for them; 0 if all fit.
        """
        if abs(stride) < self.cache_line:
            return 0.0
        places = self.cache_ways * (self.cache_way // max(math.gcd(stride, self.cache_way), self.cache_line))
        return max(lines / places - 1, 0.0)


HOST = Host()


def second_cache() -> int:
    """Returns the bytes of the second cache of a core here, as Linux tells them; elsewhere those of `HOST`."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
    except OSError:
        return HOST.near_cache
    return int(text[:-1]) << 10 if text.endswith("K") and text[:-1].isdigit() else HOST.near_cache
