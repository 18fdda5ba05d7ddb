"""Imports packages of the extra `xla` on demand: Hloom runs without them until a feature needs them."""

from __future__ import annotations

import importlib
from typing import Any

from ..ir.diagnostics import fail

OLDEST_JAX = (0, 10)
"""The oldest version of JAX whose public functions Hloom knows."""

INSTALL = "pip install 'hloom[xla]'"


def imported(name: str, purpose: str) -> Any:
    """Imports a module of jax, jaxlib or flatbuffers, by its full name.

    Raises CompileError that names the extra if the package is missing or too old, or has no such module. `purpose`
    completes the message: "jax is needed to .."; jax has no types that pyright's strict mode takes.
    """
    top = name.partition(".")[0]
    try:
        package = importlib.import_module(top)
        version = tuple(int(n) for n in str(getattr(package, "__version__", "0")).split(".")[:2] if n.isdigit())
        if top in ("jax", "jaxlib") and version < OLDEST_JAX:
            fail(f"{top} {package.__version__} is too old {purpose}: {'.'.join(map(str, OLDEST_JAX))} is needed",
                 help=INSTALL)
        return importlib.import_module(name)
    except ImportError as error:
        missing = getattr(error, "name", None) or name
        if missing.partition(".")[0] == top and "." in missing:
            fail(f"this version of {top} has no {name}, which is needed {purpose}", help=INSTALL)
        fail(f"{missing} is missing, which is needed {purpose}", help=INSTALL)
