"""Products of arrays as native steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from ....ir.graph.op import AnyOp, OpCall
from ....ir.ops.convolution import Convolution
from ....ir.ops.dot import Dot
from ....ir.types.element_type import ElementType
from ..cache import cached, folder
from ..compile_llvm import Loaded, host, is_available, object_code, version
from ..step import Layout, NativeStep
from .blas import blas
from .plan import plan
from .stages import Plan
from .terms import Term, terms_of
from .text import entry, products_text
from .words import words_of


def is_provided() -> bool:
    """Whether there is a BLAS library and a compiler."""
    return is_available() and blas() is not None


def product_terms(op: AnyOp, call: OpCall[Any], layouts: Sequence[Layout]) -> tuple[Term, ...] | None:
    """Returns the terms of a dot, or of a convolution whose windows are single elements; None for other uses.

    Layouts are those of both operands and of the result. A convolution without elements is none, whatever its windows.
    """
    if isinstance(op, Convolution):
        if call.attributes.sparsity_config is not None or any(0 in layout.dims for layout in layouts):
            return None
    elif not isinstance(op, Dot):
        return None
    return terms_of(op.sharding_rule(call), layouts)


def product_step(op: AnyOp, call: OpCall[Any], operands: Sequence[Layout], result: Layout) -> NativeStep | None:
    """Returns a step that computes a product whose operands and result are all of f32, or all of f64.

    The step takes both operands and the result, at their layouts. It copies to scratch what BLAS cannot read or write
    in place. None for other ops and types, and where nothing is provided.
    """
    element = call.shape.element
    if not is_provided() or not element.is_float or element.bits < 32:
        return None
    if any(shape.element is not element for shape in call.operands):
        return None
    terms = product_terms(op, call, (*operands, result))
    return None if terms is None else terms_step(terms, element)


@lru_cache(maxsize=4096)
def terms_step(terms: tuple[Term, ...], element: ElementType) -> NativeStep:
    """Returns a step that computes the product of these terms. Something must be provided."""
    library = blas()
    assert library is not None
    found = plan(terms)
    scratch = (found.scratch * element.byte_size,) if found.scratch else ()
    code = _code(library.integer, 3 + len(scratch))
    return NativeStep(code.address, scratch, words_of(found, library, element.bits), (code, library))


@cache
def _code(integer: int, first: int) -> Loaded:
    text = products_text(integer)
    return Loaded(cached((text, version(), *host()), lambda: object_code(text), folder()), entry(first))
