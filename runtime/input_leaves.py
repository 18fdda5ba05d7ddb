"""The arrays that a program takes, and what users call them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ir.diagnostics import Location
from ..ir.module import Module
from ..ir.names import names_of
from ..ir.shape import Shape


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """One array of a parameter.

    `names` has its own names: those of the parameter, or for an array inside a tuple those with its place there, such
    as `state[0]` or `state[2][1]`. `owners` has the names of the parameter and of the tuples that the array is in.
    """

    number: int
    shape: Shape
    names: tuple[str, ...]
    owners: tuple[str, ...]
    location: Location | None

    def __str__(self) -> str:
        return " = ".join(self.names)


def input_leaves(module: Module, shapes: Sequence[Shape] | None = None) -> list[InputLeaf]:
    """The arrays of the entry's parameters in order; tokens are left out. `number` counts all leaves, tokens too.

    `shapes` are those of the whole parameters, where the program does not have them: by default the shapes of the
    program that a program per device was made from, or else the parameters' own.
    """
    parameters = module.entry.parameters
    if shapes is None:
        shapes = module.global_layout.parameters if module.global_layout else [p.shape for p in parameters]
    found: list[InputLeaf] = []
    number = 0
    for parameter, whole in zip(parameters, shapes, strict=True):
        names = names_of(parameter)
        for shape, places in _places(whole):
            if shape.is_array:
                own = tuple(name + places[-1] for name in names)
                owners = tuple(name + place for name in names for place in places[:-1])
                found.append(InputLeaf(number, shape, own, owners, parameter.location))
            number += 1
    return found


def _places(shape: Shape, prefix: tuple[str, ...] = ("",)) -> Iterator[tuple[Shape, tuple[str, ...]]]:
    """The leaves of a shape, each with its place, written `[0][1]`, after the places of the tuples around it."""
    if not shape.is_tuple:
        yield shape, prefix
    for number, element in enumerate(shape.elements):
        yield from _places(element, (*prefix, f"{prefix[-1]}[{number}]"))


def by_name(leaves: Sequence[InputLeaf]) -> Mapping[str, list[InputLeaf]]:
    """The arrays of each name: one, unless a program gives a name twice."""
    found: dict[str, list[InputLeaf]] = {}
    for leaf in leaves:
        for name in leaf.names:
            found.setdefault(name, []).append(leaf)
    return found
