"""Resharding on its own: all shardings of small meshes, and programs that do nothing but reshard.

A program takes the tiles of all devices as one array [devices, *tile] and gives them back in the same form, so that a
test decides what each device holds: partial sums, nothing, or padding full of NaN.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import hloom
import numpy as np
from hloom.cost.machine import DEFAULT, Machine
from hloom.frontends import parse_sharding
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import EntryLayout, Stage
from hloom.ir.ops.structure import ParameterAttributes
from hloom.ir.sharding.digit import Digit, Digits, primes, product
from hloom.ir.sharding.mesh import AxisRef, IotaOrder, Mesh
from hloom.ir.sharding.sharding import DimSharding, Sharding, ShardingKind, TupleSharding
from hloom.ir.sharding.tiling import Tiling
from hloom.ir.types.element_type import F32
from hloom.ir.types.shape import array, tuple_shape
from hloom.passes.resharding.base.tiles import bounds
from hloom.passes.spmd.emit.channels import Channels
from hloom.passes.spmd.emit.emitter import Emitter, LocalValue
from hloom.passes.spmd.emit.resharder import Resharder

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

# Up to three axes in all orders of the devices that are worth telling apart, and an irregular one.
_SPLITS = {4: [(2, 2)], 6: [(2, 3), (3, 2)], 8: [(2, 4), (4, 2), (2, 2, 2)]}
_IRREGULAR = {4: (0, 3, 1, 2), 6: (0, 1, 3, 2, 5, 4), 8: (0, 3, 2, 1, 4, 5, 7, 6)}


def meshes(devices: int) -> list[Mesh]:
    """Meshes of one to three axes over so many devices, with permuted device orders."""
    found = [Mesh((("a", devices),))]
    for sizes in _SPLITS.get(devices, []):
        axes = tuple(zip("abc", sizes, strict=False))
        found.append(Mesh(axes))
        found += [Mesh(axes, IotaOrder(sizes, perm)) for perm in itertools.permutations(range(len(sizes)))]
    if devices in _IRREGULAR:
        found += [Mesh(axes, _IRREGULAR[devices]) for axes in ((("a", devices),), *(m.axes for m in found[1:2]))]
    return found


def shardings(devices: int, rank: int) -> list[Sharding]:
    """All ways to spread some axes of these meshes, in any order, over the dimensions; each meaning once."""
    found: dict[Tiling, Sharding] = {}
    for mesh in meshes(devices):
        names = [name for name, _ in mesh.axes]
        for count in range(len(names) + 1):
            for axes, at in itertools.product(
                itertools.permutations(names, count), itertools.product(range(rank), repeat=count)
            ):
                dims = [DimSharding(tuple(AxisRef(a) for a, d in zip(axes, at, strict=True) if d == dim))
                        for dim in range(rank)]
                sharding = Sharding(ShardingKind.TILED, mesh, tuple(dims))
                found.setdefault(sharding.tiling(rank), sharding)
    return list(found.values())


def tilings(devices: int, rank: int) -> list[Tiling]:
    return [sharding.tiling(rank) for sharding in shardings(devices, rank)]


def random_tiling(rng: random.Random, devices: int, rank: int) -> Tiling:
    """Some axes of a mesh of up to three, in any order of the devices, spread over the dimensions."""
    sizes = [1] * rng.randint(1, 3)
    for prime in primes((Digit(devices, 1),)):
        sizes[rng.randrange(len(sizes))] *= prime.size
    order = IotaOrder(tuple(sizes), tuple(rng.sample(range(len(sizes)), len(sizes))))
    mesh = Mesh(tuple(zip("abc", sizes, strict=False)), order)
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for name, _ in rng.sample(mesh.axes, rng.randint(1, len(sizes))):
        rng.choice(dims).append(AxisRef(name))
    return Sharding(ShardingKind.TILED, mesh, tuple(DimSharding(tuple(d)) for d in dims)).tiling(rank)


def tiles(value: Array, tiling: Tiling, devices: int, seed: int = 0) -> Array:
    """What the devices hold of a value, [devices, *tile]: padding and what is not held are NaN, partial sums random."""
    rng = np.random.default_rng(seed)
    count = product(tiling.unreduced)
    parts = rng.integers(-9, 9, (count, *value.shape)).astype(np.float32)
    parts[0] = value - parts[1:].sum(0)
    result = np.full((devices, *tiling.local_dims(value.shape)), np.nan, np.float32)
    coordinates = coordinate(tiling.unreduced, tiling, devices)
    for device, box in enumerate(bounds(tiling, value.shape, devices).tolist()):
        if tiling.device in (None, device):
            part = parts[coordinates[device]][tuple(slice(a, b) for a, b in box)]
            result[(device, *(slice(0, n) for n in part.shape))] = part
    return result


def coordinate(digits: Digits, tiling: Tiling, devices: int) -> list[int]:
    """The number that the digits make on each device."""
    order = np.arange(devices) if tiling.order is None else np.argsort(np.asarray(tiling.order))
    result = np.zeros(devices, np.int64)
    for digit in digits:
        result = result * digit.size + order // digit.stride % digit.size
    return result.tolist()


Move = Callable[[Emitter, Channels, LocalValue, Tiling], Instruction]


def _resharded(emitter: Emitter, channels: Channels, machine: Machine) -> Move:
    resharder = Resharder(emitter, channels, machine)
    return lambda _, __, value, target: resharder.reshard(value, target, "test").instruction


def program(
    dims: tuple[int, ...], source: Tiling, targets: Sequence[Tiling], devices: int, machine: Machine = DEFAULT,
    move: Move | None = None,
) -> hloom.Module:
    """A LOCAL program from the tiles of one tiling to those of others, by the planner unless `move` emits them."""
    module, entry = hloom.Module("m"), Computation("e")
    module.stage, module.num_partitions = Stage.LOCAL, devices
    emitter, channels = Emitter(entry, source.order), Channels(devices)
    move = move or _resharded(emitter, channels, machine)
    local = source.local_dims(dims)
    x = entry.add("parameter", (), ParameterAttributes(0), array(F32, (1, *local)), "x")
    value = LocalValue(emitter.reshape(x, local), array(F32, dims), source)
    results = [move(emitter, channels, value, target) for target in targets]
    results = [emitter.add("reshape", (r,), shape=array(F32, (1, *r.shape.dims))) for r in results]
    entry.root = emitter.add("tuple", results)
    x.sharding = _one_each(devices, len(dims))
    entry.root.sharding = TupleSharding((x.sharding,) * len(targets))
    whole = [array(F32, (devices, *t.local_dims(dims))) for t in (source, *targets)]
    module.global_layout = EntryLayout((whole[0],), tuple_shape(tuple(whole[1:])))
    for reducer in channels.reducers.values():
        module.add_computation(reducer)
    module.add_computation(entry, entry=True)
    hloom.verify(module)
    return module


def _one_each(devices: int, rank: int) -> Sharding:
    ones = "".join(",1" for _ in range(rank))
    found = parse_sharding(f"{{devices=[{devices}{ones}]<=[{devices}]}}")
    assert isinstance(found, Sharding)
    return found


def check(held: Array, value: Array, tiling: Tiling, what: str) -> None:
    """Every device holds what the tiling says; partial sums add up."""
    devices = len(held)
    if tiling.unreduced:
        held = np.stack([
            np.sum([held[d] for d in range(devices) if _same_sum(tiling, d, device, devices)], 0)
            for device in range(devices)
        ])
    for device, box in enumerate(bounds(tiling, value.shape, devices).tolist()):
        if tiling.device not in (None, device):
            continue
        part = held[(device, *(slice(0, max(b - a, 0)) for a, b in box))]
        np.testing.assert_array_equal(part, value[tuple(slice(a, b) for a, b in box)], f"device {device}, {what}")


def _same_sum(tiling: Tiling, device: int, other: int, devices: int) -> bool:
    """Whether two devices differ in the unreduced digits alone (or are the same)."""
    order = np.arange(devices) if tiling.order is None else np.argsort(np.asarray(tiling.order))
    places = [int(order[d]) for d in (device, other)]
    for digit in tiling.unreduced:
        places = [p - p // digit.stride % digit.size * digit.stride for p in places]
    return places[0] == places[1]


def check_all(
    dims: tuple[int, ...], source: Tiling, targets: Sequence[Tiling], devices: int, machine: Machine = DEFAULT,
    move: Move | None = None,
) -> None:
    """One value, resharded to each target by one program: the right data arrives."""
    value = np.random.default_rng(1).integers(-99, 99, dims).astype(np.float32)
    found = hloom.simulate(program(dims, source, targets, devices, machine, move), [tiles(value, source, devices)])
    for held, target in zip(found, targets, strict=True):
        check(held, value, target, f"{source} to {target}")
