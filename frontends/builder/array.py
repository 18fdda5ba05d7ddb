"""Arrays: the values that functions see while they are traced, with operators, indices and methods as in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.types.element_type import ElementType
from . import arithmetic as m
from . import emission as e
from . import indexing
from .contraction import matmul
from .tracing import current, public
from .values import ArrayLike, Axes, NumpyArray, Value, lifted


class Array(Value):
    """A traced array. `shape`, `dtype`, `ndim` and `size` are known; values are not, so Python cannot branch on them.

    `instruction` is the value in the program. Functions of the builder make arrays, users do not.
    """

    __slots__ = ()
    __array_ufunc__ = None  # numpy's operators leave it to those of this class
    __hash__ = object.__hash__

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self.instruction.shape.dims

    @property
    def element(self) -> ElementType:
        """The element type as HLO has it."""
        return self.instruction.shape.element

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as numpy has it; the small types are those of ml_dtypes."""
        found = self.element.numpy
        assert found is not None, "no function makes arrays of other types"
        return found

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.instruction.shape.num_elements

    def __repr__(self) -> str:
        return f"<{self.instruction.name}: {e.shown(self.instruction)}>"

    # -- operators

    @public
    def __add__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("add", self, other))

    @public
    def __radd__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("add", other, self))

    @public
    def __sub__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("subtract", self, other))

    @public
    def __rsub__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("subtract", other, self))

    @public
    def __mul__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("multiply", self, other))

    @public
    def __rmul__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("multiply", other, self))

    @public
    def __truediv__(self, other: ArrayLike) -> Array:
        return wrap(m.divide(self, other))

    @public
    def __rtruediv__(self, other: ArrayLike) -> Array:
        return wrap(m.divide(other, self))

    @public
    def __floordiv__(self, other: ArrayLike) -> Array:
        return wrap(m.floor_divmod("floor_divide", self, other)[0])

    @public
    def __rfloordiv__(self, other: ArrayLike) -> Array:
        return wrap(m.floor_divmod("floor_divide", other, self)[0])

    @public
    def __mod__(self, other: ArrayLike) -> Array:
        return wrap(m.floor_divmod("remainder", self, other)[1])

    @public
    def __rmod__(self, other: ArrayLike) -> Array:
        return wrap(m.floor_divmod("remainder", other, self)[1])

    @public
    def __pow__(self, other: ArrayLike) -> Array:
        return wrap(m.power(self, other))

    @public
    def __rpow__(self, other: ArrayLike) -> Array:
        return wrap(m.power(other, self))

    @public
    def __matmul__(self, other: ArrayLike) -> Array:
        return wrap(matmul(self, other))

    @public
    def __rmatmul__(self, other: ArrayLike) -> Array:
        return wrap(matmul(other, self))

    @public
    def __and__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("and", self, other))

    @public
    def __rand__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("and", other, self))

    @public
    def __or__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("or", self, other))

    @public
    def __ror__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("or", other, self))

    @public
    def __xor__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("xor", self, other))

    @public
    def __rxor__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("xor", other, self))

    @public
    def __lshift__(self, other: ArrayLike) -> Array:
        return wrap(m.binary("shift-left", self, other))

    @public
    def __rshift__(self, other: ArrayLike) -> Array:
        return wrap(m.right_shift(self, other))

    @public
    def __neg__(self) -> Array:
        return wrap(m.unary("negate", self))

    @public
    def __pos__(self) -> Array:
        return self

    @public
    def __abs__(self) -> Array:
        return wrap(m.unary("abs", self))

    @public
    def __invert__(self) -> Array:
        return wrap(m.unary("not", self))

    @public
    def __eq__(self, other: ArrayLike) -> Array:  # type: ignore[override]
        return wrap(m.comparison("EQ", self, other))

    @public
    def __ne__(self, other: ArrayLike) -> Array:  # type: ignore[override]
        return wrap(m.comparison("NE", self, other))

    @public
    def __lt__(self, other: ArrayLike) -> Array:
        return wrap(m.comparison("LT", self, other))

    @public
    def __le__(self, other: ArrayLike) -> Array:
        return wrap(m.comparison("LE", self, other))

    @public
    def __gt__(self, other: ArrayLike) -> Array:
        return wrap(m.comparison("GT", self, other))

    @public
    def __ge__(self, other: ArrayLike) -> Array:
        return wrap(m.comparison("GE", self, other))

    # -- indices and methods

    @public
    def __getitem__(self, key: Any) -> Array:
        parts: tuple[Any, ...] = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
        return wrap(indexing.index(lifted("array", self), [_index(part) for part in parts]))

    @public
    def __len__(self) -> int:
        if not self.shape:
            fail("a scalar has no length")
        return self.shape[0]

    @public
    def __iter__(self) -> Iterator[Array]:
        return iter([self[n] for n in range(len(self))])

    @property
    @public
    def T(self) -> Array:
        """The array with its dimensions in the opposite order."""
        return wrap(e.transpose(lifted("array", self), range(self.ndim)[::-1]))

    @public
    def astype(self, dtype: e.DType) -> Array:
        """Returns the array with elements of another type; as pred, whether they differ from 0."""
        return wrap(e.convert(lifted("array", self), e.element_of(dtype)))

    @public
    def reshape(self, *shape: Any) -> Array:
        """Returns the elements in row-major order with other dimensions, one of which may be -1."""
        return wrap(m.reshape(self, shape[0] if len(shape) == 1 else shape))

    @public
    def transpose(self, *axes: int) -> Array:
        """Returns the array with its dimensions in this order; without arguments in the opposite one."""
        return wrap(m.transpose(self, axes or None))

    @public
    def sum(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """Returns the sum along axes, all by default."""
        return wrap(m.fold("sum", Monoid.ADD, self, axis, keepdims))

    @public
    def prod(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """Returns the product along axes, all by default."""
        return wrap(m.fold("prod", Monoid.MULTIPLY, self, axis, keepdims))

    @public
    def max(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """Returns the greatest element along axes, all by default."""
        return wrap(m.fold("max", Monoid.MAXIMUM, self, axis, keepdims))

    @public
    def min(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """Returns the least element along axes, all by default."""
        return wrap(m.fold("min", Monoid.MINIMUM, self, axis, keepdims))

    @public
    def mean(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """Returns the mean along axes, all by default."""
        return wrap(m.mean(self, axis, keepdims))

    @public
    def __bool__(self) -> bool:
        _no_value("truth value", "where(c, x, y) chooses elements, cond(c, f, g) runs one of two functions")

    @public
    def __int__(self) -> int:
        _no_value("integer value", "x.astype('s32') converts it in the program")

    @public
    def __index__(self) -> int:
        _no_value("integer value", "x[i] takes a traced index; sizes of shapes are fixed")

    @public
    def __float__(self) -> float:
        _no_value("float value", "x.astype('f32') converts it in the program")

    @public
    def __array__(self, *_: Any, **__: Any) -> NumpyArray:
        _no_value("elements for numpy", "use the function of hloom.builder")


def wrap(instruction: Instruction) -> Array:
    """Returns an instruction of the current scope as an array."""
    return Array(instruction, current())


def _no_value(what: str, help: str) -> NoReturn:
    fail(f"a traced array has no {what} while the program is written", help=help)


def _index(part: Any) -> Any:
    """Returns a part of a key as `indexing` takes it: arrays as instructions of the current scope."""
    if isinstance(part, Array):
        return lifted("an index", part)
    if isinstance(part, slice):
        limits = cast("slice[Any, Any, Any]", part)
        bounds = (limits.start, limits.stop, limits.step)
        return slice(*(lifted("a slice", b) if isinstance(b, Array) else b for b in bounds))
    if isinstance(part, list | np.ndarray):
        return np.asarray(cast("NumpyArray", part))
    if part is not None and part is not Ellipsis and (not isinstance(part, int | np.integer) or isinstance(part, bool)):
        fail(f"{part!r} is no index", help="indices are integers, slices, None, an ellipsis, and one array of integers")
    return cast("Any", part)
