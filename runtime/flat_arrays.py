"""Packs the arrays of each device as a program with a flat layout takes them, and unpacks its results.

Global arrays are always those of the program before: `hloom run`, `simulate` and `MpiProgram.run_global` pack and
unpack. What runs on local arrays (`run_devices`, `hloom.runtime.run`) takes and returns the program's own, so that a
state stays packed from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.graph.flat_layout import FlatMember
from ..ir.graph.module import Module

Array = np.ndarray[Any, Any]


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
