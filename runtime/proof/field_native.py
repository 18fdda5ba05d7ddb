"""The field's operations in machine code, as ufuncs, where llvmlite is installed. Else `field` computes with numpy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...codegen.native.as_ufunc import ufunc
from ...codegen.native.compile_llvm import Loaded, is_available, kept_code
from .field_code import SCALARS, text

_U64 = np.dtype(np.uint64)


class NativeField:
    """Ufuncs of uint64 arrays; `add` may be reduced."""

    def __init__(self) -> None:
        self._loaded = Loaded(kept_code(text()), "add_loop")
        self.add = self._made("add", identity=0)
        self.subtract, self.negate = self._made("subtract"), self._made("negate")
        self.multiply, self.product = self._made("multiply"), self._made("product")
        self.inverse = self._made("inverse")
        self.values = self._made("value1"), self._made("value2")  # of one argument, and of two
        self.reciprocal = self._made("reciprocal")
        self.keys, self.elements = self._made("keys"), self._made("elements")
        address = self._loaded.function("matmul_loop")
        self.matmul = ufunc("matmul", address, 2, (_U64,), "(m,n),(n,p)->(m,p)")

    def _made(self, name: str, identity: int | None = None) -> Any:
        address = self._loaded.function(f"{name}_loop")
        return ufunc(name, address, SCALARS[name], (_U64,), identity=identity)


def native_field() -> NativeField | None:
    """Returns the operations in machine code; None where there is none (`is_available`)."""
    return _field() if is_available() else None


@cache
def _field() -> NativeField:
    return NativeField()
