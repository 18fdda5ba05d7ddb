"""Lowers products of arrays to native steps: machine code, and words for it that encode the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from ....ir.graph.op import AnyOp, OpCall
from ....ir.ops.convolution import Convolution
from ....ir.ops.dot import Dot
from ....ir.types.element_type import ElementType
from ..compile_llvm import Loaded, host, is_available, kept_code
from ..step import NativeStep, StridedLayout
from .arithmetic import Arithmetic, arithmetic_of
from .blas import Blas, blas
from .plan import plan
from .stages import CopyStage, Matrix, Method, Multiply, Place, ProductPlan, Repeat, Stage, Zero
from .terms import Term, terms_of
from .text import StageFunction, entry, products_text
from .tiles import tile_of
from .windows import convolution_plan

_CODES = {False: 111, True: 112}  # CblasNoTrans, CblasTrans
_ONE = Term(1, 0, 0, 0)


def words_of(plan: ProductPlan, library: Blas, arithmetic: Arithmetic) -> tuple[int, ...]:
    """Returns the words of a plan for numbers of this arithmetic."""
    return tuple(_all(plan.stages, library, arithmetic))


def _all(stages: Iterable[Stage], library: Blas, arithmetic: Arithmetic) -> list[int]:
    """Returns the number of some stages, and their words."""
    found = [0]
    for stage in stages:
        words = _stage(stage, library, arithmetic)
        found += [1 + len(words), *words]
        found[0] += 1
    return found


def _stage(stage: Stage, library: Blas, arithmetic: Arithmetic) -> list[int]:
    size = arithmetic.bits // 8
    if isinstance(stage, Repeat):
        return _words(StageFunction.STAGES, stage.places, stage.terms, _all(stage.stages, library, arithmetic), size)
    if isinstance(stage, Zero):
        return _words(StageFunction.ZERO, (stage.place,) * 3, (), [stage.size * size], size)
    if isinstance(stage, CopyStage):
        loops, leaf = _copy(stage.terms, size)
        return _words(StageFunction.COPY, (stage.source, stage.source, stage.target), loops, leaf, size)
    return _multiply(stage, library, arithmetic)


def _multiply(stage: Multiply, library: Blas, arithmetic: Arithmetic) -> list[int]:
    size, places = arithmetic.bits // 8, (stage.left, stage.right, stage.out)
    if stage.method is Method.PLAIN:
        return _words(StageFunction.PLAIN, places, stage.loops, _plain(stage, size), size)
    if stage.method is Method.TILES:
        return _words(StageFunction.TILES, places, stage.loops, _tiles(stage, library, arithmetic), size)
    assert stage.matrices is not None
    left, right, _ = stage.matrices
    m, n, k = stage.row.size, stage.column.size, stage.inner.size
    if n == 1:
        leaf = [library.gemv[arithmetic.bits], *_stored(left, m, k), stage.inner.right or 1, stage.row.out or 1]
        return _words(StageFunction.GEMV, places, stage.loops, leaf, size)
    if m == 1:  # the transposed product
        turned = Matrix(right.distance, not right.is_transposed)
        leaf = [library.gemv[arithmetic.bits], *_stored(turned, n, k), stage.inner.left or 1, stage.column.out]
        loops = [t.swapped for t in stage.loops]
        return _words(StageFunction.GEMV, (stage.right, stage.left, stage.out), loops, leaf, size)
    return _words(StageFunction.GEMM, places, stage.loops, _gemm(stage, library, arithmetic), size)


def _gemm(stage: Multiply, library: Blas, arithmetic: Arithmetic) -> list[int]:
    """Returns the gemm arguments of a product; zeros if BLAS has no routine for it."""
    m, n, k = stage.row.size, stage.column.size, stage.inner.size
    if stage.matrices is None or not arithmetic.is_float:
        return [0] * 9
    left, right, out = stage.matrices
    codes = _CODES[left.is_transposed], _CODES[right.is_transposed]
    return [library.gemm[arithmetic.bits], *codes, m, n, k, left.distance, right.distance, out.distance]


def _tiles(stage: Multiply, library: Blas, arithmetic: Arithmetic) -> list[int]:
    row, column, inner, size = stage.row, stage.column, stage.inner, arithmetic.bits // 8
    strides = (row.left, inner.left, inner.right, column.right, row.out, stage.panel, stage.rows or 0)
    words = [row.size, column.size, inner.size, *(s * size for s in strides), int(stage.rows is not None)]
    return [*words, library.asking, *_gemm(stage, library, arithmetic)]


def _words(leaf: int, arrays: Iterable[Place], loops: Iterable[Term], words: Iterable[int], size: int) -> list[int]:
    """Returns the words of a stage without their number."""
    found = [leaf]
    for number, offset in arrays:
        found += [number, offset * size]
    loops = list(loops)
    found.append(len(loops))
    for t in loops:
        found += [t.size, t.left * size, t.right * size, t.out * size, int(not t.out)]
    return [*found, *words]


def _stored(matrix: Matrix, rows: int, columns: int) -> list[int]:
    """Returns the gemv arguments that describe the matrix."""
    sizes = (columns, rows) if matrix.is_transposed else (rows, columns)
    return [_CODES[matrix.is_transposed], *sizes, matrix.distance]


def _plain(stage: Multiply, size: int) -> list[int]:
    row, column, inner = stage.row, stage.column, stage.inner
    strides = (row.left, inner.left, inner.right, column.right, row.out, column.out)
    return [row.size, column.size, inner.size, *(s * size for s in strides)]


def _copy(terms: Iterable[Term], size: int) -> tuple[list[Term], list[int]]:
    """Returns the loops and the words of a copy: its columns are contiguous in the target, its rows in the source."""
    rest = sorted(terms, key=lambda t: -abs(t.out))
    column = rest.pop() if rest else _ONE
    row = min(rest, key=lambda t: abs(t.left), default=_ONE)
    loops = [t for t in rest if t is not row]
    strides = (row.left, column.left, row.out, column.out)
    return loops, [row.size, column.size, *(s * size for s in strides)]


def is_provided() -> bool:
    """Whether there is a BLAS library and a compiler."""
    return is_available() and blas() is not None


def is_product(op: AnyOp) -> bool:
    """Whether native products support an op, for some types and sizes."""
    return isinstance(op, Dot | Convolution)


def product_plan(
    op: AnyOp, call: OpCall[Any], operands: Sequence[StridedLayout], result: StridedLayout, by_blas: bool = True
) -> ProductPlan | None:
    """Plans a dot or a convolution; None for other ops and unsupported cases."""
    if not is_product(op) or len(call.operands) != 2:
        return None
    layouts = (*operands, result)
    is_empty = any(0 in layout.dims for layout in layouts)
    is_convolution = isinstance(op, Convolution)
    if is_convolution and (is_empty or call.attributes.sparsity_config is not None):
        return None
    terms = terms_of(op.sharding_rule(call), layouts)
    if terms is not None:
        return _planned(terms, by_blas)
    return convolution_plan(call, layouts, by_blas) if is_convolution else None


def product_step(
    op: AnyOp, call: OpCall[Any], operands: Sequence[StridedLayout], result: StridedLayout
) -> NativeStep | None:
    """Returns a step that computes a dot or a convolution whose operands and result share a supported element type.

    The step takes both operands and the result, at their layouts. It copies operands that BLAS cannot access in place
    to scratch. None for other ops and types, unsupported cases, and without BLAS or a compiler.
    """
    element = call.shape.element
    if not is_product(op) or arithmetic_of(element) is None or not is_provided():
        return None
    if any(shape.element is not element or any(shape.dynamic) for shape in call.operands):
        return None
    return _step(op, call, tuple(operands), result)


@lru_cache(maxsize=4096)
def _step(
    op: AnyOp, call: OpCall[Any], operands: tuple[StridedLayout, ...], result: StridedLayout
) -> NativeStep | None:
    found = product_plan(op, call, operands, result, call.shape.element.is_float)
    return None if found is None else step_of(found, call.shape.element)


def step_of(found: ProductPlan, element: ElementType) -> NativeStep:
    """Returns the step of a plan for arrays of an arithmetic's type. Needs a BLAS library and a compiler."""
    library, arithmetic = blas(), arithmetic_of(element)
    assert library is not None
    assert arithmetic is not None
    scratch = (found.scratch * element.byte_size,) if found.scratch else ()
    code = _code(arithmetic, library.integer, 3 + len(scratch), host())
    return NativeStep(code.address, scratch, words_of(found, library, arithmetic), (code, library))


@lru_cache(maxsize=4096)
def _planned(terms: tuple[Term, ...], by_blas: bool) -> ProductPlan:
    return plan(terms, by_blas=by_blas)


@cache
def _code(arithmetic: Arithmetic, integer: int, first: int, host: tuple[str, str]) -> Loaded:
    text = products_text(arithmetic, integer, tile_of(host[1]))
    return Loaded(kept_code(text), entry(first))
