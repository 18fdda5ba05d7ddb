"""scan: applies a computation to consecutive slices of arrays, passing carries from step to step.

Operands are arrays, then `num_carries` initial carries. The computation takes a slice of each array, then the carries,
and returns a slice of each output, then the new carries. The result is the stacked outputs, then the last carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..factors.sharding_rule import ShardingRule, replicated_rule
from ..graph.attributes import Attributes, Dims
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..types.shape import Shape, tuple_shape
from .checks import require_array, require_static, text
from .computations import check_arrays, check_signature
from .numerics import numpy_type

if TYPE_CHECKING:
    from ..graph.computation import Computation


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanAttributes(Attributes):
    """`is_associative` allows another order of the steps. It is false by default; XLA always prints it."""

    dimensions: Dims
    num_carries: int
    is_reverse: bool = False
    is_associative: bool | None = None
    to_apply: Computation

    def __post_init__(self) -> None:
        if self.is_associative is None:
            object.__setattr__(self, "is_associative", False)


@register
class Scan(Op[ScanAttributes]):
    """Arrays, carries -> outputs stacked along the dimension in `dimensions`, carries. A single result is no tuple."""

    opcode = "scan"
    algebra = Algebra.MOVE
    attributes = ScanAttributes
    arity = (1, None)

    def infer_shape(self, operands: Sequence[Shape], attributes: ScanAttributes, declared: Shape | None) -> Shape:
        check_arrays("scan", operands)
        require_static("scan", *operands)
        body = attributes.to_apply
        if len(attributes.dimensions) != 1:
            raise ShapeError(f"scan needs one dimension, it has {len(attributes.dimensions)}")
        if not 0 <= attributes.num_carries <= len(operands):
            raise ShapeError(f"scan: num_carries is {attributes.num_carries}, there are {len(operands)} operands")
        count = len(operands) - attributes.num_carries
        arrays, carries = operands[:count], operands[count:]
        (dim,) = attributes.dimensions
        length = _length(dim, arrays, declared, attributes.num_carries)
        slices = [a.with_dims(a.dims[:dim] + a.dims[dim + 1 :]) for a in arrays]
        check_signature("scan: the", body, [*slices, *carries], None)
        results = list(_elements(body.root.shape))
        outputs, returned = results[: len(results) - len(carries)], results[len(results) - len(carries) :]
        for number, (have, want) in enumerate(zip(returned, carries, strict=False)):
            if not have.compatible(want):
                raise ShapeError(f"scan: carry {number} is {text(want)}, the computation returns {text(have)} for it")
        if len(results) < len(carries):
            raise ShapeError(f"scan: the computation returns {len(results)} values for {len(carries)} carries")
        for number, output in enumerate(outputs):
            require_array("scan", output, f"output {number} of the computation")
            if output.rank < dim:
                raise ShapeError(f"scan: outputs {text(output)} cannot be stacked along dimension {dim}")
        stacked = [o.with_dims((*o.dims[:dim], length, *o.dims[dim:])) for o in outputs]
        found = (*stacked, *returned)
        return found[0] if len(found) == 1 and not body.root.shape.is_tuple else tuple_shape(found)

    def sharding_rule(self, call: OpCall[ScanAttributes]) -> ShardingRule:
        # The computation has the sizes of full slices, and its steps are sequential.
        return replicated_rule(call.operands, tuple(call.shape.leaves()))

    def kernel(self, call: OpCall[ScanAttributes], compile: Compile) -> Kernel:
        a, body = call.attributes, call.attributes.to_apply
        (dim,), function, is_tuple = a.dimensions, compile(body), body.root.shape.is_tuple
        results = list(_elements(call.shape))
        count, stacked = len(call.operands) - a.num_carries, len(results) - a.num_carries
        types = [numpy_type(s.element) for s in results[:stacked]]
        length = results[0].dims[dim] if stacked else call.operands[0].dims[dim]
        steps = range(length - 1, -1, -1) if a.is_reverse else range(length)

        def run(*operands: Any) -> Any:
            carries = list(operands[count:])
            outputs = [np.empty(s.dims, t) for s, t in zip(results, types, strict=False)]
            rows = [np.moveaxis(o, dim, 0) for o in outputs]
            for step in steps:
                found = function(*(np.take(x, step, dim) for x in operands[:count]), *carries)
                values = list(found) if is_tuple else [found]
                for row, value in zip(rows, values, strict=False):
                    row[step] = value
                carries = values[stacked:]
            final = (*outputs, *carries)
            return final if call.shape.is_tuple else final[0]

        return run


def _elements(shape: Shape) -> tuple[Shape, ...]:
    return shape.elements if shape.is_tuple else (shape,)


def _length(dim: int, arrays: Sequence[Shape], declared: Shape | None, carries: int) -> int:
    """Returns the number of steps: the size of the arrays along the dimension, or else of the declared outputs."""
    sources = list(arrays)
    if not sources and declared is not None:
        parts = _elements(declared)
        sources = list(parts[: len(parts) - carries])
    lengths: set[int] = set()
    for shape in sources:
        if not 0 <= dim < shape.rank:
            raise ShapeError(f"scan: dimension {dim} is out of range for {text(shape)}")
        lengths.add(shape.dims[dim])
    if len(lengths) > 1:
        raise ShapeError(f"scan: the arrays have different sizes along dimension {dim}: {sorted(lengths)}")
    if not lengths:
        raise ShapeError("scan: without arrays and outputs the number of steps is unknown")
    return lengths.pop()
