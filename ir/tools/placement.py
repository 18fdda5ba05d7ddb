"""Placement of the arrays of a per-device program on its devices.

The entry parameters and the root of a LOCAL module have shardings (none: replicated), and `Module.global_layout` has
the global shapes; without it, local shapes and tile counts give them. Shardings place data on partitions; all replicas
hold the same data. A per-device program of another compiler need not specify its placement; the program that it was
made from may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..diagnostics import fail
from ..graph.flat_layout import FlatMember
from ..graph.instruction import Instruction
from ..graph.module import EntryLayout, Module, Stage, clone_module
from ..sharding.sharding import REPLICATED, Sharding, ShardingKind, TupleSharding, leaf_shardings
from ..sharding.tiling import Tiling
from ..types.shape import Shape
from .interface import unflattened
from .spmd import devices_problem, require_per_device


@dataclass(frozen=True)
class Placement:
    """The placement of one leaf of the parameters or of the result. `shape` is the global shape.

    If the program does not specify the placement, `tiling` is None and `shape` is the local shape.
    """

    shape: Shape
    tiling: Tiling | None


def placements(module: Module) -> tuple[list[Placement], list[Placement]]:
    """Returns the placements of the leaves of the parameters, and of the result.

    Of a program that keeps arrays inside of others, they are those of the arrays before: the ones that users give and
    get. Raises CompileError if shapes and shardings disagree, or if the module is not a per-device program.
    """
    require_per_device(module)
    entry, layout = module.entry, module.global_layout
    parameters = [_placements(module, p, layout.parameters[i] if layout else None)
                  for i, p in enumerate(entry.parameters)]
    given = [x for part in parameters for x in part]
    made = _placements(module, entry.root, layout.result if layout else None)
    flat = module.flat_layout
    return (given, made) if flat is None else (_unpacked(flat.parameters, given), _unpacked(flat.results, made))


def _unpacked(places: Sequence[FlatMember], arrays: Sequence[Placement]) -> list[Placement]:
    """Returns the placements of the arrays at some places, given those of the program's own arrays."""
    members = [(place, place.member) for place in places]
    return [arrays[place.number] if m is None else Placement(m.whole, _tiling(m.sharding, m.whole.rank))
            for place, m in members]


def _tiling(sharding: Sharding | None, rank: int) -> Tiling:
    return sharding.tiling(rank) if sharding is not None else Tiling.replicated(rank)


def _placements(module: Module, instruction: Instruction, whole: Shape | None) -> list[Placement]:
    local = list(instruction.shape.leaves())
    shapes = list(whole.leaves()) if whole is not None else [None] * len(local)
    is_foreign = module.stage is Stage.GLOBAL and module.devices > 1
    found: list[Placement] = []
    for sharding, part, shape in zip(leaf_shardings(instruction.annotation, len(local)), local, shapes, strict=True):
        if is_foreign and (sharding is None or sharding.has_manual):
            found.append(Placement(part, None))
            continue
        problem = devices_problem(sharding, module.num_partitions) if sharding is not None else None
        if problem:
            fail(f"{instruction.name}: {problem}", instruction.location)
        tiling = _tiling(sharding, part.rank)
        if shape is None:
            shape = part.with_dims(tuple(n * tiling.tiles(d) for d, n in enumerate(part.dims)))
        if tiling.local_dims(shape.dims) != part.dims:
            fail(
                f"{instruction.name}: {shape.without_layout()} sharded as {sharding} has tiles of "
                f"{list(tiling.local_dims(shape.dims))}, the local shape is {part.without_layout()}",
                instruction.location,
            )
        found.append(Placement(shape, tiling))
    return found


def placed_like(local: Module, original: Module) -> Module:
    """Returns a per-device program that says where its inputs and outputs lie: a foreign one as a LOCAL copy.

    The global shapes are those of `original`, the program that it was made from. A parameter or result that has no
    sharding has that of `original`. Arrays that a flat layout joins are taken one by one. Raises CompileError if both
    programs differ in number or types of parameters or results.
    """
    local = unflattened(local)
    pairs = [*zip(local.entry.parameters, original.entry.parameters), (local.entry.root, original.entry.root)]
    counts = [len(m.entry.parameters) for m in (local, original)]
    if counts[0] != counts[1]:
        fail(f"the per-device program has {counts[0]} parameters, the original {counts[1]}")
    for ours, theirs in pairs:
        _require_same_types(ours, theirs)
    if local.stage is not Stage.GLOBAL:
        return local
    placed = clone_module(local)
    placed.stage = Stage.LOCAL
    shapes = tuple(p.shape for p in original.entry.parameters)
    placed.global_layout = EntryLayout(shapes, original.entry.root.shape)
    for ours, (_, theirs) in zip([*placed.entry.parameters, placed.entry.root], pairs, strict=True):
        _require_whole(ours, theirs)
        found = tuple(a or b or REPLICATED for a, b in zip(_said(ours), _said(theirs), strict=True))
        ours.shardy, ours.sharding = None, TupleSharding(found) if ours.shape.is_tuple else found[0]
    return placed


def _require_same_types(ours: Instruction, theirs: Instruction) -> None:
    kinds = [[leaf.element if leaf.is_array else None for leaf in i.shape.leaves()] for i in (ours, theirs)]
    if kinds[0] != kinds[1]:
        fail(f"{ours.name} of the per-device program is {ours.shape.without_layout()}, in the original "
             f"{theirs.name} is {theirs.shape.without_layout()}", ours.location)


def _require_whole(ours: Instruction, theirs: Instruction) -> None:
    """Raises CompileError for leaves in tiles of which neither program has a sharding."""
    leaves = zip(ours.shape.leaves(), theirs.shape.leaves(), _said(ours), _said(theirs), strict=True)
    for part, shape, said, originally in leaves:
        if said is None and originally is None and part.dims != shape.dims:
            fail(
                f"{ours.name}: {shape.without_layout()} has tiles of {part.without_layout()}, and neither program says "
                "how it is divided", ours.location,
                help=f"give {theirs.name} of {theirs.location.source.name if theirs.location else 'the original'} a "
                "sharding; in JAX: out_shardings of jax.jit for results, in_shardings for parameters",
            )  # fmt: skip


def _said(instruction: Instruction) -> list[Sharding | None]:
    """The shardings of the leaves; a manual or an unknown one does not say where an array lies."""
    shardings = leaf_shardings(instruction.annotation, len(list(instruction.shape.leaves())))
    return [None if s is None or s.kind is ShardingKind.UNKNOWN or s.has_manual else s for s in shardings]
