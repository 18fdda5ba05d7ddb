"""The arrays of a program before partitioning as columns: shape, sharding, and the links that explain the sharding.

Texts occur many times, so columns hold their numbers in tables. A sharding is stored for its picture: per
dimension the digits that number the tiles. A value's links say per dimension which digits came through which op from
which dimension of which value, so that a chain is found by following links, as `explain` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.graph.stack_frames import source_line
from ...ir.sharding.digit import Digits
from ...ir.sharding.sharding import Sharding
from ...ir.types.shape import Shape
from ..shardings import Solved, short
from .texts import Numbered

Record = dict[str, Any]
ANNOTATED = -1  # in place of the op through which digits came
LINK = 5  # numbers of a link: dimension, digits, op, value, dimension of that value


def values_record(found: Solved, sections: Mapping[str, int]) -> Record:
    """Returns all values of a solved propagation. `sections` has the numbers of sections by names of instructions."""
    shapes, shardings = Numbered[Shape](), Numbered[tuple[Sharding, int]]()
    digits, texts = Numbered[Digits](), Numbered[str]()
    first = {leaf: (name, sharding) for name, leaf, sharding in reversed(list(found.named()))}
    leaves = dict.fromkeys(leaf for _, leaf, _ in found.named())
    number = {leaf: n for n, leaf in enumerate(leaves)}
    columns: dict[str, list[Any]] = {
        key: [] for key in ("name", "shape", "sharding", "opcode", "source", "op_name", "section", "annotated", "links")
    }
    for leaf in leaves:
        name, sharding = first[leaf]
        instruction = leaf.instruction
        links: list[int] = []
        for dim, gains in enumerate(leaf.causes):
            for gain in gains:
                cause = gain.cause
                links += [dim, digits(gain.digits)]
                links += (
                    [ANNOTATED, 0, 0] if cause is None else [texts(cause.via.name), number[cause.source], cause.dim]
                )
        row = (
            name, shapes(leaf.shape.without_layout()), shardings((sharding, leaf.shape.rank)),
            texts(instruction.opcode), texts(source_line(instruction)),
            texts(instruction.metadata.op_name if instruction.metadata else ""),
            sections.get(instruction.name, -1), int(leaf.annotated), links,
        )  # fmt: skip
        for column, cell in zip(columns.values(), row, strict=True):
            column.append(cell)
    return {
        "columns": columns, "texts": texts.all, "digits": [[list(d) for d in ds] for ds in digits.all],
        "shapes": [{"text": str(shape), "dims": list(shape.dims), "bytes": shape.byte_size} for shape in shapes.all],
        "shardings": [sharding_record(sharding, rank) for sharding, rank in shardings.all],
    }  # fmt: skip


def sharding_record(sharding: Sharding, rank: int) -> Record:
    """Describes a sharding for its picture: per dimension digits as size and stride, and the axes."""
    tiling, mesh = sharding.tiling(rank), sharding.mesh
    axes = [[[ref.text(""), *mesh.digits(ref)[0]] for ref in part.axes] if mesh else [] for part in sharding.dims]
    return {
        "text": short(sharding), "dims": [[list(d) for d in digits] for digits in tiling.dims], "axes": axes,
        "unreduced": [list(d) for d in tiling.unreduced], "order": list(tiling.order) if tiling.order else None,
        "device": tiling.device,
    }  # fmt: skip
