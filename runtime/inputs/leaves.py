"""Lists the arrays that a program takes, and the names that users give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...ir.diagnostics import Location
from ...ir.graph.module import Module
from ...ir.tools.names import names_of
from ...ir.tools.placement import placements
from ...ir.tools.spmd import is_per_device
from ...ir.types.shape import Shape


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """One array of a parameter.

    `names` are its own names: those of the parameter, or for an array inside a tuple those with its place, such as
    `state[0]` or `state[2][1]`. `owners` are the names of the parameter and of the tuples that contain the array.
    `devices` is not 0 where the array may have a first dimension, which counts this many devices.
    """

    number: int
    shape: Shape
    names: tuple[str, ...]
    owners: tuple[str, ...]
    location: Location | None
    devices: int = 0

    def __str__(self) -> str:
        return " = ".join(self.names)


def input_leaves(module: Module) -> list[InputLeaf]:
    """Lists the arrays of the entry's parameters in order, as global arrays also if the program is per device; tokens
    are left out. `number` counts all leaves, tokens too. Raises CompileError if shapes and shardings disagree.
    """
    placed = placements(module)[0] if is_per_device(module) else None
    devices = module.devices
    found: list[InputLeaf] = []
    leaves = ((p, shape, places) for p in module.entry.parameters for shape, places in _places(p.shape))
    for number, (parameter, shape, places) in enumerate(leaves):
        names = names_of(parameter)
        own = tuple(name + places[-1] for name in names)
        owners = tuple(name + place for name in names for place in places[:-1])
        if placed is not None:
            shape = placed[number].shape
        each = devices if placed is not None and placed[number].tiling is None else 0
        if shape.is_array:
            found.append(InputLeaf(number, shape, own, owners, parameter.location, each))
    return found


def _places(shape: Shape, prefix: tuple[str, ...] = ("",)) -> Iterator[tuple[Shape, tuple[str, ...]]]:
    """Yields the leaves of a shape, each with its place, written `[0][1]`, after the places of the tuples around it."""
    if not shape.is_tuple:
        yield shape, prefix
    for number, element in enumerate(shape.elements):
        yield from _places(element, (*prefix, f"{prefix[-1]}[{number}]"))


def by_name(leaves: Sequence[InputLeaf]) -> Mapping[str, list[InputLeaf]]:
    """Returns the arrays of each name: one, unless a program gives a name twice."""
    found: dict[str, list[InputLeaf]] = {}
    for leaf in leaves:
        for name in leaf.names:
            found.setdefault(name, []).append(leaf)
    return found
