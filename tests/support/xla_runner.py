"""XLA as an outside oracle: compiles HLO text for several virtual CPU devices and runs it on numpy arrays.

Three ways to run: `compile_text(..).run` (one device), `run_manual` (partitions, global arrays in and out) and
`run_replicas` (replicas, per-device arrays in and out). How global arrays are cut and put together is read from the
executable that XLA made, not from Hloom, so that a wrong sharding in the text shows as a wrong number. Padding is
filled with NaN (or a large integer) on the way in: a program that lets it leak gives wrong numbers too.

Assumes `tests/conftest.py`, which gives XLA its eight devices. Without jax a test that compiles is skipped.
"""

# jaxlib's internal modules have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]
# XLA's older emitters of element-wise code compile five times as fast. They do not know all ops and types.
_QUICK, _EXACT = ([("xla_cpu_use_fusion_emitters", new)] for new in (False, True))


@dataclass(frozen=True)
class Executable:
    """A compiled program, the devices it runs on, and how XLA cuts its parameters and results."""

    loaded: Any
    devices: tuple[Any, ...]
    module: Any

    def run(self, arguments: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """`arguments[device][parameter]` in, `[device][result]` out."""
        jax: Any = importlib.import_module("jax")
        mesh = jax.sharding.Mesh(np.array(self.devices), ("d",))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        with jax.enable_x64(True):
            handles: list[Any] = []
            for values in zip(*arguments, strict=True):
                shards = [jax.device_put(v, d) for v, d in zip(values, self.devices, strict=True)]
                # XLA reads the buffers only; the sharding of the handle (which says "replicated") plays no part.
                handles.append(jax.make_array_from_single_device_arrays(shards[0].shape, whole, shards))
            results = self.loaded.execute_sharded(handles).disassemble_into_single_device_arrays()
        return [[np.asarray(result[d]) for result in results] for d in range(len(self.devices))]


def compile_text(
    text: str, replicas: int = 1, partitions: int = 1, quick: bool = False, without: str = ""
) -> Executable:
    """Compiles HLO text for replicas x partitions devices, `without` one of XLA's passes. Raises what XLA raises if it
    does not like the text.

    With `quick`, XLA's older emitters make the code where they know how to.
    """
    jax: Any = pytest.importorskip("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    xla: Any = importlib.import_module("jaxlib._jax")
    if "lapack_" in text:  # the routines are found when JAX first makes such a call
        importlib.import_module("jaxlib.lapack")._lapack.initialize()
    if "sparse_dense" in text:
        importlib.import_module("jax.experimental.sparse")
    module = hlo.hlo_module_from_text(text)
    stablehlo = xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    devices = tuple(jax.devices("cpu")[: replicas * partitions])
    assert len(devices) == replicas * partitions, "too few virtual devices: see tests/conftest.py"
    options = xla.CompileOptions()
    options.num_replicas, options.num_partitions = replicas, partitions
    options.executable_build_options.use_spmd_partitioning = partitions > 1
    debug = options.executable_build_options.debug_options  # small programs run once: code need not be fast
    debug.xla_backend_optimization_level = 0
    debug.xla_llvm_disable_expensive_passes = True
    compile_and_load = devices[0].client.compile_and_load
    if quick:
        options.env_option_overrides = _QUICK
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # without them, it may be no error
            return Executable(compile_and_load(stablehlo, xla.DeviceList(devices), options), devices, module)
    options.env_option_overrides = [*_EXACT, *([("xla_disable_hlo_passes", without)] if without else [])]
    loaded = compile_and_load(stablehlo, xla.DeviceList(devices), options)
    return Executable(loaded, devices, module)


def run_replicas(text: str, arguments: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Runs a program of one replica per element of `arguments`: `[device][parameter]` in, `[device][result]` out."""
    return compile_text(text, replicas=len(arguments)).run(arguments)


def run_manual(text: str, inputs: Sequence[Array], partitions: int, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Runs a program of `partitions` partitions on global arrays; gives its results, of these global shapes.

    Results that several devices hold must be equal on them, to the bit.
    """
    program = compile_text(text, partitions=partitions)
    return run_partitioned(program, inputs, shapes)


def run_partitioned(
    program: Executable, inputs: Sequence[Array], shapes: Sequence[tuple[int, ...]], padding: float = math.nan
) -> list[Array]:
    """Runs a program that XLA partitioned on global arrays; floats are padded with this number."""
    cut = [
        shards_of(value, Tiles.of(sharding, value.ndim, len(program.devices)), padding)
        for value, sharding in zip(inputs, program.loaded.get_parameter_shardings(), strict=True)
    ]
    results = program.run([[shards[d] for shards in cut] for d in range(len(program.devices))])
    return [
        assemble([r[n] for r in results], Tiles.of(sharding, len(shape), len(program.devices)), shape)
        for n, (sharding, shape) in enumerate(zip(program.loaded.get_output_shardings(), shapes, strict=True))
    ]


@dataclass(frozen=True)
class Tiles:
    """How an array is cut: tiles per dimension, and for each device the index of its tile, None if it has none."""

    counts: tuple[int, ...]
    index: tuple[tuple[int, ...] | None, ...]

    @staticmethod
    def of(proto: Any, rank: int, devices: int) -> Tiles:
        """The tiles that an XLA sharding means for an array of this rank."""
        sharding = importlib.import_module("jaxlib._hlo").HloSharding.from_proto(proto)
        if sharding.is_replicated() or not sharding.tile_assignment_dimensions():
            return Tiles((1,) * rank, ((0,) * rank,) * devices)
        if sharding.is_maximal():
            owners = sharding.tile_assignment_devices()
            return Tiles((1,) * rank, tuple((0,) * rank if d in owners else None for d in range(devices)))
        dims = tuple(sharding.tile_assignment_dimensions())
        places = itertools.product(*map(range, dims))
        tile = dict(zip(sharding.tile_assignment_devices(), (place[:rank] for place in places), strict=True))
        return Tiles(dims[:rank], tuple(tile[d] for d in range(devices)))

    def region(self, index: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
        """The elements of an array of this shape in the tile; empty where it is all padding."""
        sizes = [-(-n // t) for n, t in zip(shape, self.counts, strict=True)]
        starts = [min(i * size, n) for i, size, n in zip(index, sizes, shape, strict=True)]
        return tuple(slice(a, min(a + size, n)) for a, size, n in zip(starts, sizes, shape, strict=True))


def shards_of(value: Array, tiles: Tiles, padding: float = math.nan) -> list[Array]:
    """One tile per device, padded with this number, integers with the type's largest one."""
    dims = tuple(-(-n // t) for n, t in zip(value.shape, tiles.counts, strict=True))
    filler = True if value.dtype == bool else np.iinfo(value.dtype).max if value.dtype.kind in "iu" else padding
    shards: list[Array] = []
    for index in tiles.index:
        shard = np.full(dims, filler, value.dtype)
        if index is not None:
            part = value[tiles.region(index, value.shape)]
            shard[tuple(slice(0, n) for n in part.shape)] = part
        shards.append(shard)
    return shards


def assemble(shards: Sequence[Array], tiles: Tiles, shape: Sequence[int]) -> Array:
    """The array of this shape of which the devices hold these tiles. Devices with the same tile must agree."""
    result = np.zeros(shape, shards[0].dtype)
    first: dict[tuple[int, ...], int] = {}
    for device, (index, shard) in enumerate(zip(tiles.index, shards, strict=True)):
        if index is None:
            continue
        region = tiles.region(index, shape)
        part = shard[tuple(slice(0, r.stop - r.start) for r in region)]
        other = first.setdefault(index, device)
        if other == device:
            result[region] = part
        assert part.tobytes() == result[region].tobytes(), f"devices {other} and {device} hold different values"
    return result
