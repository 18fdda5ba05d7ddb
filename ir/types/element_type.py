"""Element types of HLO arrays: name, width, kind and the numpy type that holds them.

The names are XLA's (`shape_util`, `primitive_util`). The small floats, bfloat16 and the sub-byte integers come from
ml_dtypes; a type without a numpy type (`token`, `opaque`, `s1`, `u1`) can be parsed and printed but not evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from typing import Any, cast

import ml_dtypes
import numpy as np


class Kind(Enum):
    PRED = "pred"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    COMPLEX = "complex"
    TOKEN = "token"
    OPAQUE = "opaque"
    TUPLE = "tuple"


@dataclass(frozen=True, slots=True, eq=False)
class ElementType:
    """One element type. There is one object per type, so types compare by identity.

    `bits` is the logical width (4 for s4). `numpy` is None where numpy has no such type. `is_array` is whether arrays
    have such elements: not for tuples, tokens and opaque values. `is_number` is whether elements add, with a zero:
    false for pred, whose sum is an or, and f8e8m0fnu, which has no zero. `byte_size` is that of one element as numpy
    and the runtime store it; sub-byte types take one byte.
    """

    name: str
    bits: int
    kind: Kind
    numpy: np.dtype[Any] | None
    # Found once per type: members of enums are slow to read, and programs ask for each value.
    is_array: bool = field(init=False)
    is_integer: bool = field(init=False)
    is_float: bool = field(init=False)
    is_complex: bool = field(init=False)
    is_number: bool = field(init=False)
    byte_size: int = field(init=False)

    def __post_init__(self) -> None:
        kind, bits, numpy = self.kind, self.bits, self.numpy
        keep = partial(object.__setattr__, self)
        keep("is_array", kind not in (Kind.TUPLE, Kind.TOKEN, Kind.OPAQUE))
        keep("is_integer", kind in (Kind.SIGNED, Kind.UNSIGNED))
        keep("is_float", kind is Kind.FLOAT)
        keep("is_complex", kind is Kind.COMPLEX)
        keep("is_number", (self.is_integer or self.is_float or self.is_complex) and self.name != "f8e8m0fnu")
        keep("byte_size", numpy.itemsize if numpy is not None else -(-bits // 8))

    @property
    def greatest(self) -> int:
        """The greatest number of an integer type."""
        return (1 << (self.bits - (self.kind is Kind.SIGNED))) - 1

    @property
    def least(self) -> int:
        """The least number of an integer type."""
        return -self.greatest - 1 if self.kind is Kind.SIGNED else 0

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"ElementType({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)


def _make() -> dict[str, ElementType]:
    rows: list[tuple[str, int, Kind, Any]] = [
        ("pred", 8, Kind.PRED, np.bool_),
        ("s1", 1, Kind.SIGNED, None),
        ("s2", 2, Kind.SIGNED, ml_dtypes.int2),
        ("s4", 4, Kind.SIGNED, ml_dtypes.int4),
        ("s8", 8, Kind.SIGNED, np.int8),
        ("s16", 16, Kind.SIGNED, np.int16),
        ("s32", 32, Kind.SIGNED, np.int32),
        ("s64", 64, Kind.SIGNED, np.int64),
        ("u1", 1, Kind.UNSIGNED, None),
        ("u2", 2, Kind.UNSIGNED, ml_dtypes.uint2),
        ("u4", 4, Kind.UNSIGNED, ml_dtypes.uint4),
        ("u8", 8, Kind.UNSIGNED, np.uint8),
        ("u16", 16, Kind.UNSIGNED, np.uint16),
        ("u32", 32, Kind.UNSIGNED, np.uint32),
        ("u64", 64, Kind.UNSIGNED, np.uint64),
        ("f16", 16, Kind.FLOAT, np.float16),
        ("bf16", 16, Kind.FLOAT, ml_dtypes.bfloat16),
        ("f32", 32, Kind.FLOAT, np.float32),
        ("f64", 64, Kind.FLOAT, np.float64),
        ("f8e5m2", 8, Kind.FLOAT, ml_dtypes.float8_e5m2),
        ("f8e4m3", 8, Kind.FLOAT, ml_dtypes.float8_e4m3),
        ("f8e4m3fn", 8, Kind.FLOAT, ml_dtypes.float8_e4m3fn),
        ("f8e4m3b11fnuz", 8, Kind.FLOAT, ml_dtypes.float8_e4m3b11fnuz),
        ("f8e5m2fnuz", 8, Kind.FLOAT, ml_dtypes.float8_e5m2fnuz),
        ("f8e4m3fnuz", 8, Kind.FLOAT, ml_dtypes.float8_e4m3fnuz),
        ("f8e3m4", 8, Kind.FLOAT, ml_dtypes.float8_e3m4),
        ("f8e8m0fnu", 8, Kind.FLOAT, ml_dtypes.float8_e8m0fnu),
        ("f6e2m3fn", 6, Kind.FLOAT, ml_dtypes.float6_e2m3fn),
        ("f6e3m2fn", 6, Kind.FLOAT, ml_dtypes.float6_e3m2fn),
        ("f4e2m1fn", 4, Kind.FLOAT, ml_dtypes.float4_e2m1fn),
        ("c64", 64, Kind.COMPLEX, np.complex64),
        ("c128", 128, Kind.COMPLEX, np.complex128),
        ("token", 0, Kind.TOKEN, None),
        ("opaque", 0, Kind.OPAQUE, None),
    ]
    return {n: ElementType(n, bits, kind, np.dtype(t) if t is not None else None) for n, bits, kind, t in rows}


ELEMENT_TYPES: dict[str, ElementType] = _make()
TUPLE = ElementType("tuple", 0, Kind.TUPLE, None)

PRED = ELEMENT_TYPES["pred"]
S8 = ELEMENT_TYPES["s8"]
S16 = ELEMENT_TYPES["s16"]
S32 = ELEMENT_TYPES["s32"]
S64 = ELEMENT_TYPES["s64"]
U32 = ELEMENT_TYPES["u32"]
F32 = ELEMENT_TYPES["f32"]
TOKEN = ELEMENT_TYPES["token"]

_BY_NUMPY = {t.numpy: t for t in ELEMENT_TYPES.values() if t.numpy is not None}


def component(element: ElementType) -> ElementType:
    """Returns the type of the real and imaginary parts of a complex type, or any other type itself."""
    return ELEMENT_TYPES[{"c64": "f32", "c128": "f64"}.get(element.name, element.name)]


@cache
def precision(element: ElementType) -> tuple[bool, float, int, bool]:
    """Returns a sort key that orders array types by precision as XLA does: pred, then integers by width with signed
    above unsigned, then floats by range, then complex types.
    """
    part = component(element)
    largest = float(cast(Any, ml_dtypes).finfo(part.numpy).max) if part.is_float else -1.0
    return element.is_complex, largest, 1 if element is PRED else part.bits, element.kind is Kind.SIGNED


def from_numpy(dtype: np.dtype[Any]) -> ElementType:
    """Returns the element type of a numpy type. Raises KeyError if HLO has none (strings, objects, float128)."""
    return _BY_NUMPY[np.dtype(dtype)]


def _named(name: str) -> ElementType:
    """Returns the one object of a type. Pickles and copies refer to a type this way."""
    return TUPLE if name == TUPLE.name else ELEMENT_TYPES[name]
