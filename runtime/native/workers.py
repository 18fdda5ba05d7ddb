"""Runs tables of several devices on all cores.

Machine code does not hold the GIL. Each thread runs the tables of its devices; products then use one thread each, so
that devices do not wait for each other's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from ...codegen.native.products.blas import blas
from ...cost.host import HOST


def run_all(run: Callable[[int], None], tables: Sequence[int], touched: int) -> None:
    """Runs independent tables, given by their addresses. `touched` are the bytes that they read and write."""
    workers = min(cores(), len(tables))
    if workers < 2 or touched < HOST.threads:
        for table in tables:
            run(table)
        return
    with single_threaded_products():
        list(_pool().map(run, tables))


@cache
def cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on all systems
        return os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "hloom-devices")


@contextmanager
def single_threaded_products() -> Generator[None]:
    found = blas()
    if found is None or found.threads is None:
        yield
        return
    get, set = found.threads
    before = get()
    set(1)
    try:
        yield
    finally:
        set(before)
