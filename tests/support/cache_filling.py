"""Functions that processes of tests of the cache on disk run. Spawned processes can import them by name."""

from __future__ import annotations

import resource
from pathlib import Path

from hloom.ir import disk_cache as cache

CODE = b"object code" * 100


def fill(place: Path) -> bool:
    """Returns whether 50 entries of a cache in `place` are what was asked for."""
    return all(cache.cached((str(n),), lambda: CODE, place) == CODE for n in range(50))


def fill_a_full_disk(place: Path) -> bool:
    """Fills a cache with files that end in the middle: what a disk without space does to them."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    return fill(place)
