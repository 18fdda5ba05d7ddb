"""Properties of a module's devices: their order, whether it is a per-device program, the boundaries of manual regions.

A boundary is a custom-call that converts between global arrays and the per-device arrays of a manual region. GSPMD has
one per array, Shardy one for all; both become lists of `RegionBoundary`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..diagnostics import Location, fail
from ..factors.shardy_rule import KEY as RULE_KEY
from ..graph.instruction import NO_FRONTEND_ATTRIBUTES, FrontendAttributes, Instruction
from ..graph.interfaces import DeviceNumber
from ..graph.module import Module, Stage
from ..graph.op import AnyOp
from ..ops.calls.behaviour import CustomCallAttributes
from ..ops.calls.custom_call import behaviour, behaviour_of, custom_calls, is_custom_call
from ..ops.collective_groups import channel_of, groups_of
from ..ops.collectives import AllToAllAttributes, pairs_of
from ..sharding.digit import Digits, merge, split
from ..sharding.replica_groups import enumerate_groups, group_size
from ..sharding.sharding import AnySharding, Sharding, ShardingKind, TupleSharding, leaf_shardings
from ..sharding.tiling import Tiling
from ..types.element_type import TOKEN
from ..types.shape import Shape

Order = tuple[int, ...] | None
"""The device at each place; None if devices are in the order of their numbers."""


def parts(annotation: AnySharding | None) -> Iterator[Sharding]:
    """Yields the shardings of a value's leaves."""
    if isinstance(annotation, TupleSharding):
        yield from annotation.elements
    elif annotation is not None:
        yield annotation


def without_shardy(attributes: FrontendAttributes) -> FrontendAttributes:
    """Returns frontend attributes without Shardy's annotations. Keeps a custom-call's rule for the partitioner."""
    if not any(key.startswith("xla.sdy.") for key in attributes):
        return attributes
    kept = {k: v for k, v in attributes.items() if not k.startswith("xla.sdy.") or k == RULE_KEY}
    return kept or NO_FRONTEND_ATTRIBUTES


def devices_problem(sharding: Sharding, devices: int) -> str | None:
    """Returns why a sharding does not fit the number of devices; None if it does."""
    if sharding.mesh is None or sharding.fits_any_mesh or sharding.mesh.size == devices:
        return None
    return f"the sharding {sharding} is over {sharding.mesh.size} devices, the program has {devices}"


def is_region_boundary(instruction: Instruction) -> bool:
    """Whether an instruction moves arrays into or out of a manual region."""
    known = behaviour_of(instruction)
    return known is not None and known.is_manual_boundary


def main_order(instructions: Iterable[Instruction]) -> Order:
    """Returns the module's main device order: that of its manual regions, which cannot change theirs, else the one that
    most annotations use. Ties prefer the order of device numbers, then the smallest.
    """
    orders, manual, counts = Counter[Order](), set[Order](), Counter[Sharding]()
    instructions = list(instructions)
    said = [a for i in instructions if (a := i.annotation) is not None]
    by_identity = {id(annotation): annotation for annotation in said}  # readers make one object of equal ones
    for number, count in Counter(map(id, said)).items():
        for sharding in parts(by_identity[number]):
            counts[sharding] += count
    for instruction in filter(is_region_boundary, custom_calls(instructions)):
        ends = (s for i in (*instruction.operands, instruction) for s in parts(i.annotation))
        manual |= {s.mesh.order_key for s in ends if s.mesh and not s.is_replicated}
    for sharding, count in counts.items():
        if sharding.mesh and not sharding.is_replicated:
            orders[sharding.mesh.order_key] += count
            manual |= {sharding.mesh.order_key} if sharding.has_manual else set()
    return min(orders, key=lambda order: (order not in manual, -orders[order], order or ()), default=None)


def has_regions(module: Module) -> bool:
    """Whether a module has boundaries of manual regions."""
    return any(is_region_boundary(i) for computation in module for i in computation.having(is_custom_call))


def is_per_device(module: Module) -> bool:
    """Whether a module is a per-device program: by its stage, or, if another compiler made it, because it is scheduled
    for several devices or communicates outside of manual regions.
    """
    if module.stage in (Stage.LOCAL, Stage.SCHEDULED):
        return True
    if module.is_scheduled and module.devices > 1:
        return True
    annotations = {id(a): a for computation in module for i in computation if (a := i.annotation) is not None}
    if has_regions(module) or any(s.has_manual for a in annotations.values() for s in parts(a)):
        return False
    return any(_tells_devices_apart(i, module) for computation in module for i in computation.having(_names_devices))


def require_per_device(module: Module, even_plain: bool = True) -> None:
    """Raises CompileError for a program that is not the one of each device; unless `even_plain`, only if it has
    shardings for several devices: without them it may be that of each, too.
    """
    if (not even_plain and module.num_partitions == 1) or is_per_device(module):
        return
    if even_plain or any(i.annotation for c in module for i in c):
        fail(f"{module.name} is not partitioned yet: it is {module.stage.value}, not the program of each device",
             help="partition it first: hloom.partition(module)")  # fmt: skip


def require_undivided(module: Module, what: str) -> None:
    """Raises CompileError for a program that is divided already, by whomever, of which there is no `what`."""
    if module.stage is not Stage.GLOBAL or is_per_device(module):
        stage = "sharded" if module.stage is Stage.SHARDED else "the program of each device"
        fail(f"{what} is of a program that is not sharded yet, {module.name} is {stage}")


def _names_devices(op: AnyOp) -> bool:
    return op.is_collective or op.interface(DeviceNumber) is not None


def _tells_devices_apart(instruction: Instruction, module: Module) -> bool:
    if instruction.op.interface(DeviceNumber):
        return not is_for_one_device(module)
    return instruction.op.is_collective and not joins_device_with_itself(instruction, module)


def is_for_one_device(module: Module) -> bool:
    """Whether the meshes of a program have one device. JAX leaves out the borders of manual regions then."""
    return module.devices == 1 and {mesh.size for mesh in module.meshes.values()} == {1}


def joins_device_with_itself(instruction: Instruction, module: Module) -> bool:
    """Whether a collective returns to every device its own operands: among replicas in a program for one replica, or in
    groups of one device, as JAX leaves them of manual regions over mesh axes of size 1.
    """
    attributes = instruction.attributes
    if not instruction.op.is_collective or module.replica_count != 1:
        return False
    if isinstance(attributes, AllToAllAttributes) and len(instruction.operands) != 1:
        return False  # one operand for each device of the group
    result = instruction.shape.elements if instruction.shape.is_tuple else (instruction.shape,)
    count = module.num_partitions if channel_of(instruction) is not None else 1
    return _is_alone(instruction, count) and [s.dims for s in result] == [o.shape.dims for o in instruction.operands]


def _is_alone(collective: Instruction, count: int) -> bool:
    """Whether each of this many devices is alone in its group."""
    pairs, groups = pairs_of(collective), groups_of(collective)
    if pairs is not None:
        return sorted(pairs) == [(n, n) for n in range(count)]
    if groups is None or group_size(groups, count) != 1:
        return False
    return len(enumerate_groups(groups, count)) == count  # fewer groups are of replicas, and join all partitions


@dataclass(frozen=True, slots=True)
class RegionBoundary:
    """The division of one array by a manual region. `whole` is its shape outside, `part` the shape inside. `tiling` has
    the region's digits in each dimension: the tiles of the global array are the arrays inside the region.
    """

    whole: Shape
    part: Shape
    tiling: Tiling
    leaves_region: bool


def region_devices(module: Module) -> int:
    """Returns the number of partitions of a program with manual regions: the header's, else the largest mesh's."""
    boundaries = (i for c in module for i in c if is_region_boundary(i))
    meshes = [s.mesh for i in boundaries for s in _shardings_around(i) if s.mesh is not None]
    sizes = [mesh.size for mesh in (*module.meshes.values(), *meshes)]
    return module.num_partitions if module.num_partitions > 1 else max(sizes, default=1)


def _shardings_around(border: Instruction) -> Iterator[Sharding]:
    yield from (s for i in (*border.operands, border) for s in parts(i.annotation))


def region_boundaries(instruction: Instruction, devices: int) -> list[RegionBoundary | None]:
    """Returns one entry per operand of a boundary instruction, None for tokens.

    Raises CompileError if its shardings do not fit the shapes.
    """
    attributes = instruction.attributes_as(CustomCallAttributes)
    known = behaviour(attributes)
    shapes = list(instruction.shape.leaves())
    operands = instruction.operands
    one_by_one = not attributes.custom_call_target.startswith("xla.sdy.")
    outside = instruction if known.leaves_region or not one_by_one else operands[0]
    inside = (operands[0] if known.leaves_region else instruction) if one_by_one else None
    said = leaf_shardings(outside.annotation, len(shapes))
    if len(shapes) != len(operands) or (one_by_one and len(shapes) != 1):
        fail(f"{instruction.name}: {len(operands)} operands and {len(shapes)} results", instruction.location)
    takes_all = inside is not None and any(s.kind is ShardingKind.MANUAL for s in parts(inside.annotation))
    found: list[RegionBoundary | None] = []
    for operand, shape, sharding in zip(operands, shapes, said, strict=True):
        whole, part = (shape, operand.shape) if known.leaves_region else (operand.shape, shape)
        tiling = _tiling(sharding, whole, devices, instruction.location) if shape.is_array else None
        if tiling is not None and not takes_all:
            tiling = _own_digits(tiling, whole, part)
        if tiling is not None and tiling.local_dims(whole.dims) != part.dims:
            fail(f"{instruction.name}: {whole.without_layout()} outside of the manual region and "
                 f"{part.without_layout()} inside do not fit the sharding {sharding}", instruction.location)
        found.append(RegionBoundary(whole, part, tiling, known.leaves_region) if tiling is not None else None)
    return found


def _tiling(sharding: Sharding | None, whole: Shape, devices: int, location: Location | None) -> Tiling:
    if sharding is None:
        return Tiling.replicated(whole.rank)
    if problem := devices_problem(sharding, devices):
        fail(problem, location)
    return replace(sharding.tiling(whole.rank), manual=(), device=None)


def _own_digits(tiling: Tiling, whole: Shape, part: Shape) -> Tiling:
    """Returns the tiling with only the region's digits, which come first in each dimension and divide it evenly."""
    dims: list[Digits] = []
    for digits, n, size in zip(tiling.dims, whole.dims, part.dims, strict=True):
        found = split(digits, [n // size]) if size and n % size == 0 else None
        dims.append(merge(found[0]) if found else digits)
    return replace(tiling, dims=tuple(dims)).canonical()


def sole_device(instruction: Instruction) -> int | None:
    """Returns the only device that makes a custom-call with effects or a callback; None for anything else."""
    known = behaviour_of(instruction)
    if known is None or known.acts_on_tiles:
        return None
    if not (known.is_callback or instruction.op.has_side_effect(instruction.attributes)):
        return None
    if any(not shape.is_array and shape.element is not TOKEN for shape in instruction.shape.leaves()):
        return None
    found = {s.device if s.kind is ShardingKind.MAXIMAL else None for s in parts(instruction.sharding)}
    return found.pop() if len(found) == 1 else None
