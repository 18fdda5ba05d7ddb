"""Wraps machine code in numpy ufuncs, which handle shapes, strides and types of operands."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

import numpy as np

_FROM_CODE, _FROM_CODE_AND_SIGNATURE = 1, 31  # places in the table of numpy's C functions on ufuncs, which never change
_NO_IDENTITY = -1
_U64 = np.dtype(np.uint64)
_KEPT: list[Any] = []  # what ufuncs refer to, which live as long as the process


def ufunc(name: str, address: int, operands: int, results: tuple[np.dtype[Any], ...], signature: str = "",
          identity: int | None = None, of: np.dtype[Any] = _U64) -> Any:  # fmt: skip
    """Makes a ufunc of operands `of` a type from the address of an inner loop, as numpy's C interface defines it. With
    a `signature` the loop computes on sub-arrays. `identity` is 0 for an operation that may be reduced in any order.
    """
    types = bytes([of.num] * operands + [dtype.num for dtype in results])
    loops, data = (ctypes.c_void_p * 1)(address), (ctypes.c_void_p * 1)(None)
    texts = [types, name.encode(), b"", signature.encode()]
    _KEPT.append((loops, data, texts))
    place = _FROM_CODE_AND_SIGNATURE if signature else _FROM_CODE
    arguments: list[Any] = [ctypes.addressof(loops), ctypes.addressof(data), types, 1, operands, len(results)]
    arguments += [_NO_IDENTITY if identity is None else identity, *texts[1:3], 0]
    return _function(place, len(signature) > 0)(*arguments, *([texts[3]] if signature else []))


@cache
def _function(place: int, takes_signature: bool) -> Any:
    """Returns a function of numpy's C interface."""
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    umath: Any = importlib.import_module("numpy._core._multiarray_umath")
    table = ctypes.cast(find(umath._UFUNC_API, None), ctypes.POINTER(ctypes.c_void_p))
    text, number, pointer = ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
    kinds = [pointer, pointer, text, number, number, number, number, text, text, number]
    return ctypes.PYFUNCTYPE(ctypes.py_object, *kinds, *([text] if takes_signature else []))(table[place])
