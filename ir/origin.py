"""Tells whose code something is: Hloom's own, or that of a program that embeds Hloom."""

from __future__ import annotations

from functools import partial
from typing import Any

_ROOT = __name__.removesuffix(".ir.origin")


def is_foreign(value: Any) -> bool:
    """Whether a function, or the class of any other object, is defined outside of Hloom."""
    module = _module(value)
    return module != _ROOT and not module.startswith(f"{_ROOT}.")


def described(value: Any) -> str:
    """Returns the name of a function or of an object's class with its module: `RowNorm of mine`."""
    value = _unwrapped(value)
    return f"{getattr(value, '__qualname__', type(value).__qualname__)} of {_module(value)}"


def _module(value: Any) -> str:
    return str(getattr(_unwrapped(value), "__module__", ""))


def _unwrapped(value: Any) -> Any:
    """Returns the function of a `functools.partial`, and any other object as it is."""
    return value.func if isinstance(value, partial) else value  # pyright: ignore[reportUnknownMemberType]
