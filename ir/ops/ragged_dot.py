"""ragged-dot: a dot whose lhs is divided into groups of consecutive rows, whose sizes are an operand.

The role of the ragged dimension of lhs determines the meaning of groups:

- free: rows of group g are multiplied with the g-th matrix of rhs, which has a group dimension (mixture of experts);
- contracting: each group gives a matrix of its own, along a new first dimension of the result;
- batch: an ordinary dot, which ignores the groups.

`group_sizes` is [groups], preceded by the batch dimensions and the dimensions of the same role before the ragged one if
sizes differ along those. Rows that belong to no group give zeros (the specification of `chlo.ragged_dot`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any

import numpy as np

from ..factors.sharding_rule import FactorKind, Monoid, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Dims
from ..graph.interfaces import FloatTypes, Ranges
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..graph.value_range import Demand, Fact, Range, Visitor
from ..types.shape import Shape, array
from .checks import require_static, text
from .computations import check_arrays, check_dims, multiplied, rounded
from .dot import Precisions, check_pairs, conversions, result_element, summed


@dataclass(frozen=True, slots=True)
class RaggedDotAttributes(Attributes):
    lhs_batch_dims: Dims = ()
    lhs_contracting_dims: Dims = ()
    rhs_batch_dims: Dims = ()
    rhs_contracting_dims: Dims = ()
    lhs_ragged_dims: Dims = ()
    rhs_group_dims: Dims = ()
    operand_precision: Precisions = ()


class _Mode(Enum):
    FREE = "free"
    CONTRACTING = "contracting"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class _Roles:
    """The dimensions of lhs and rhs by role. `before` are those before the ragged dimension with the same role."""

    mode: _Mode
    ragged: int
    lhs_free: Dims
    rhs_free: Dims
    before: Dims

    @staticmethod
    def of(operands: Sequence[Shape], a: RaggedDotAttributes) -> _Roles:
        lhs, rhs = operands[:2]
        (ragged,) = a.lhs_ragged_dims
        lhs_free = tuple(d for d in range(lhs.rank) if d not in a.lhs_batch_dims + a.lhs_contracting_dims)
        taken = a.rhs_batch_dims + a.rhs_contracting_dims + a.rhs_group_dims
        mode, role = _Mode.FREE, lhs_free
        if ragged in a.lhs_batch_dims:
            mode, role = _Mode.BATCH, a.lhs_batch_dims
        elif ragged in a.lhs_contracting_dims:
            mode, role = _Mode.CONTRACTING, a.lhs_contracting_dims
        rhs_free = tuple(d for d in range(rhs.rank) if d not in taken)
        return _Roles(mode, ragged, lhs_free, rhs_free, role[: role.index(ragged)])

    def size_dims(self, a: RaggedDotAttributes) -> Dims:
        """Returns the dimensions of lhs that may precede the groups in `group_sizes`."""
        return self.before if self.mode is _Mode.BATCH else a.lhs_batch_dims + self.before


@register
class RaggedDot(Op[RaggedDotAttributes], FloatTypes, Ranges):
    """Multiplies the groups of lhs with rhs. The operands are lhs, rhs, group sizes."""

    opcode = "ragged-dot"
    algebra = Algebra.BILINEAR
    attributes = RaggedDotAttributes
    arity = (3, 3)
    converts_result = True

    def infer_shape(self, operands: Sequence[Shape], attributes: RaggedDotAttributes, declared: Shape | None) -> Shape:
        check_arrays("ragged-dot", operands)
        require_static("ragged-dot", *operands)
        (lhs, rhs, sizes), a = operands, attributes
        if len(a.lhs_ragged_dims) != 1:
            raise ShapeError(f"ragged-dot needs one lhs_ragged_dims, it has {len(a.lhs_ragged_dims)}")
        check_dims("ragged-dot: lhs_ragged_dims", a.lhs_ragged_dims, lhs.rank)
        check_dims("ragged-dot: lhs", a.lhs_batch_dims + a.lhs_contracting_dims, lhs.rank)
        check_dims("ragged-dot: rhs", a.rhs_batch_dims + a.rhs_contracting_dims + a.rhs_group_dims, rhs.rank)
        check_pairs("ragged-dot", "batch", lhs, rhs, a.lhs_batch_dims, a.rhs_batch_dims)
        check_pairs("ragged-dot", "contracting", lhs, rhs, a.lhs_contracting_dims, a.rhs_contracting_dims)
        roles = _Roles.of(operands, a)
        _check_sizes(operands, a, roles)
        dims = [lhs.dims[d] for d in a.lhs_batch_dims + roles.lhs_free] + [rhs.dims[d] for d in roles.rhs_free]
        if roles.mode is _Mode.CONTRACTING:
            dims.insert(0, sizes.dims[-1])
        return array(result_element("ragged-dot", lhs.element, rhs.element, declared), tuple(dims))

    def sharding_rule(self, call: OpCall[RaggedDotAttributes]) -> ShardingRule:
        (lhs, rhs, sizes), a = call.operands, call.attributes
        roles = _Roles.of(call.operands, a)
        b = RuleBuilder()
        groups = b.factor(sizes.dims[-1], FactorKind.REPLICATE)
        left: dict[int, int | None] = {}
        over = summed("ragged-dot", call)
        for d, n in enumerate(lhs.dims):
            kind = over if d in a.lhs_contracting_dims else FactorKind.PASS
            # The start of a group depends on the sizes of all groups before it.
            left[d] = b.factor(n, FactorKind.REPLICATE if d == roles.ragged else kind)
        right = {d: b.factor(rhs.dims[d]) for d in roles.rhs_free}
        result = [left[d] for d in a.lhs_batch_dims + roles.lhs_free] + [right[d] for d in roles.rhs_free]
        if roles.mode is _Mode.CONTRACTING:
            result.insert(0, groups)
        pairs = zip(a.rhs_batch_dims + a.rhs_contracting_dims, a.lhs_batch_dims + a.lhs_contracting_dims, strict=True)
        right |= {other: left[own] for other, own in pairs}
        right |= dict.fromkeys(a.rhs_group_dims, groups)
        size_dims = [left[d] for d in roles.size_dims(a)] if sizes.rank > 1 else []
        operands = [[left[d] for d in range(lhs.rank)], [right[d] for d in range(rhs.rank)], [*size_dims, groups]]
        return b.rule(operands, [result], Monoid.ADD)

    def demands(
        self, call: OpCall[RaggedDotAttributes], operands: Sequence[Fact], results: Sequence[Demand], visitor: Visitor
    ) -> list[Demand]:
        """Demands group sizes that together fit into the ragged dimension."""
        lhs, _, sizes = call.operands
        rows, groups = lhs.dims[call.attributes.lhs_ragged_dims[0]], sizes.dims[-1]
        return [None, None, Range.closed(0, rows // groups) if groups else None]

    def kernel(self, call: OpCall[RaggedDotAttributes], compile: Compile) -> Kernel:
        (lhs, rhs, sizes), a = call.operands, call.attributes
        roles = _Roles.of(call.operands, a)
        element, dims = call.shape.element, call.shape.dims
        convert_lhs, convert_rhs = conversions((lhs, rhs), call.shape)
        lhs_order = a.lhs_batch_dims + roles.lhs_free + a.lhs_contracting_dims
        rhs_order = a.rhs_group_dims + a.rhs_batch_dims + a.rhs_contracting_dims + roles.rhs_free
        product = _PRODUCTS[roles.mode]
        batch = math.prod(lhs.dims[d] for d in a.lhs_batch_dims)
        free, contracting = (_around(lhs, dims, roles) for dims in (roles.lhs_free, a.lhs_contracting_dims))
        columns = math.prod(rhs.dims[d] for d in roles.rhs_free)
        rhs_groups = rhs.dims[a.rhs_group_dims[0]] if a.rhs_group_dims else 1
        varies = sizes.rank > 1 and roles.mode is not _Mode.BATCH

        def run(x: Any, y: Any, group_sizes: Any) -> Any:
            x = convert_lhs(x).transpose(lhs_order).reshape(batch, *free, *contracting)
            y = convert_rhs(y).transpose(rhs_order).reshape(rhs_groups, batch, *contracting, columns)
            counts = group_sizes.reshape(batch, -1, group_sizes.shape[-1]) if varies else group_sizes.reshape(1, 1, -1)
            return rounded(product(x, y, _ranges(counts)).reshape(dims), element)

        return run


def _around(lhs: Shape, role: Dims, roles: _Roles) -> tuple[int, int, int]:
    """Returns the products of the sizes of a role's dimensions before, at and after the ragged one; (1, 1, all) if it
    has another role.
    """
    place = role.index(roles.ragged) if roles.ragged in role else -1
    sizes = [lhs.dims[d] for d in role]
    if place < 0:
        return 1, 1, math.prod(sizes)
    return math.prod(sizes[:place]), sizes[place], math.prod(sizes[place + 1 :])


Part = tuple[slice, slice, int, slice]  # batch, dimensions before the ragged one, group, range of the ragged one


def _ranges(counts: Any) -> list[Part]:
    """Returns the parts of lhs that belong to a group; counts of [1, 1, groups] apply to the full batch."""
    parts: list[Part] = []
    for batch, before in np.ndindex(*counts.shape[:2]):
        ends = list(accumulate(int(n) for n in counts[batch, before]))
        starts = [0, *ends[:-1]]
        whole = counts.shape[:2] == (1, 1)
        rows, outer = (slice(None), slice(None)) if whole else (slice(batch, batch + 1), slice(before, before + 1))
        parts += [
            (rows, outer, group, slice(max(0, start), max(0, end)))
            for group, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
    return parts


# lhs is [batch, free before, free, free after, contracting before, contracting, contracting after]; rhs is [groups,
# batch, the same three, columns].


def _by_rows(x: Any, y: Any, parts: list[Part]) -> Any:
    """Multiplies each group of rows with its own matrix."""
    batch, outer, rows, inner = x.shape[:4]
    depth, columns = math.prod(x.shape[4:]), y.shape[-1]
    result = np.zeros((batch, outer, rows, inner, columns), x.dtype)
    for at, before, group, range_ in parts:
        part = x[at, before, range_]
        matrix = y[group, at].reshape(part.shape[0], depth, columns)
        height = math.prod(part.shape[1:4])
        product = multiplied(part.reshape(part.shape[0], height, depth), matrix)
        result[at, before, range_] = product.reshape(*part.shape[:4], columns)
    return result


def _by_depth(x: Any, y: Any, parts: list[Part]) -> Any:
    """Computes one matrix per group from its part of the contraction."""
    batch, rows, columns = x.shape[0], math.prod(x.shape[1:4]), y.shape[-1]
    groups = 1 + max((group for _, _, group, _ in parts), default=-1)
    x = x.reshape(batch, rows, *x.shape[4:])
    result = np.zeros((groups, batch, rows, columns), x.dtype)
    for at, before, group, range_ in parts:
        left, right = x[at, :, before, range_], y[0, at, before, range_]
        depth = math.prod(left.shape[2:])
        result[group, at] += multiplied(left.reshape(len(left), rows, depth), right.reshape(len(left), depth, columns))
    return result


def _by_batch(x: Any, y: Any, parts: list[Part]) -> Any:
    batch, rows, depth = x.shape[0], math.prod(x.shape[1:4]), math.prod(x.shape[4:])
    return multiplied(x.reshape(batch, rows, depth), y.reshape(batch, depth, y.shape[-1]))


_PRODUCTS = {_Mode.FREE: _by_rows, _Mode.CONTRACTING: _by_depth, _Mode.BATCH: _by_batch}


def _check_sizes(operands: Sequence[Shape], a: RaggedDotAttributes, roles: _Roles) -> None:
    lhs, rhs, sizes = operands
    if not sizes.element.is_integer or not sizes.rank:
        raise ShapeError(f"ragged-dot: the group sizes must be an array of integers, they are {text(sizes)}")
    wanted = [lhs.dims[d] for d in roles.size_dims(a)]
    if sizes.rank > 1 and list(sizes.dims[:-1]) != wanted:
        raise ShapeError(f"ragged-dot: the group sizes must be [groups] or {[*wanted, 'groups']}, not {text(sizes)}")
    wanted_groups = 1 if roles.mode is _Mode.FREE else 0
    if len(a.rhs_group_dims) != wanted_groups:
        raise ShapeError(
            f"ragged-dot: with a ragged {roles.mode.value} dimension rhs must have {wanted_groups} group dimensions, "
            f"it has {len(a.rhs_group_dims)}"
        )
    if wanted_groups and rhs.dims[a.rhs_group_dims[0]] != sizes.dims[-1]:
        raise ShapeError(
            f"ragged-dot: rhs has {rhs.dims[a.rhs_group_dims[0]]} groups, but there are {sizes.dims[-1]} group sizes"
        )
