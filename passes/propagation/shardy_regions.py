"""Converts Shardy's manual computations to GSPMD's form, so that there is one form of manual regions.

JAX writes a `shard_map` as one custom-call that makes all operands local, a call of the body, and one that makes all
results global again. GSPMD's form has for each value a sharding annotation and a custom-call that changes its shape:

    before:  l = f32[4] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape",
                 frontend_attributes={xla.sdy.in_shardings=.., xla.sdy.manual_axes=..}
    after:   p = f32[8] custom-call(x), custom_call_target="Sharding", sharding={mesh['x'=2], [{'x'}]}
             l = f32[4] custom-call(p), custom_call_target="SPMDFullToShardShape", sharding={mesh['x'=2], manual}

The local values have the manual axes of their own region only; `regions` adds those of enclosing regions. If nothing
enters a region (JAX writes `axis_index` so), the values that leave it are annotated first, because nothing else gives
their axes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar

from ...ir.diagnostics import fail
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.calls.custom_call import is_custom_call, target_of
from ...ir.reached import reached
from ...ir.sharding.mesh import AxisRef
from ...ir.sharding.sharding import DimSharding, Sharding, TupleSharding, leaf_shardings
from ...ir.types.shape import Shape
from ..base import Pass, PassContext

SHARDY_INTO = "xla.sdy.GlobalToLocalShape"
SHARDY_OUT_OF = "xla.sdy.LocalToGlobalShape"
INTO = "SPMDFullToShardShape"
OUT_OF = "SPMDShardToFullShape"


@dataclass(frozen=True)
class ShardyRegions(Pass):
    """Rewrites the borders of Shardy's manual computations."""

    name: ClassVar[str] = "shardy-regions"

    def is_idle(self, module: Module) -> bool:
        return not _borders(module)

    def run(self, module: Module, context: PassContext) -> bool:
        found = _borders(module)
        for computation, instruction in found:
            _rewrite(computation, instruction, entering=target_of(instruction) == SHARDY_INTO)
        return bool(found)


def _borders(module: Module) -> list[tuple[Computation, Instruction]]:
    calls = [(computation, call) for computation in module for call in computation.having(is_custom_call)]
    return [(computation, call) for computation, call in calls if target_of(call) in (SHARDY_INTO, SHARDY_OUT_OF)]


def _rewrite(computation: Computation, border: Instruction, entering: bool) -> None:
    shapes = list(border.shape.leaves())
    said = border.annotation
    shardings = said.elements if isinstance(said, TupleSharding) else leaf_shardings(said, len(shapes))
    if not len(shapes) == len(shardings) == len(border.operands) or None in shardings:
        which = "in" if entering else "out"
        fail(f"{border.name}: {len(border.operands)} operands, {len(shapes)} results and "
             f"{sum(s is not None for s in shardings)} shardings in xla.sdy.{which}_shardings", border.location)
    manual = tuple(AxisRef(name) for name in _manual_axes(border))
    values: list[Instruction] = []
    for operand, shape, outside in zip(border.operands, shapes, shardings, strict=True):
        assert outside is not None
        check_sides(border, operand, shape)
        name = f"{border.name}.{operand.name}"
        if not shape.is_array:
            values.append(operand)
        elif entering:
            placed = _call(computation, border, "Sharding", operand, operand.shape, outside, f"{name}.outside")
            values.append(_call(computation, border, INTO, placed, shape, _inside(outside, manual, shape.rank), name))
        else:
            if _is_from_nothing(operand):
                free = replace(outside, dims=(DimSharding(is_open=True),) * shape.rank)
                inside = _inside(free, manual, shape.rank)
                operand = _call(computation, border, "Sharding", operand, operand.shape, inside, f"{name}.inside")
            values.append(_call(computation, border, OUT_OF, operand, shape, outside, name))
    value = values[0] if border.shape.is_array else computation.build("tuple", *values, like=border, before=border)
    computation.replace_all_uses(border, value)
    computation.remove(border)
    if border.shape.is_array:
        computation.rename(value, border.name)


def check_sides(border: Instruction, operand: Instruction, shape: Shape) -> None:
    """Raises CompileError unless a value has the same type and rank on both sides of a region's border."""
    if _without_sizes(operand.shape) != _without_sizes(shape):
        fail(f"{border.name}: {operand.name} is {operand.shape}, {shape} on the other side of the region's border",
             border.location, help="only sizes of dimensions may differ")


def _without_sizes(shape: Shape) -> object:
    return (shape.element, shape.rank) if shape.is_array else shape


def _is_from_nothing(value: Instruction) -> bool:
    """Whether a value depends on no parameter of its computation."""
    return not any(i.op.role is Role.PARAMETER for i in reached([value], lambda i: i.operands))


def _manual_axes(border: Instruction) -> list[str]:
    """Returns the names in `#sdy<manual_axes{"x", "y"}>`."""
    text = str(border.frontend_attributes.get("xla.sdy.manual_axes", ""))
    return re.findall(r'"([^"]*)"', text)


def _inside(outside: Sharding, manual: tuple[AxisRef, ...], rank: int) -> Sharding:
    """Returns the sharding inside: the manual axes, and dimensions that are as open as those outside."""
    opened = [d.is_open for d in outside.dims] + [False] * (rank - len(outside.dims))
    names = {m.name for m in manual}
    axes = [tuple(a for a in d.axes if a.name not in names) for d in outside.dims] + [()] * (rank - len(outside.dims))
    dims = tuple(DimSharding(a, o) for a, o in zip(axes, opened, strict=True))
    return replace(outside, dims=dims, manual=manual, replicated=())


def _call(
    computation: Computation, border: Instruction, target: str, operand: Instruction, shape: Shape, sharding: Sharding,
    name: str,
) -> Instruction:
    made = computation.build("custom-call", operand, shape=shape.without_layout(), like=border, before=border,
                             name=name, custom_call_target=target)
    made.sharding = sharding
    return made
