"""Lowers products of arrays to native steps: machine code, and words for it that encode the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from ....ir.graph.op import AnyOp, OpCall
from ....ir.ops.convolution import Convolution
from ....ir.ops.dot import Dot
from ....ir.types.element_type import S16, ElementType
from ..compile_llvm import Loaded, host, is_available, kept_code
from ..step import NativeStep, StridedLayout
from .arithmetic import Arithmetic, arithmetic_of
from .blas import Blas, blas
from .narrow import OF_PAIRS, are_pairs_fast, is_widened
from .plan import narrow_plan, plan
from .stages import CopyStage, Matrix, Method, Multiply, NarrowOperand, Place, ProductPlan, Repeat, Stage, Zero
from .terms import Term, terms_of
from .text import StageFunction, entry, products_text
from .tiles import tile_of
from .windows import convolution_plan

_CODES = {False: 111, True: 112}  # CblasNoTrans, CblasTrans
_ONE = Term(1, 0, 0, 0)
_Sizes = tuple[int, int, int]  # bytes of elements of the left matrix, the right one and the result


def words_of(plan: ProductPlan, library: Blas, arithmetic: Arithmetic) -> tuple[int, ...]:
    """Returns the words of a plan for numbers of this arithmetic."""
    size = arithmetic.bits // 8
    return tuple(_all(plan.stages, library, arithmetic, plan.narrow.sizes if plan.narrow else (size, size, size)))


def _all(stages: Iterable[Stage], library: Blas, arithmetic: Arithmetic, sizes: _Sizes) -> list[int]:
    """Returns the number of some stages, and their words."""
    found = [0]
    for stage in stages:
        words = _stage(stage, library, arithmetic, sizes)
        found += [1 + len(words), *words]
        found[0] += 1
    return found


def _stage(stage: Stage, library: Blas, arithmetic: Arithmetic, sizes: _Sizes) -> list[int]:
    size = sizes[2]
    if isinstance(stage, Repeat):
        inside = _all(stage.stages, library, arithmetic, sizes)
        return _words(StageFunction.STAGES, stage.places, stage.terms, inside, sizes)
    if isinstance(stage, Zero):
        return _words(StageFunction.ZERO, (stage.place,) * 3, (), [stage.size * size], sizes)
    if isinstance(stage, CopyStage):
        loops, leaf = _copy(stage.terms, size)
        return _words(StageFunction.COPY, (stage.source, stage.source, stage.target), loops, leaf, sizes)
    return _multiply(stage, library, arithmetic, sizes)


def _multiply(stage: Multiply, library: Blas, arithmetic: Arithmetic, sizes: _Sizes) -> list[int]:
    places = (stage.left, stage.right, stage.out)
    if stage.method is Method.PLAIN:
        return _words(StageFunction.PLAIN, places, stage.loops, _plain(stage, sizes[2]), sizes)
    if stage.method is Method.TILES:
        return _words(StageFunction.TILES, places, stage.loops, _tiles(stage, library, arithmetic, sizes), sizes)
    assert stage.matrices is not None
    left, right, _ = stage.matrices
    m, n, k = stage.row.size, stage.column.size, stage.inner.size
    if n == 1:
        leaf = [library.gemv[arithmetic.bits], *_stored(left, m, k), stage.inner.right or 1, stage.row.out or 1]
        return _words(StageFunction.GEMV, places, stage.loops, leaf, sizes)
    if m == 1:  # the transposed product
        turned = Matrix(right.distance, not right.is_transposed)
        leaf = [library.gemv[arithmetic.bits], *_stored(turned, n, k), stage.inner.left or 1, stage.column.out]
        loops = [t.swapped for t in stage.loops]
        return _words(StageFunction.GEMV, (stage.right, stage.left, stage.out), loops, leaf, sizes)
    return _words(StageFunction.GEMM, places, stage.loops, _gemm(stage, library, arithmetic), sizes)


def _gemm(stage: Multiply, library: Blas, arithmetic: Arithmetic) -> list[int]:
    """Returns the gemm arguments of a product; zeros if BLAS has no routine for it."""
    m, n, k = stage.row.size, stage.column.size, stage.inner.size
    if stage.matrices is None or not arithmetic.is_float:
        return [0] * 9
    left, right, out = stage.matrices
    codes = _CODES[left.is_transposed], _CODES[right.is_transposed]
    return [library.gemm[arithmetic.bits], *codes, m, n, k, left.distance, right.distance, out.distance]


def _tiles(stage: Multiply, library: Blas, arithmetic: Arithmetic, sizes: _Sizes) -> list[int]:
    (row, column, inner), (left, right, out) = (stage.row, stage.column, stage.inner), sizes
    words = [row.size, column.size, inner.size, row.left * left, inner.left * left, inner.right * right]
    words += [column.right * right, row.out * out, stage.panel * out, (stage.rows or 0) * out]
    words.append(int(stage.rows is not None))
    return [*words, library.asking, *_gemm(stage, library, arithmetic)]


def _words(
    leaf: int, arrays: Iterable[Place], loops: Iterable[Term], words: Iterable[int], sizes: _Sizes
) -> list[int]:  # fmt: skip
    """Returns the words of a stage without their number."""
    found = [leaf]
    for (number, offset), size in zip(arrays, sizes, strict=True):
        found += [number, offset * size]
    loops = list(loops)
    found.append(len(loops))
    for t in loops:
        found += [t.size, *(stride * size for stride, size in zip(t.strides, sizes, strict=True)), int(not t.out)]
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
    terms, narrow = terms_of(op.sharding_rule(call), layouts), narrow_operand(call)
    if narrow is not None:
        return None if terms is None else _narrow_planned(terms, narrow)
    if terms is not None:
        return _planned(terms, by_blas)
    return convolution_plan(call, layouts, by_blas) if is_convolution else None


def narrow_operand(call: OpCall[Any]) -> NarrowOperand | None:
    """Returns the operand that is narrower than the result of a product, where tiles may read it; None if there is
    none. The other one has the result's type, or is s16 for pairs.
    """
    out = call.shape.element
    arithmetic = arithmetic_of(out)
    if arithmetic is None:
        return None
    for number in (1, 0):
        element, other = (call.operands[n].element for n in (number, 1 - number))
        if element is out:
            continue
        is_half = other is S16 and element.name in OF_PAIRS and arithmetic is Arithmetic.S32
        if is_half and are_pairs_fast(host()[1]):
            return NarrowOperand(number, element, Arithmetic.PAIRS)
        if other is out and is_widened(element, out, host()[1]):
            return NarrowOperand(number, element, arithmetic)
    return None


def product_step(
    op: AnyOp, call: OpCall[Any], operands: Sequence[StridedLayout], result: StridedLayout
) -> NativeStep | None:
    """Returns a step that computes a dot or a convolution whose operands and result share a supported element type, but
    for a narrow operand of a dot.

    The step takes both operands and the result, at their layouts. It copies operands that BLAS cannot access in place
    to scratch. None for other ops and types, unsupported cases, and without BLAS or a compiler.
    """
    element = call.shape.element
    if not is_product(op) or arithmetic_of(element) is None or not is_provided():
        return None
    is_alike = all(shape.element is element for shape in call.operands) or narrow_operand(call) is not None
    if not is_alike or any(any(shape.dynamic) for shape in call.operands):
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
    library, narrow = blas(), found.narrow
    arithmetic = arithmetic_of(element) if narrow is None else narrow.arithmetic
    assert library is not None
    assert arithmetic is not None
    scratch = (found.scratch * element.byte_size,) if found.scratch else ()
    code = _code(arithmetic, library.integer, 3 + len(scratch), host(), None if narrow is None else narrow.element)
    return NativeStep(code.address, scratch, words_of(found, library, arithmetic), (code, library))


@lru_cache(maxsize=4096)
def _planned(terms: tuple[Term, ...], by_blas: bool) -> ProductPlan:
    return plan(terms, by_blas=by_blas)


@lru_cache(maxsize=4096)
def _narrow_planned(terms: tuple[Term, ...], narrow: NarrowOperand) -> ProductPlan | None:
    return narrow_plan(terms, narrow)


@cache
def _code(
    arithmetic: Arithmetic, integer: int, first: int, host: tuple[str, str], narrow: ElementType | None
) -> Loaded:  # fmt: skip
    text = products_text(arithmetic, integer, tile_of(host[1]), narrow)
    return Loaded(kept_code(text), entry(first))
