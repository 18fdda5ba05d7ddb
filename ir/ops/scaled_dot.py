"""scaled-dot: a dot of numbers in small formats, each multiplied by a scale first (microscaling formats, OCP MX 1.0).

Operands are lhs, rhs and their scales. A scale has the rank of its side, and in each dimension a size that divides the
side's: one element scales a block of adjacent elements. A scalar scale means that its side is not scaled.

Assumption: scaled numbers are not rounded before multiplication; devices may round them to bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..factors.sharding_rule import Factor, FactorKind, ShardingRule, ValueFactors
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..types.element_type import ELEMENT_TYPES, F32
from ..types.shape import Shape, array
from .checks import require_static, text
from .computations import check_arrays
from .dot import Dot, DotAttributes

_DOT = Dot()


@register
class ScaledDot(Op[DotAttributes]):
    """Computes the dot of scaled operands: lhs, rhs, scale of lhs, scale of rhs."""

    opcode = "scaled-dot"
    algebra = Algebra.OPAQUE
    attributes = DotAttributes
    arity = (4, 4)

    def infer_shape(self, operands: Sequence[Shape], attributes: DotAttributes, declared: Shape | None) -> Shape:
        check_arrays("scaled-dot", operands)
        require_static("scaled-dot", *operands)
        for what, shape, scale in zip(("lhs", "rhs"), operands[:2], operands[2:], strict=True):
            if not shape.element.is_float or not scale.element.is_float:
                raise ShapeError(f"scaled-dot: {what} and its scale must be floats: {text(shape)} and {text(scale)}")
            if not scale.rank:
                continue
            divides = (m > 0 and n % m == 0 for n, m in zip(shape.dims, scale.dims, strict=False))
            if scale.rank != shape.rank or not all(divides):
                raise ShapeError(f"scaled-dot: the scale {text(scale)} does not divide {what}, which is {text(shape)}")
        return _DOT.infer_shape(operands[:2], attributes, declared)

    def sharding_rule(self, call: OpCall[DotAttributes]) -> ShardingRule:
        """Returns the rule of dot, with dimensions scaled in blocks and contractions of scaled operands unsharded: the
        padding of a scale may be NaN or infinite, so that zero padding does not stay zero.
        """
        rule = _DOT.sharding_rule(replace(call, operands=call.operands[:2]))
        factors = list(rule.factors)
        scales: list[ValueFactors] = []
        for value, shape, scale in zip(rule.operands, call.operands[:2], call.operands[2:], strict=True):
            dims: list[tuple[int, ...]] = []
            for own, n, m in zip(value, shape.dims, scale.dims, strict=False):
                if m > 1 and (n != m or factors[own[0]].kind is FactorKind.REDUCTION):
                    factors[own[0]] = Factor(n, FactorKind.REPLICATE)
                if m not in (1, n):
                    factors.append(Factor(m, FactorKind.REPLICATE))
                    own = (len(factors) - 1,)
                dims.append(own if m > 1 else ())
            scales.append(tuple(dims))
        return ShardingRule(tuple(factors), (*rule.operands, *scales), rule.results, rule.monoid)

    def kernel(self, call: OpCall[DotAttributes], compile: Compile) -> Kernel:
        wide = ELEMENT_TYPES["f64"] if any(s.element.bits == 64 for s in call.operands) else F32
        sides = tuple(array(wide, s.dims) for s in call.operands[:2])
        product = _DOT.kernel(replace(call, operands=sides), compile)
        compute = wide.numpy

        def run(lhs: Any, rhs: Any, lhs_scale: Any, rhs_scale: Any) -> Any:
            return product(_scaled(lhs.astype(compute), lhs_scale), _scaled(rhs.astype(compute), rhs_scale))

        return run


def _scaled(x: Any, scale: Any) -> Any:
    """Multiplies x with the scales of its blocks."""
    if not scale.ndim:
        return x
    blocks = [part for n, m in zip(x.shape, scale.shape, strict=True) for part in (m, n // m)]
    each = [part for m in scale.shape for part in (m, 1)]
    return (x.reshape(blocks) * scale.astype(x.dtype).reshape(each)).reshape(x.shape)
