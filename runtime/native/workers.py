"""Runs tables of several devices on all cores.

Machine code does not hold the GIL. Each thread runs the tables of its devices; products then use one thread each, so
that devices do not wait for each other's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache

from ...codegen.native.products.blas import blas
from ...cost.host import HOST
from ..ranks.cores import core_count


def run_all(run: Callable[[int], None], tables: Sequence[int], touched: int) -> None:
    """Runs independent tables, given by their addresses. `touched` are the bytes that they read and write."""
    workers = min(core_count(), len(tables))
    if workers < 2 or touched < HOST.threads:
        for table in tables:
            run(table)
        return
    library = blas()
    with nullcontext() if library is None else library.single_threaded():
        list(_pool().map(run, tables))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(core_count(), "hloom-devices")
