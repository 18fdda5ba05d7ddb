"""Arrays: the values that functions see while they are traced, with operators, indices and methods as in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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

Operator = Callable[["Array", ArrayLike], "Array"]


def _operator(name: str, apply: Callable[[ArrayLike, ArrayLike], Instruction]) -> Operator:
    def operator(self: Array, other: ArrayLike) -> Array:
        return wrap(apply(self, other))

    operator.__name__ = f"__{name}__"
    return public(operator)


def _operators(name: str, apply: Callable[[ArrayLike, ArrayLike], Instruction]) -> tuple[Operator, Operator]:
    """Returns an operator, and that of an array on its right."""
    return _operator(name, apply), _operator(f"r{name}", lambda x, y: apply(y, x))


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

    __add__, __radd__ = _operators("add", partial(m.binary, "add"))
    __sub__, __rsub__ = _operators("sub", partial(m.binary, "subtract"))
    __mul__, __rmul__ = _operators("mul", partial(m.binary, "multiply"))
    __truediv__, __rtruediv__ = _operators("truediv", m.divide)
    __floordiv__, __rfloordiv__ = _operators("floordiv", lambda x, y: m.floor_divmod("floor_divide", x, y)[0])
    __mod__, __rmod__ = _operators("mod", lambda x, y: m.floor_divmod("remainder", x, y)[1])
    __pow__, __rpow__ = _operators("pow", m.power)
    __matmul__, __rmatmul__ = _operators("matmul", matmul)
    __and__, __rand__ = _operators("and", partial(m.binary, "and"))
    __or__, __ror__ = _operators("or", partial(m.binary, "or"))
    __xor__, __rxor__ = _operators("xor", partial(m.binary, "xor"))
    __lshift__ = _operator("lshift", partial(m.binary, "shift-left"))
    __rshift__ = _operator("rshift", m.right_shift)

    __eq__ = _operator("eq", partial(m.comparison, "EQ"))  # type: ignore[override]
    __ne__ = _operator("ne", partial(m.comparison, "NE"))  # type: ignore[override]
    __lt__ = _operator("lt", partial(m.comparison, "LT"))
    __le__ = _operator("le", partial(m.comparison, "LE"))
    __gt__ = _operator("gt", partial(m.comparison, "GT"))
    __ge__ = _operator("ge", partial(m.comparison, "GE"))

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
