"""Reads pickles of programs: of classes that hold values, and of functions that look up what is registered.

Such a pickle can damage the program that is read, but not run code: it may name data classes and enumerations of `ir`,
and a few classes and functions by name.
"""

from __future__ import annotations

import dataclasses
import sys
from enum import Enum
from importlib import import_module
from io import BytesIO
from typing import Any

import ml_dtypes
import numpy as np

from ..inert import Values
from .op import AnyOp, op_named

_IR = __name__.removesuffix(".graph.inert")
_OWN = frozenset({
    "diagnostics SourceFile", "graph.module Module", "graph.computation Computation",
    "graph.instruction instruction_of", "types.element_type _named", "ops.async_ops _from_values",
})  # fmt: skip
_PLAIN = {"complex": complex, "slice": slice, "bytearray": bytearray}
_NUMPY = {"ndarray": np.ndarray, "dtype": np.dtype}
_SMALL = frozenset(vars(ml_dtypes)[name] for name in ml_dtypes.__all__ if name not in ("finfo", "iinfo"))
_MULTIARRAY = ("numpy._core.multiarray", "numpy.core.multiarray")  # since numpy 2, and before


class _Program(Values):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        found = _known(module_name, global_name)
        return super().find_class(module_name, global_name) if found is None else found


def program_values(data: bytes) -> Any:
    """Returns the modules and other values of `ir` in a pickle. Raises UnpicklingError if it names anything that is no
    value of a program.
    """
    return _Program(BytesIO(data)).load()


def _known(module: str, name: str) -> Any:
    """Returns the class or function of these names if a program may name it, else None."""
    if module.startswith(_IR + "."):
        return _of_ir(module, name)
    if module in _MULTIARRAY and name in ("_reconstruct", "scalar"):
        return getattr(sys.modules[np.ndarray.__reduce__(np.zeros(0))[0].__module__], name)
    if module == "ml_dtypes":
        found: Any = getattr(ml_dtypes, name, None)
        return found if isinstance(found, type) and found in _SMALL else None
    return {"numpy": _NUMPY, "builtins": _PLAIN}.get(module, {}).get(name)


def _of_ir(module: str, name: str) -> Any:
    place = module.removeprefix(_IR + ".")
    if (place, name) == ("graph.op", "op_of"):
        return _registered
    found: Any = getattr(import_module(module), name, None)  # of Hloom, whose modules do nothing when they are imported
    if f"{place} {name}" in _OWN:
        return found
    is_own = isinstance(found, type) and module == vars(found).get("__module__")
    return found if is_own and (dataclasses.is_dataclass(found) or issubclass(found, Enum)) else None


def _registered(_: str, opcode: str) -> AnyOp:
    """Returns an op as `op_of` does, without importing a module for it."""
    return op_named(opcode)
