"""Custom-calls of JAX for sparse matrices on CPUs: a matrix in CSR format times a dense vector or matrix.

A sparse matrix has three arrays: its elements, row by row; the start of each row among them, followed by the end; and
the column of each element. Elements before the first row, after the last row, or in columns beyond the matrix are
padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ...graph.op import Compile, Kernel, ShapeError
from ...types.element_type import ELEMENT_TYPES, S32, S64
from ...types.shape import Shape
from ..checks import text
from ..numerics import numpy_type
from .behaviour import Behaviour, Call

_ELEMENTS = [ELEMENT_TYPES[name] for name in ("s32", "s64", "f32", "f64", "c64", "c128")]


class CompressedRows(Behaviour):
    """The target with operands T[k] elements, I[m+1] row starts, I[k] columns, T[n] or T[n,p], and result T[m] or
    T[m,p].
    """

    has_rule = True

    def check(self, target: str, operands: Sequence[Shape], result: Shape) -> None:
        if len(operands) != 4 or any(not s.is_array or s.is_dynamic for s in (*operands, result)):
            raise ShapeError(f"custom-call {target} takes elements, row starts, columns and a dense array")
        elements, rows, columns, dense = operands
        types = elements.element in _ELEMENTS and rows.element in (S32, S64)
        types = types and elements.element is dense.element is result.element and rows.element is columns.element
        if not types or elements.rank != 1 or rows.rank != 1 or columns.dims != elements.dims:
            raise ShapeError(f"custom-call {target}: {', '.join(map(text, operands))} are not CSR and dense arrays")
        if dense.rank not in (1, 2) or result.dims != (rows.dims[0] - 1, *dense.dims[1:]):
            raise ShapeError(f"custom-call {target}: {text(result)} is not the product of {rows.dims[0] - 1} rows "
                             f"and {text(dense)}")  # fmt: skip

    def sharding_rule(self, call: Call) -> ShardingRule:
        """Returns the rule that divides the columns of the dense matrix."""
        b = RuleBuilder()
        elements, rows, _, dense = call.operands
        k, ends, m, n = (
            b.factor(size, FactorKind.REPLICATE)
            for size in (elements.dims[0], rows.dims[0], call.shape.dims[0], dense.dims[0])
        )
        columns = [b.factor(size) for size in dense.dims[1:]]
        return b.rule([[k], [ends], [k], [n, *columns]], [[m, *columns]])

    def kernel(self, call: Call, compile: Compile) -> Kernel:
        dims, dtype = call.shape.dims, numpy_type(call.shape.element)
        places = np.arange(call.operands[0].dims[0])

        def run(elements: Any, rows: Any, columns: Any, dense: Any) -> Any:
            row = np.searchsorted(rows, places, side="right") - 1
            counts = (row >= 0) & (row < dims[0]) & (columns >= 0) & (columns < dense.shape[0])
            terms = elements[counts].reshape(-1, *(1 for _ in dims[1:])) * dense[columns[counts]]
            result = np.zeros(dims, dtype)
            np.add.at(result, row[counts], terms)
            return result

        return run


BEHAVIOURS: dict[str, Behaviour] = {"cpu_csr_sparse_dense_ffi": CompressedRows()}
