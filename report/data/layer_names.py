"""Finds layers by the numbers in names: of parameters (`layers[0].w`, `layers[1].w`, ..) and of paths of ops.

The texts before a number are compared: under one prefix the numbers 0, 1, .. n-1 (or 1 .. n), each in at least two
names, count layers. Of several prefixes of a name that do, the one with most numbers is meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ...ir.graph.instruction import Instruction
from ...ir.tools.names import names_of

_NUMBER = re.compile(r"(?<![A-Za-z0-9.])\d+(?![A-Za-z0-9])|(?<=[A-Za-z_])\d+(?![A-Za-z0-9])")
_SUFFIX = re.compile(r"\.\d+$")

Names = Callable[[Instruction], str]


def layers_of_parameters(parameters: Iterable[Instruction]) -> dict[Instruction, int]:
    """Returns the layers of the parameters that belong to one, by their paths, or else their names."""
    return _numbered(parameters, lambda p: _SUFFIX.sub("", names_of(p)[-1]))


def layers_of_paths(instructions: Iterable[Instruction]) -> dict[Instruction, int]:
    """Returns the layers of the ops whose path in the frontend (`op_name`) names one."""
    return _numbered(instructions, _path)


def _path(instruction: Instruction) -> str:
    """Returns the path without the primitive at its end, which may hold numbers of its own."""
    return instruction.metadata.op_name.rpartition("/")[0] if instruction.metadata is not None else ""


def _numbered(instructions: Iterable[Instruction], name: Names) -> dict[Instruction, int]:
    found: dict[str, dict[int, list[Instruction]]] = {}
    for instruction in instructions:
        text = name(instruction)
        for match in _NUMBER.finditer(text):
            found.setdefault(text[: match.start()], {}).setdefault(int(match[0]), []).append(instruction)
    layers: dict[Instruction, tuple[int, int]] = {}
    for numbers in found.values():
        first, count = min(numbers), len(numbers)
        if count < 2 or first > 1 or max(numbers) != first + count - 1 or min(map(len, numbers.values())) < 2:
            continue
        for number, members in numbers.items():
            for instruction in members:
                layers[instruction] = max(layers.get(instruction, (0, 0)), (count, number - first), key=lambda n: n[0])
    return {instruction: number for instruction, (_, number) in layers.items()}
