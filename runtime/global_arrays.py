"""Splits global arrays into the arrays of each device of a per-device program, and joins them again.

A parameter without a placement takes one array for all devices, or one whose first dimension counts the devices. A
result without a placement has such a first dimension.

A program with a flat layout keeps several arrays in one. Global arrays are always those of the program before: `hloom
run`, `simulate` and `MpiProgram.run_global` pack and unpack. What runs on local arrays (`run_devices`,
`hloom.runtime.run`) takes and returns the program's own, so that a state stays packed from step to step.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np

from ..ir.graph.flat_layout import FlatMember
from ..ir.graph.module import Module
from ..ir.tools.placement import Placement
from ..ir.tools.process_grid import ProcessGrid
from ..ir.types.literal import Array
from .fabric.tiles import Poison, assemble, common_value, copied_bytes, shards
from .plan.executable import check_inputs
from .plan.kernels import NUMPY, KernelProvider, zero_of
from .plan.limits import require_memory


def split_inputs(
    inputs: Sequence[Array],
    places: Sequence[Placement],
    devices: Sequence[int],
    grid: ProcessGrid,
    poison: bool | Poison = False,
    kernels: KernelProvider = NUMPY,
) -> list[list[Array]]:
    """Splits global inputs into the local inputs of each of these devices. Raises CompileError if they do not fit."""
    wanted = [p for p in places if p.shape.is_array]
    shapes = [
        p.shape.with_dims((grid.size, *p.shape.dims)) if p.tiling is None and np.ndim(a) > p.shape.rank else p.shape
        for p, a in itertools.zip_longest(wanted, inputs[: len(wanted)])
    ]
    arrays = check_inputs(shapes, inputs, kernels)
    copies = (copied_bytes(p.shape.dims, a.dtype, p.tiling) for a, p in zip(arrays, wanted, strict=True) if p.tiling)
    require_memory(sum(copies) * len(devices), f"the tiles of the inputs on {len(devices)} devices")

    def parts(array: Array, place: Placement) -> list[Array]:
        if place.tiling is None:
            return [array[device] if array.ndim > place.shape.rank else array for device in devices]
        element = place.shape.element  # arrays of integers may hold floats
        own = bool(poison) if element.is_float or element.is_complex else poison
        local = [device % grid.partitions for device in devices]
        return shards(array, place.tiling, local, own, zero_of(kernels, element))

    of_inputs = [parts(a, p) for a, p in zip(arrays, wanted, strict=True)]
    return [[of_devices[n] for of_devices in of_inputs] for n in range(len(devices))]


def join_outputs(
    outputs: Sequence[Sequence[Array]], places: Sequence[Placement], grid: ProcessGrid, kernels: KernelProvider = NUMPY
) -> list[Array]:
    """Joins the results of all devices into global results. Raises CompileError where replicas disagree."""
    partitions = grid.partitions
    joined: list[Array] = []
    for number, place in enumerate(p for p in places if p.shape.is_array):
        parts = [values[number] for values in outputs]
        if place.tiling is None:
            joined.append(np.stack(parts))
            continue
        add = partial(kernels.add, place.shape.element)
        wholes = [
            assemble(parts[i : i + partitions], place.tiling, place.shape.dims, f"result {number}", add)
            for i in range(0, len(parts), partitions)
        ]
        joined.append(common_value(wholes, f"result {number}"))
    return joined


def packed_inputs(module: Module, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Returns the local inputs of each device for a module, given those of the program before."""
    layout = module.flat_layout
    return [list(values) if layout is None else _packed(layout.parameters, values) for values in inputs]


def unpacked_outputs(module: Module, outputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Returns the local results of each device that the program before would give, from those of the module."""
    layout = module.flat_layout
    return [list(values) if layout is None else _unpacked(layout.results, values) for values in outputs]


def _packed(places: Sequence[FlatMember], values: Sequence[Array]) -> list[Array]:
    found: dict[int, list[tuple[int, Array]]] = {}
    own: dict[int, Array] = {}
    for place, value in zip(places, values, strict=True):
        if place.member is None:
            own[place.number] = value
        else:
            found.setdefault(place.number, []).append((place.member.start, value.reshape(1, -1)))
    for number, parts in found.items():
        own[number] = np.concatenate([value for _, value in sorted(parts, key=lambda part: part[0])], axis=1)
    return [own[number] for number in range(len(own))]


def _unpacked(places: Sequence[FlatMember], values: Sequence[Array]) -> list[Array]:
    return [
        values[place.number] if (m := place.member) is None
        else values[place.number][0, m.start : m.start + m.shape.num_elements].reshape(m.shape.dims)
        for place in places
    ]
