"""Notes the calls of Python functions in programs of JAX."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


class Calls:
    """Notes calls of Python functions."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def note(self, *values: Any) -> None:
        self.made.append(" ".join(str(np.round(np.asarray(value), 3)) for value in values))

    def shapes(self, *values: Any) -> None:
        self.made.append(" ".join(f"{value.dtype}{value.shape}" for value in values))

    def sine(self, value: Any) -> Any:
        self.shapes(value)
        return np.sin(value)


def like(value: Any) -> Any:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def outcome(calls: Calls, result: Any, ordered: bool = True) -> Any:
    """Waits for all calls. Returns them with the result."""
    jax.block_until_ready(result)
    jax.effects_barrier()
    return {"calls": list(calls.made) if ordered else sorted(calls.made), "result": result}


def effect(jit: Any, *values: Any, callback: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Calls `jax.debug.callback` on the values, and doubles the first."""
    calls = Calls()
    note = callback or calls.note

    def f(*values: Any) -> Any:
        jax.debug.callback(note, *values, **options)
        return values[0] * 2

    return outcome(calls, jit(f)(*values))
