"""Rejects values that do not fit into memory before they are allocated, and loops that do not end for a while."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from ...ir.diagnostics import fail
from ...ir.types.shape import Shape

LARGEST_RANK = 64  # numpy's
LARGEST_COUNT = 2**63 // 16 - 1
MOST_DEVICES = 1 << 16
_ADDRESSES = 1 << 47
_UNASKED = 1 << 20  # bytes that are written in the time of asking the kernel for what is left


def too_large(shape: Shape) -> str | None:
    """Returns why numpy cannot hold an array of this shape in this process; None if it can. Tuples are not checked."""
    if shape.rank > LARGEST_RANK:
        return f"an array of {shape.rank} dimensions cannot be evaluated, numpy has at most {LARGEST_RANK}"
    # numpy multiplies the sizes of empty arrays too. The widest type in computations is c128.
    if math.prod(max(1, d) for d in shape.dims) > LARGEST_COUNT:
        return f"{shape.without_layout()} has sizes that numpy cannot count"
    if not shape.is_tuple and shape.byte_size > memory():
        return f"{shape.without_layout()} takes {shape.byte_size:,} bytes, the limit of this process is {memory():,}"
    return None


def check_device_count(devices: int) -> None:
    """Raises CompileError for more devices than one process can run in step."""
    if devices > MOST_DEVICES:
        fail(f"{devices:,} devices cannot be simulated in one process, at most {MOST_DEVICES:,} can")


class TripLimit(Exception):
    """A loop without a known number of trips has made as many as it may."""


_most_trips: ContextVar[int | None] = ContextVar("most_trips", default=None)


_most_memory: ContextVar[int | None] = ContextVar("most_memory", default=None)


@contextmanager
def memory_limit(most: int) -> Generator[None, None, None]:
    """Refuses in this block what exceeds this many bytes of available memory, also where more is left."""
    token = _most_memory.set(most)
    try:
        yield
    finally:
        _most_memory.reset(token)


@contextmanager
def trip_limit(most: int) -> Generator[None, None, None]:
    """Ends loops inside of this block that make more trips, but for those whose number is known, by raising TripLimit.
    """
    token = _most_trips.set(most)
    try:
        yield
    finally:
        _most_trips.reset(token)


def most_trips() -> int | None:
    """Returns the limit that is set; None if there is none."""
    return _most_trips.get()


def require_memory(needed: int, what: str) -> None:
    """Raises CompileError if this many bytes exceed the available memory. So little that asking takes longer than using
    it is taken to be there, unless a limit is set.
    """
    most = _most_memory.get()
    if most is None and needed <= _UNASKED:
        return
    left = available() if most is None else min(most, available())
    if needed > left:
        fail(f"{what} take {needed:,} bytes, {left:,} are available")


def _text(path: Path) -> str:
    """Returns the contents of a file of the kernel, empty if there is none."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


@cache
def memory(read: Callable[[Path], str] = _text) -> int:
    """Returns the bytes of memory that this process may use, limited by the machine, its control group and its address
    space. If none is known, returns the size of the address space of the processor. `read` reads files of the kernel.
    """
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        machine = _ADDRESSES
    return min(machine, address_space(), *(limit for limit, _ in _groups(read)))


def available(read: Callable[[Path], str] = _text) -> int:
    """Returns the bytes of memory that this process can still get."""
    free = re.search(r"^MemAvailable:\s*(\d+) kB", read(Path("/proc/meminfo")), re.MULTILINE)
    pages = read(Path("/proc/self/statm")).split()
    taken = int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0
    left = [memory(read), address_space() - taken, *(limit - used for limit, used in _groups(read))]
    return max(0, min(left if free is None else [*left, int(free[1]) << 10]))


def address_space() -> int:
    """Returns the bytes of address space that this process may have (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # not on Windows
        return _ADDRESSES
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return _ADDRESSES if soft == resource.RLIM_INFINITY else soft


def _groups(read: Callable[[Path], str]) -> list[tuple[int, int]]:
    """Returns limit and use, in bytes, of each control group of this process, version 1 or 2. Cached files count as
    free, because the kernel evicts them.
    """
    found: list[tuple[int, int]] = []
    for line in read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = Path("/sys/fs/cgroup", controllers)
        limit, used = _LIMIT_FILES[bool(controllers)]
        # Inside a container the path is the host's, and the container's own group is the root.
        for folder in {root / path.lstrip("/"), root}:
            most, now = read(folder / limit).strip(), read(folder / used).strip()
            cached = re.search(r"^(?:total_)?inactive_file (\d+)", read(folder / "memory.stat"), re.MULTILINE)
            if most.isdigit() and now.isdigit():
                found.append((int(most), int(now) - int(cached[1] if cached else 0)))
    return found


_LIMIT_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
