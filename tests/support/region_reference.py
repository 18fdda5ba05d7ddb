"""What a program with manual regions means, without the partitioner: every device computes everything outside of them.

`whole_results` runs any GLOBAL program. Where it has regions, it becomes a program per device by hand: at the way in a
device cuts its tile out of the whole array, at the way out the tiles are put together by one sum over all devices.
Collectives inside stay what they are. Assumption: shardings at borders name their axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hloom.ir.factors.sharding_rule import Monoid
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, Stage, clone_module
from hloom.ir.graph.monoid import exact_identity
from hloom.ir.ops.calls.custom_call import is_annotation
from hloom.ir.sharding.sharding import Sharding
from hloom.ir.types.element_type import Kind
from hloom.ir.types.shape import array
from hloom.runtime.evaluator import evaluate
from hloom.runtime.fabric.tiles import digit_value
from hloom.runtime.simulator import simulate

Array = np.ndarray[Any, Any]
_INTO, _OUT_OF = "SPMDFullToShardShape", "SPMDShardToFullShape"


def whole_results(module: Module, inputs: Sequence[Array]) -> list[Array]:
    """The results of a GLOBAL program, with manual regions or without."""
    if not has_regions(module):
        return evaluate(module, inputs)
    local = clone_module(module)
    for computation in local:
        for instruction in list(computation):
            if _target(instruction) in (_INTO, _OUT_OF):
                made = (_cut if _target(instruction) == _INTO else _joined)(computation, instruction)
                computation.replace_all_uses(instruction, made)
    for computation in local:
        for instruction in list(computation):
            instruction.sharding = None
            if is_annotation(instruction):
                computation.replace_all_uses(instruction, instruction.operands[0])
        computation.root = computation.root
    local.stage = Stage.LOCAL
    return simulate(local, inputs)


def has_regions(module: Module) -> bool:
    return any(_target(i) in (_INTO, _OUT_OF) for c in module for i in c)


def regions_are_closed(module: Module) -> bool:
    """Whether values of the entry get into regions and out of them through borders alone."""
    inside: dict[Instruction, bool | None] = {}  # None: the value depends on nothing, and may be anywhere
    for instruction in module.entry:
        around = {inside[o] for o in instruction.operands} - {None}
        if instruction.opcode == "parameter":
            around = {False}
        if _target(instruction) in (_INTO, _OUT_OF):
            enters = _target(instruction) == _INTO
            if around - {not enters}:
                return False
            around = {enters}
        if len(around) > 1:
            return False
        inside[instruction] = next(iter(around), None)
    return not inside[module.entry.root]


def _target(instruction: Instruction) -> str | None:
    return getattr(instruction.attributes, "custom_call_target", None)


def _cut(c: Computation, border: Instruction) -> Instruction:
    (whole,) = border.operands
    starts = _starts(c, border, whole.sharding, border.shape.dims, whole.shape.dims)
    return c.build("dynamic-slice", whole, *starts, dynamic_slice_sizes=border.shape.dims, before=border)


def _joined(c: Computation, border: Instruction) -> Instruction:
    """The first device of those with the same tile gives it, the others zeros that change no sign of zero."""
    (tile,) = border.operands
    shape, element = border.shape.without_layout(), border.shape.element
    zero = c.constant(exact_identity(Monoid.OR if element.kind is Kind.PRED else Monoid.ADD, element), str(element))
    c.move_before(zero, border)
    nothing = c.build("broadcast", zero, shape=shape, dimensions=(), before=border)
    starts = _starts(c, border, border.sharding, tile.shape.dims, shape.dims)
    placed = c.build("dynamic-update-slice", nothing, tile, *starts, before=border)
    places = _places(border.sharding, tile.shape.dims, shape.dims)
    first = [int(places.index(p) == n) for n, p in enumerate(places)]
    chosen = c.build("compare", _of_device(c, border, first), _of_device(c, border, [1] * len(first)), direction="EQ",
                     before=border)
    alone = c.build("select", chosen, placed, nothing, before=border)
    adds = Computation(f"join.{border.name}")
    a, b = (adds.parameter(n, array(element)) for n in range(2))
    adds.root = adds.build("or" if element.kind is Kind.PRED else "add", a, b)
    assert c.parent is not None
    c.parent.add_computation(adds)
    return c.build("all-reduce", alone, channel_id=1, replica_groups=[list(range(len(first)))],
                   use_global_device_ids=True, to_apply=adds, before=border)


def _places(sharding: Any, tile: tuple[int, ...], whole: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Where the tile of each device begins. Axes behind those of the region divide nothing here."""
    assert isinstance(sharding, Sharding)
    mesh = sharding.mesh
    assert mesh is not None
    found: dict[int, tuple[int, ...]] = {}
    for place in range(mesh.size):
        starts: list[int] = []
        for dim, part, size in zip(sharding.dims, tile, whole, strict=True):
            number, tiles = 0, 1
            for ref in dim.axes:
                if tiles * part < size:
                    number = number * mesh.ref_size(ref) + digit_value(mesh.digits(ref), place)
                    tiles *= mesh.ref_size(ref)
            starts.append(number * part)
        found[place if mesh.order_key is None else mesh.order_key[place]] = tuple(starts)
    return [found[device] for device in range(mesh.size)]


def _starts(
    c: Computation, border: Instruction, sharding: Any, tile: tuple[int, ...], whole: tuple[int, ...]
) -> list[Instruction]:
    columns = zip(*_places(sharding, tile, whole), strict=True)
    return [_of_device(c, border, column) for column in columns]


def _of_device(c: Computation, border: Instruction, values: Sequence[int]) -> Instruction:
    """The value of this device, s32[]."""
    table = c.constant(np.asarray(values, np.int32))
    c.move_before(table, border)
    device = c.build("partition-id", before=border)
    row = c.build("dynamic-slice", table, device, dynamic_slice_sizes=(1,), before=border)
    return c.build("reshape", row, shape="s32[]", before=border)
