"""Manual regions: functions of the local values of each device, with their own collectives (GSPMD, section 3.4).

`shard_map` enters and leaves a region by the custom-calls `SPMDFullToShardShape` and `SPMDShardToFullShape`.
Collectives name axes of the mesh, as in `jax.lax`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

import numpy as np

from ...ir.diagnostics import fail
from ...ir.factors.sharding_rule import Monoid
from ...ir.graph.instruction import Instruction
from ...ir.sharding.digit import Digits, merge, product
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.replica_groups import enumerate_groups, over_digits
from ...ir.sharding.sharding import MANUAL, DimSharding, Sharding, ShardingKind, Spelling
from ...ir.types.element_type import S32, U32
from ...ir.types.shape import array
from . import emission as e
from . import indexing
from .annotations import annotated
from .array import Array, wrap
from .placement import AxesOfDim, over_axes
from .tracing import BuilderScope, ancestors, current, emit, entered, literal, mesh_or_current, public, scalar
from .trees import children, mapped, paths
from .values import ArrayLike, lifted, same_types

AxisNames = str | Sequence[str]
Specs = Any
"""A tree like the arguments or results, with a tuple of axes in the place of each array; `()` for a whole tree means
that its arrays are whole."""


@dataclass(eq=False)
class Region(BuilderScope):
    """A manual region over some axes of a mesh."""

    mesh: Mesh = field(default_factory=Mesh.of)
    axes: frozenset[str] = frozenset()

    def capture(self, outer: Instruction) -> Instruction:
        """Values from outside enter whole."""
        return self.enter(outer, ())

    def enter(self, x: Instruction, axes: Sequence[AxesOfDim]) -> Instruction:
        """Returns the tile of a value from outside."""
        dims = self._local("an argument", x, axes, enters=True)
        placed = annotated(x, self._outside(x, axes))
        return emit("custom-call", placed, shape=array(x.shape.element, dims), sharding=self._inside(x.shape.rank),
                    custom_call_target="SPMDFullToShardShape", name="local")  # fmt: skip

    def leave(self, x: Instruction, axes: Sequence[AxesOfDim]) -> Instruction:
        """Returns the value whose tiles are x."""
        dims = self._local("a result", x, axes, enters=False)
        placed = annotated(x, self._inside(x.shape.rank))
        return emit("custom-call", placed, shape=array(x.shape.element, dims), sharding=self._outside(x, axes),
                    custom_call_target="SPMDShardToFullShape", name="global")  # fmt: skip

    @property
    def _takes_all(self) -> bool:
        return all(name in self.axes for name, size in self.mesh.axes if size > 1)

    def _inside(self, rank: int) -> Sharding:
        if self._takes_all:
            return MANUAL
        manual = tuple(AxisRef(name) for name, _ in self.mesh.axes if name in self.axes)
        dims = tuple(DimSharding((), is_open=True) for _ in range(rank))
        return Sharding(ShardingKind.TILED, self.mesh, dims, manual=manual, spelling=Spelling.NAMED)

    def _outside(self, x: Instruction, axes: Sequence[AxesOfDim]) -> Sharding:
        said = [(part,) if isinstance(part, str) else tuple(part or ()) for part in axes]
        said += [()] * (x.shape.rank - len(said))
        return over_axes(self.mesh, said if self._takes_all else [(*part, "?") for part in said], x.shape.rank)

    def _local(self, what: str, x: Instruction, axes: Sequence[AxesOfDim], enters: bool) -> tuple[int, ...]:
        """Returns the dimensions on the other side of the boundary. Raises CompileError if tiles would be uneven."""
        dims = list(x.shape.dims)
        if len(axes) > len(dims):
            fail(f"shard_map: {tuple(axes)!r} places {len(axes)} dimensions, {what} is {e.shown(x)}")
        for d, part in enumerate(axes):
            names = (part,) if isinstance(part, str) else tuple(part or ())
            if free := [name for name in names if name not in self.axes]:
                fail(f"shard_map: {what} is divided along '{free[0]}', which is not manual here",
                     help="manual axes: " + ", ".join(sorted(self.axes)))
            count = math.prod(self.mesh.axis_size(name) for name in names)
            if enters and dims[d] % count:
                fail(f"shard_map: dimension {d} of {e.shown(x)} is not divided evenly by {count} devices",
                     help="pad it, or let the partitioner divide it: shard() takes uneven dimensions")
            dims[d] = dims[d] // count if enters else dims[d] * count
        return tuple(dims)


@public
def shard_map(
    function: Callable[..., Any], in_specs: Specs, out_specs: Specs, mesh: Mesh | None = None,
    axis_names: Iterable[str] | None = None,
) -> Callable[..., Any]:
    """Returns a function of whole arrays that runs `function` on the tiles of each device, as in JAX.

        shard_map(lambda x, w: psum(x @ w, "y"), (("x", "y"), ("y", None)), ("x", None))(x, w)

    `in_specs` holds a spec for each argument: a tuple with the axes of each dimension, dimensions beyond being whole.
    `out_specs` does so for the results: a tuple of specs for a function that returns a tuple. Trees of arrays take
    trees of specs, or `()`. The region takes the axes `axis_names`, by default all; the others stay with the
    partitioner. Arrays from outside that the function uses enter whole. A result must be equal on all devices that
    differ in axes which its spec does not name; `evaluate` fails where it is not.
    """
    inner = function
    grid = mesh_or_current(mesh)
    names = frozenset(axis_names if axis_names is not None else (name for name, _ in grid.axes))
    if wrong := sorted(names - {name for name, _ in grid.axes}):
        fail(f"the mesh has no axis '{wrong[0]}'", help="axes: " + ", ".join(name for name, _ in grid.axes))

    @wraps(function)
    def call(*arguments: Any) -> Any:
        outer = current()
        if any(isinstance(scope, Region) for scope in ancestors(outer)):
            fail("a manual region cannot lie in another", help="name all axes in the outer one")
        region = Region(outer.trace, outer.computation, outer, "the manual region", mesh=grid, axes=names)
        given = _placed("in_specs", arguments, in_specs)
        with entered(region):
            inside = mapped(arguments, lambda path, x: wrap(region.enter(_outer(outer, x), given[path])))
            found = inner(*inside)
            specs = _placed("out_specs", found, out_specs)
            made = mapped(found, lambda path, x: region.leave(lifted("shard_map", x), specs[path]))
        return mapped(made, lambda _, x: wrap(x))

    call.__name__ = "shard_map"
    return public(call)


def _outer(scope: BuilderScope, x: ArrayLike) -> Instruction:
    with entered(scope):
        return lifted("shard_map", x)


def _placed(what: str, tree: Any, specs: Specs) -> dict[str, Sequence[AxesOfDim]]:
    """Returns the axes for each leaf of a tree, by its path. Raises CompileError."""
    found: dict[str, Sequence[AxesOfDim]] = {}

    def visit(name: str, part: Any, spec: Any) -> None:
        parts = children(part)
        if parts is None:
            if not isinstance(spec, tuple):
                fail(f"shard_map: {what}{name} must be a tuple of axes, it is {spec!r}", help="for example ('x', None)")
            found[name] = cast("tuple[AxesOfDim, ...]", spec)
            return
        if spec == ():
            found.update(dict.fromkeys((path for path, _ in paths(part, name)), ()))
            return
        entries = children(spec)
        if entries is None or [index for index, _ in entries] != [index for index, _ in parts]:
            fail(f"shard_map: {what}{name} must have a part for each of {', '.join(index for index, _ in parts)}")
        for (index, value), (_, entry) in zip(parts, entries, strict=True):
            visit(name + index, value, entry)

    visit("", tree, specs)
    return found


# -- collectives


def _group(what: str, axis_name: AxisNames) -> tuple[Region, Digits, int]:
    """Returns the region around, the digits of axes, and the devices in a group. Raises CompileError."""
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    region = next((scope for scope in ancestors(current()) if isinstance(scope, Region)), None)
    missing = [name for name in names if region is None or name not in region.axes]
    if region is None or missing:
        manual = ", ".join(sorted(region.axes)) if region else "there is no region"
        fail(f"{what}: no manual region here has the axis '{missing[0] if missing else ''}'",
             help=f"manual axes: {manual}" if region else "call it in a function given to shard_map")
    digits = merge(d for name in names for d in region.mesh.digits(AxisRef(name)))
    return region, digits, product(digits)


def _collective(opcode: str, what: str, x: Instruction, axis_name: AxisNames, **attributes: Any) -> Instruction:
    region, digits, _ = _group(what, axis_name)
    groups = over_digits(region.mesh.size, digits, region.mesh.order_key)
    return emit(opcode, x, channel_id=_channel(region), replica_groups=groups, **attributes)


def _channel(region: Region) -> int:
    region.trace.channels += 1
    return region.trace.channels


def _reduced(what: str, monoid: Monoid, x: ArrayLike, axis_name: AxisNames) -> Array:
    (found,) = same_types(what, x)
    reducer = current().trace.reducer(monoid.value, found.shape.element)
    return wrap(_collective("all-reduce", what, found, axis_name, to_apply=reducer, use_global_device_ids=True))


@public
def psum(x: ArrayLike, axis_name: AxisNames) -> Array:
    """Returns the sum of x over the devices along axes."""
    return _reduced("psum", Monoid.ADD, x, axis_name)


@public
def pmax(x: ArrayLike, axis_name: AxisNames) -> Array:
    """Returns the greatest elements over the devices along axes."""
    return _reduced("pmax", Monoid.MAXIMUM, x, axis_name)


@public
def pmin(x: ArrayLike, axis_name: AxisNames) -> Array:
    """Returns the least elements over the devices along axes."""
    return _reduced("pmin", Monoid.MINIMUM, x, axis_name)


@public
def pmean(x: ArrayLike, axis_name: AxisNames) -> Array:
    """Returns the mean of x over the devices along axes."""
    return psum(x, axis_name) / axis_size(axis_name)


@public
def all_gather(x: ArrayLike, axis_name: AxisNames, axis: int = 0, tiled: bool = False) -> Array:
    """Returns the x of all devices along axes, stacked along a new axis; one after the other along it if `tiled`."""
    (found,) = same_types("all_gather", x)
    dims, (_, _, count) = found.shape.dims, _group("all_gather", axis_name)
    dim = e.axis_of("all_gather", axis, len(dims) + (not tiled))
    if not tiled:
        found = e.reshape(found, (*dims[:dim], 1, *dims[dim:]))
    result = [n * count if d == dim else n for d, n in enumerate(found.shape.dims)]
    return wrap(_collective("all-gather", "all_gather", found, axis_name, dimensions=(dim,), use_global_device_ids=True,
                            shape=found.shape.with_dims(tuple(result))))  # fmt: skip


@public
def psum_scatter(x: ArrayLike, axis_name: AxisNames, scatter_dimension: int = 0, tiled: bool = False) -> Array:
    """Returns the device's part, along a dimension, of the sum of x over the devices along axes. Unless `tiled` the
    dimension must have one element per device and is dropped.
    """
    (found,) = same_types("psum_scatter", x)
    dim, dims = e.axis_of("psum_scatter", scatter_dimension, found.shape.rank), found.shape.dims
    _, _, count = _group("psum_scatter", axis_name)
    _check_parts("psum_scatter", found, dim, count, tiled)
    reducer = current().trace.reducer(Monoid.ADD.value, found.shape.element)
    part = (*dims[:dim], dims[dim] // count, *dims[dim + 1 :])
    made = _collective("reduce-scatter", "psum_scatter", found, axis_name, dimensions=(dim,), to_apply=reducer,
                       use_global_device_ids=True, shape=found.shape.with_dims(part))  # fmt: skip
    return wrap(made if tiled else e.reshape(made, (*dims[:dim], *dims[dim + 1 :])))


def _check_parts(what: str, x: Instruction, dim: int, count: int, tiled: bool) -> None:
    size = x.shape.dims[dim]
    if size % count or (not tiled and size != count):
        wanted = f"a multiple of {count}" if tiled else f"{count}; tiled=True takes multiples"
        fail(f"{what}: dimension {dim} of {e.shown(x)} must be {wanted}, the number of devices")


@public
def all_to_all(
    x: ArrayLike, axis_name: AxisNames, split_axis: int, concat_axis: int, tiled: bool = False
) -> Array:
    """Returns, for the devices along axes, part i of each device's x on device i, in the order of devices.

    x is cut along `split_axis`. If `tiled`, the parts are joined along `concat_axis`; else the split axis has one
    element per device and is dropped, and the parts are stacked along a new `concat_axis`.
    """
    (found,) = same_types("all_to_all", x)
    rank, (_, _, count) = found.shape.rank, _group("all_to_all", axis_name)
    cut, join = e.axis_of("all_to_all", split_axis, rank), e.axis_of("all_to_all", concat_axis, rank)
    _check_parts("all_to_all", found, cut, count, tiled)
    dims = found.shape.dims
    rest = (*dims[:cut], dims[cut] // count, *dims[cut + 1 :])
    parts = e.reshape(found, (*dims[:cut], count, *rest[cut:]))
    parts = e.transpose(parts, (cut, *(d for d in range(rank + 1) if d != cut)))
    parts = _collective("all-to-all", "all_to_all", parts, axis_name, dimensions=(0,))
    if not tiled:
        parts = e.reshape(parts, (count, *(n for d, n in enumerate(rest) if d != cut)))
    order = (*range(1, join + 1), 0, *range(join + 1, parts.shape.rank))
    moved = e.transpose(parts, order)
    return wrap(e.reshape(moved, (*rest[:join], count * rest[join], *rest[join + 1 :])) if tiled else moved)


@public
def ppermute(x: ArrayLike, axis_name: AxisNames, perm: Iterable[tuple[int, int]]) -> Array:
    """Returns the x of the device that sends to this one, by pairs of source and target along axes; zeros without one.
    """
    (found,) = same_types("ppermute", x)
    region, digits, count = _group("ppermute", axis_name)
    wanted = [(int(source), int(target)) for source, target in perm]
    if wrong := [pair for pair in wanted if not all(0 <= place < count for place in pair)]:
        fail(f"ppermute: the pair {wrong[0]} is not among the {count} devices along the axis")
    size, order = region.mesh.size, region.mesh.order_key
    groups = enumerate_groups(over_digits(size, digits, order), size)
    every = [(group[source], group[target]) for group in groups for source, target in wanted]
    return wrap(emit("collective-permute", found, channel_id=_channel(region), source_target_pairs=every))


@public
def axis_index(axis_name: AxisNames) -> Array:
    """Returns the number (s32) of the device along axes."""
    region, digits, _ = _group("axis_index", axis_name)
    device = e.convert(emit("partition-id", shape=array(U32)), S32)
    if region.mesh.order_key is not None:
        places = np.argsort(region.mesh.order_key)
        table = emit("constant", literal=literal(places, S32))
        device = e.reshape(indexing.dynamic_slice(table, [device], (1,)), ())
    total = scalar(0, S32)
    for n, (size, stride) in enumerate(digits):
        value = emit("remainder", emit("divide", device, scalar(stride, S32)), scalar(size, S32))
        total = emit("add", emit("multiply", total, scalar(size, S32)), value) if n else value
    return wrap(total)


@public
def axis_size(axis_name: AxisNames) -> int:
    """Returns the number of devices along axes."""
    return _group("axis_size", axis_name)[2]
