"""Tells the versions of packages from their metadata, without importing them."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_USED = ("numpy", "ml_dtypes", "jaxlib", "mpi4py", "openmpi")


def version_of(name: str) -> str | None:
    """Returns the version of a package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def versions() -> str:
    """Returns `hloom 0.1.0 (Python 3.12.1, numpy 2.1.0, ..)`; packages that are not installed are left out."""
    used = [f"{name} {number}" for name in _USED if (number := version_of(name))]
    return f"hloom {version_of('hloom') or 'unknown'} ({', '.join([f'Python {platform.python_version()}', *used])})"
