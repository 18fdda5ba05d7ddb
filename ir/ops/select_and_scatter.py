"""select-and-scatter: selects one element of every window of an array and scatters a number to its position.

It is the gradient of a reduce-window with maximum. The kernel selects in all windows at once, one window position after
the other, and scatters like `scatter`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..factors.reach import Reach, Read
from ..factors.sharding_rule import FactorKind, RuleBuilder, ShardingRule
from ..graph.attributes import Attributes, Window
from ..graph.interfaces import Applies
from ..graph.monoid import MONOID_OPS, elementwise_kernel, reduction_monoid
from ..graph.op import Algebra, Compile, Kernel, Op, OpCall, ShapeError, register
from ..types.element_type import PRED
from ..types.shape import Shape, array
from .checks import WINDOW_HELP, require_static, text
from .comparison import CompareAttributes, ComparisonDirection
from .computations import check_arrays, check_reducer, check_signature
from .numerics import numpy_type
from .scatter import accumulate, one_by_one
from .window import is_trivial, window_count, window_reach, window_view

if TYPE_CHECKING:
    from ..graph.computation import Computation


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectAndScatterAttributes(Attributes):
    window: Window = field(default=Window())
    select: Computation
    scatter: Computation


@register
class SelectAndScatter(Op[SelectAndScatterAttributes], Applies):
    """Operand, one number per window, initial value -> an array of the operand's shape.

    In a window an element stays selected while `select` of it and the next elements holds. `scatter` combines the
    current element at the selected position with the window's number. Positions outside the operand are never selected.
    """

    opcode = "select-and-scatter"
    attributes = SelectAndScatterAttributes
    arity = (3, 3)
    algebra = Algebra.FOLD
    applied = "scatter"

    def folded(self, call: OpCall[SelectAndScatterAttributes]) -> tuple[int, ...]:
        return 1, 2

    def infer_shape(
        self, operands: Sequence[Shape], attributes: SelectAndScatterAttributes, declared: Shape | None
    ) -> Shape:
        check_arrays("select-and-scatter", operands)
        require_static("select-and-scatter", *operands)
        operand, source, init = operands
        window = attributes.window.dims
        if len(window) != operand.rank:
            raise ShapeError(
                f"select-and-scatter: the window has {len(window)} dimensions, the operand is {text(operand)}",
                WINDOW_HELP,
            )
        for d, w in enumerate(window):
            if min(w.size, w.stride) < 1 or w.lhs_dilate != 1 or w.rhs_dilate != 1:
                raise ShapeError(
                    f"select-and-scatter: window dimension {d}: size and stride must be at least 1, dilations 1"
                )
        counts = tuple(window_count(n, w) for n, w in zip(operand.dims, window, strict=True))
        if source.dims != counts:
            raise ShapeError(
                f"select-and-scatter: {list(counts)} windows need as many numbers, not {text(source)}"
            )
        if init.rank:
            raise ShapeError(f"select-and-scatter: the initial value must be a scalar, it is {text(init)}")
        scalar = array(operand.element)
        check_signature("select-and-scatter: the select", attributes.select, [scalar, scalar], array(PRED))
        check_reducer("select-and-scatter", attributes.scatter, [init], [source])
        return operand.with_element(attributes.scatter.root.shape.element)

    def sharding_rule(self, call: OpCall[SelectAndScatterAttributes]) -> ShardingRule:
        """Returns the rule: a result element depends on all windows that contain it, and on all elements of those."""
        b = RuleBuilder()
        whole: list[int | None] = []
        windows: list[int | None] = []
        reads: list[Read] = []
        known = selects_extreme(call.attributes.select) is not None
        known = known and reduction_monoid(call.attributes.scatter) is not None
        sizes = zip(call.operands[0].dims, call.operands[1].dims, call.attributes.window.dims, strict=True)
        for d, (n, m, w) in enumerate(sizes):
            if is_trivial(w) or not known:
                whole.append(b.factor(n, FactorKind.PASS if is_trivial(w) else FactorKind.REPLICATE))
                windows.append(whole[-1] if is_trivial(w) else b.factor(m, FactorKind.REPLICATE))
                continue
            pair = b.read(m, n)
            windows.append(pair[0])
            whole.append(pair[1])
            touching = Reach(1, w.low - w.size + 1, w.size, w.stride)
            reads += [Read(1, d, (touching,)), Read(0, d, (touching, window_reach(w)))]
        return b.rule([whole, windows, []], [whole], reads=reads)

    def kernel(self, call: OpCall[SelectAndScatterAttributes], compile: Compile) -> Kernel:
        dims, counts = call.operands[0].dims, call.operands[1].dims
        size, element = math.prod(dims), call.shape.element
        monoid = reduction_monoid(call.attributes.scatter)
        if monoid is not None:
            combine = accumulate(MONOID_OPS[monoid], element)
        else:
            combine = one_by_one(elementwise_kernel(call.attributes.scatter, compile), False, False)
        select, final = elementwise_kernel(call.attributes.select, compile), numpy_type(element)
        places = _places(dims, counts, call.attributes.window) if size and math.prod(counts) else None

        def run(x: Any, source: Any, init: Any) -> Any:
            result = np.full(size, init, final)
            if places is None:
                return result.reshape(dims)
            chosen = _chosen(x.reshape(-1), places, select)
            found = chosen >= 0
            grid = (np.zeros(int(found.sum()), np.int64), chosen[found])
            (result,) = combine([result], (0,), grid, [source.reshape(-1)[found]])
            return result.reshape(dims)

        return run


def selects_extreme(select: Computation) -> bool | None:
    """Returns True if the computation selects the larger of its parameters, False if the smaller, else None."""
    root = select.root
    if not isinstance(root.attributes, CompareAttributes) or list(root.operands) != list(select.parameters):
        return None
    direction = root.attributes.direction
    if direction in (ComparisonDirection.GE, ComparisonDirection.GT):
        return True
    return False if direction in (ComparisonDirection.LE, ComparisonDirection.LT) else None


def _places(dims: tuple[int, ...], counts: tuple[int, ...], window: Window) -> Any:
    """Returns the flat index of each element of each window, -1 outside the array, as [window positions, windows]."""
    numbers = np.arange(math.prod(dims)).reshape(dims)
    view = window_view(numbers, -1, window.dims, counts)
    return np.ascontiguousarray(view.reshape(math.prod(counts), -1).T)


def _chosen(flat: Any, places: Any, select: Kernel) -> Any:
    """Returns the flat index selected in each window; -1 where a window lies outside the array."""
    chosen: Any = places[0].copy()
    for candidate in places[1:]:
        keeps = select(flat[np.maximum(chosen, 0)], flat[np.maximum(candidate, 0)])
        np.copyto(chosen, candidate, where=(candidate >= 0) & ((chosen < 0) | ~keeps))
    return chosen
