"""Reductions, cumulative sums and orders of elements, by numpy's names, and products of arrays.

Everything is computed in the type of the array. `dtype=` converts it first, or, in products, gives the type of the sums
and of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.graph.monoid import identity
from ...ir.types.element_type import PRED, S32, ElementType
from ...ir.types.shape import array
from . import arithmetic as m
from . import contraction
from . import emission as e
from .array import Array, wrap
from .emission import DType
from .tracing import BuilderScope, current, emit, entered, public, scalar
from .values import ArrayLike, Axes, lifted, same_types


def _typed(what: str, x: ArrayLike, dtype: DType | None) -> Array:
    (found,) = same_types(what, x)
    return wrap(found if dtype is None else e.convert(found, e.element_of(dtype)))


@public
def sum(x: ArrayLike, axis: Axes = None, keepdims: bool = False, dtype: DType | None = None) -> Array:
    """Returns the sum along axes, all by default. `keepdims` leaves them with size 1."""
    return wrap(m.fold("sum", Monoid.ADD, _typed("sum", x, dtype), axis, keepdims))


@public
def prod(x: ArrayLike, axis: Axes = None, keepdims: bool = False, dtype: DType | None = None) -> Array:
    """Returns the product along axes, all by default."""
    return wrap(m.fold("prod", Monoid.MULTIPLY, _typed("prod", x, dtype), axis, keepdims))


@public
def mean(x: ArrayLike, axis: Axes = None, keepdims: bool = False, dtype: DType | None = None) -> Array:
    """Returns the sum along axes, all by default, divided by the number of elements."""
    return wrap(m.mean(_typed("mean", x, dtype), axis, keepdims))


@public
def max(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns the greatest element along axes, all by default; NaN if one is NaN."""
    return wrap(m.fold("max", Monoid.MAXIMUM, x, axis, keepdims))


@public
def min(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns the least element along axes, all by default; NaN if one is NaN."""
    return wrap(m.fold("min", Monoid.MINIMUM, x, axis, keepdims))


@public
def any(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns whether an element along axes, all by default, is true or not 0."""
    return wrap(m.fold("any", Monoid.OR, _typed("any", x, "pred"), axis, keepdims))


@public
def all(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns whether all elements along axes, all by default, are true or not 0."""
    return wrap(m.fold("all", Monoid.AND, _typed("all", x, "pred"), axis, keepdims))


@public
def reduce(function: Callable[[Array, Array], Any], x: ArrayLike, initial: ArrayLike, axis: Axes = None) -> Array:
    """Returns the combination of the elements along axes by an associative function of two scalars, beginning with
    `initial`. Raises CompileError if the function uses other traced values.
    """
    (found,) = same_types("reduce", x)
    begin = lifted("reduce", initial, found.shape.element)
    body = _scalar_function("reduce", function, found.shape.element)
    axes = e.axes_of("reduce", axis, found.shape.rank)
    return wrap(emit("reduce", found, begin, dimensions=axes, to_apply=body.computation))


class _ScalarFunction(BuilderScope):
    """The computation that a reduction applies, which knows its two parameters alone."""

    def capture(self, outer: Instruction) -> Instruction:
        fail(f"{self.title} uses a value from outside", help="it may use its two arguments and constants only")


def _scalar_function(what: str, function: Callable[[Array, Array], Any], element: ElementType) -> BuilderScope:
    outer = current()
    inside = outer.trace.module.new_computation(f"{what}.function")
    scope = _ScalarFunction(outer.trace, inside, outer, f"the function of {what}")
    with entered(scope):
        x, y = (wrap(inside.parameter(n, array(element), name)) for n, name in enumerate("xy"))
        inside.root = lifted(what, function(x, y), element)
    return scope


# -- places of elements, orders


@public
def argmax(x: ArrayLike, axis: int) -> Array:
    """Returns the index (s32) of the greatest element along an axis, the first of equal ones; that of a NaN before all.
    """
    return wrap(_extreme("argmax", x, axis, Monoid.MAXIMUM, "GT"))


@public
def argmin(x: ArrayLike, axis: int) -> Array:
    """Returns the index (s32) of the least element along an axis, the first of equal ones; that of a NaN before all."""
    return wrap(_extreme("argmin", x, axis, Monoid.MINIMUM, "LT"))


def _extreme(what: str, x: ArrayLike, axis: int, monoid: Monoid, direction: str) -> Instruction:
    (found,) = same_types(what, x)
    dim, element = e.axis_of(what, axis, found.shape.rank), found.shape.element
    outer = current()
    chooser = outer.trace.module.new_computation(f"{what}.{element}")
    with entered(BuilderScope(outer.trace, chooser, outer, what)):
        v, i, w, j = (
            chooser.parameter(n, array(t), name) for n, (t, name) in enumerate(zip((element, S32) * 2, "viwj")))
        better, equal = e.compare(v, w, direction), e.compare(v, w, "EQ")
        if element.is_float:  # a NaN differs from itself, and stands above all
            nan, other = e.compare(v, v, "NE"), e.compare(w, w, "NE")
            better = emit("or", better, emit("and", nan, emit("not", other)))
            equal = emit("or", equal, emit("and", nan, other))
        chosen = emit("or", better, emit("and", equal, e.compare(i, j, "LT")))
        chooser.root = emit("tuple", emit("select", chosen, v, w), emit("select", chosen, i, j))
    numbers = e.iota(found.shape.dims, dim, S32)
    start = scalar(identity(monoid, element), element)
    made = emit("reduce", found, numbers, start, scalar(0, S32), dimensions=(dim,), to_apply=chooser)
    return emit("get-tuple-element", made, index=1)


@public
def sort(x: ArrayLike, axis: int = -1) -> Array:
    """Returns the elements in ascending order along an axis. NaN comes last."""
    (found,) = same_types("sort", x)
    return wrap(_sorted("sort", (found,), axis))


@public
def argsort(x: ArrayLike, axis: int = -1) -> Array:
    """Returns the indices (s32) that sort x along an axis; equal elements keep their order."""
    (found,) = same_types("argsort", x)
    dim = e.axis_of("argsort", axis, found.shape.rank)
    made = _sorted("argsort", (found, e.iota(found.shape.dims, dim, S32)), axis)
    return wrap(emit("get-tuple-element", made, index=1))


def _sorted(what: str, arrays: tuple[Instruction, ...], axis: int) -> Instruction:
    dim, outer = e.axis_of(what, axis, arrays[0].shape.rank), current()
    less = outer.trace.module.new_computation(f"{what}.less")
    with entered(BuilderScope(outer.trace, less, outer, what)):
        sides = [less.parameter(n, array(arrays[n // 2].shape.element)) for n in range(2 * len(arrays))]
        order: dict[str, Any] = {"type": "TOTALORDER"} if arrays[0].shape.element.is_float else {}
        less.root = emit("compare", sides[0], sides[1], direction="LT", **order)
    return emit("sort", *arrays, dimensions=(dim,), is_stable=True, to_apply=less)


@public
def top_k(x: ArrayLike, k: int) -> tuple[Array, Array]:
    """Returns the k greatest elements of the last dimension in descending order, and their indices (s32)."""
    (found,) = same_types("top_k", x)
    made = emit("topk", found, k=k)
    return wrap(emit("get-tuple-element", made, index=0)), wrap(emit("get-tuple-element", made, index=1))


# -- cumulative


@public
def cumsum(x: ArrayLike, axis: int, reverse: bool = False) -> Array:
    """Returns for each element the sum of those up to it along an axis; of those from it on if `reverse`."""
    return wrap(_cumulative("cumsum", Monoid.ADD, x, axis, reverse))


@public
def cumprod(x: ArrayLike, axis: int, reverse: bool = False) -> Array:
    """Returns for each element the product of those up to it along an axis; of those from it on if `reverse`."""
    return wrap(_cumulative("cumprod", Monoid.MULTIPLY, x, axis, reverse))


@public
def cummax(x: ArrayLike, axis: int, reverse: bool = False) -> Array:
    """Returns for each element the greatest up to it along an axis; from it on if `reverse`."""
    return wrap(_cumulative("cummax", Monoid.MAXIMUM, x, axis, reverse))


def _cumulative(what: str, monoid: Monoid, x: ArrayLike, axis: int, reverse: bool) -> Instruction:
    (found,) = same_types(what, x)
    dim, element = e.axis_of(what, axis, found.shape.rank), found.shape.element
    if element is PRED and monoid is not Monoid.MAXIMUM:
        fail(f"{what}: {e.shown(found)} has no numbers", help="count with x.astype('s32')")
    size = found.shape.dims[dim]
    if not size:
        return found
    low, high = (0, size - 1) if reverse else (size - 1, 0)
    window = [{"size": size, "low": low, "high": high} if d == dim else {"size": 1} for d in range(found.shape.rank)]
    start = scalar(identity(monoid, element), element)
    reducer = current().trace.reducer(monoid.value, element)
    return emit("reduce-window", found, start, window=window, to_apply=reducer)


# -- products


@public
def einsum(subscripts: str, *operands: ArrayLike, dtype: DType | None = None) -> Array:
    """Returns the sum of products that `subscripts` names, as in numpy: `einsum("bsm,mhd->bshd", x, w)`.

    Upper and lower case differ, `...` stands for further dimensions. Operands are multiplied from left to right, two at
    a time. `dtype` is the element type of the sums and of the result: `"f32"` for operands in bf16.
    """
    if not isinstance(subscripts, str) or not operands:  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("einsum takes subscripts and arrays", help="for example einsum('ij,jk->ik', x, y)")
    return wrap(contraction.einsum("einsum", subscripts, operands, _element(dtype)))


@public
def matmul(x: ArrayLike, y: ArrayLike, dtype: DType | None = None) -> Array:
    """Returns numpy's product of matrices, vectors, or stacks of matrices. `dtype` is that of the sums and the result.
    """
    return wrap(contraction.matmul(x, y, _element(dtype)))


@public
def dot(x: ArrayLike, y: ArrayLike, dtype: DType | None = None) -> Array:
    """Returns numpy's `dot`: sums over the last dimension of x and the one before the last of y."""
    return wrap(contraction.dot(x, y, _element(dtype)))


def _element(dtype: DType | None) -> ElementType | None:
    return None if dtype is None else e.element_of(dtype)
