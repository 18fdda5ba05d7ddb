"""Reads pickles of programs: of classes that hold values, and of functions that look up what is registered.

Such a pickle can damage the program that is read, but not run code: it may name data classes, named tuples,
enumerations and kinds of modules of `ir` and of rooms that the reader names, and a few classes and functions by name.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from enum import Enum
from importlib import import_module
from io import BytesIO
from typing import Any

import ml_dtypes
import numpy as np

from ..inert import ValueReader
from .module import Module
from .op import AnyOp, op_named

_IR = __name__.removesuffix(".graph.inert")
_ROOT = _IR.removesuffix(".ir")
_OWN = frozenset({
    "diagnostics SourceFile", "graph.computation Computation", "graph.instruction instruction_of",
    "types.element_type _named", "ops.async_ops _from_values",
})  # fmt: skip
_PLAIN = {"complex": complex, "slice": slice, "bytearray": bytearray}
_NUMPY = {"ndarray": np.ndarray, "dtype": np.dtype}
_SMALL = frozenset(vars(ml_dtypes)[name] for name in ml_dtypes.__all__ if name not in ("finfo", "iinfo"))
_MULTIARRAY = ("numpy._core.multiarray", "numpy.core.multiarray")  # since numpy 2, and before


class _Program(ValueReader):
    def __init__(self, data: bytes, rooms: Sequence[str]) -> None:
        super().__init__(BytesIO(data))
        self._rooms = tuple(f"{_ROOT}.{room}" for room in rooms)

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        found = _known(module_name, global_name)
        if any(module_name == room or module_name.startswith(f"{room}.") for room in self._rooms):
            found = _value_class(module_name, global_name)
        return super().find_class(module_name, global_name) if found is None else found


def program_values(data: bytes, rooms: Sequence[str] = ()) -> Any:
    """Returns the modules and other values of `ir`, and of further `rooms` of Hloom (`passes.resharding`), in a pickle.
    Raises UnpicklingError if it names anything that is no value of a program.
    """
    return _Program(data, rooms).load()


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
    return getattr(import_module(module), name, None) if f"{place} {name}" in _OWN else _value_class(module, name)


def _value_class(module: str, name: str) -> Any:
    """Returns a class of values that a module of Hloom defines, which does nothing when it is imported."""
    found: Any = getattr(import_module(module), name, None)
    is_own = isinstance(found, type) and module == vars(found).get("__module__")
    return found if is_own and _holds_values(found) else None


def _holds_values(kind: Any) -> bool:
    is_named_tuple = tuple in kind.__mro__ and "_fields" in vars(kind)
    return dataclasses.is_dataclass(kind) or is_named_tuple or issubclass(kind, (Enum, Module))


def _registered(_: str, opcode: str) -> AnyOp:
    """Returns an op as `op_of` does, without importing a module for it."""
    return op_named(opcode)
