"""Lowers products of arrays to native steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from ....ir.graph.op import AnyOp, OpCall
from ....ir.ops.convolution import Convolution
from ....ir.ops.dot import Dot
from ....ir.types.element_type import ElementType
from ..compile_llvm import Loaded, host, is_available, kept_code
from ..step import NativeStep, StridedLayout
from .arithmetic import Arithmetic, arithmetic_of
from .blas import blas
from .plan import plan
from .stages import ProductPlan
from .terms import Term, terms_of
from .text import entry, products_text
from .tiles import tile_of
from .windows import convolution_plan
from .words import words_of


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
