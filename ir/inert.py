"""Reads pickles that hold plain values only, so that reading one runs no code that the file names.

A pickle names the functions and classes that make its objects, and reading it calls them. Here none may be named; a
subclass names those that do nothing but hold values.
"""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any


class ValueReader(pickle.Unpickler):
    """Reads numbers, texts, and lists, tuples, sets and dicts of them. Raises UnpicklingError for anything else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Refuses every name."""
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is no plain value")


def plain_values(data: bytes) -> Any:
    """Returns the plain values of a pickle. Raises UnpicklingError if it names a function or a class."""
    return ValueReader(BytesIO(data)).load()
