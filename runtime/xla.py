"""Runs a partitioned program on XLA's own devices, through jaxlib. Like the simulator, it takes and returns global
arrays.

The program runs as N replicas (`codegen.replica_module`), each of which gets its own tiles. Only `_Client` uses private
parts of jax. Needs the extra `xla`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..codegen import replica_module
from ..codegen.for_cpu import for_cpu
from ..ir.checked_call import checked
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from ..ir.tools.placement import placements
from ..ir.tools.process_grid import ProcessGrid
from ..ir.tools.separate import separate
from ..ir.types.literal import Array
from .global_arrays import join_outputs, packed_inputs, split_inputs, unpacked_outputs

_COUNT = "--xla_force_host_platform_device_count"


@checked
def run_on_xla(module: Module, inputs: Sequence[Array], platform: str = "cpu") -> list[Array]:
    """Compiles a LOCAL module with XLA and runs it on as many of XLA's devices as the program has.

    Takes one global array per leaf of the parameters and returns one per leaf of the result. On the CPU the devices are
    virtual: XLA creates as many as the program needs, unless jax has already started. Raises CompileError if jax is
    missing, has too few devices, or rejects the program, and as `simulate` does for inputs that do not fit.
    """
    grid = ProcessGrid.of(module)
    parameters, results = placements(module)
    tiles = packed_inputs(module, split_inputs(inputs, parameters, range(grid.size), grid))
    client = _Client(platform, grid.size)
    outputs = unpacked_outputs(module, client.run(_replicas(module, platform), tiles))
    return join_outputs(outputs, results, grid)


def _replicas(module: Module, platform: str) -> Module:
    return replica_module(for_cpu(module) if platform == "cpu" else separate(module))


class _Client:
    """XLA's client for some of its devices. Raises CompileError if there are not enough."""

    def __init__(self, platform: str, count: int) -> None:
        if platform == "cpu" and _COUNT not in os.environ.get("XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_COUNT}={count}".strip()
        self.jax = _imported("jax")
        try:
            self.devices = tuple(self.jax.devices(platform)[:count])
        except RuntimeError as error:
            fail(f"XLA has no platform {platform}: {error}")
        if len(self.devices) < count:
            fail(f"XLA has {len(self.devices)} {platform} devices, the program needs {count}",
                 help=f"set XLA_FLAGS={_COUNT}={count} before jax starts" if platform == "cpu" else None)

    def run(self, module: Module, arguments: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Runs a program of one replica per device: `[device][parameter]` in, `[device][result]` out."""
        jax = self.jax
        everywhere = jax.sharding.NamedSharding(
            jax.sharding.Mesh(np.array(self.devices), ("device",)), jax.sharding.PartitionSpec()
        )
        with jax.enable_x64(True):
            loaded = self._compiled(module)
            handles: list[Any] = []
            for values in zip(*arguments, strict=True):
                shards = [jax.device_put(value, device) for value, device in zip(values, self.devices, strict=True)]
                # XLA reads the buffers only; the replicated sharding of the handle does not matter.
                handles.append(jax.make_array_from_single_device_arrays(shards[0].shape, everywhere, shards))
            try:
                outputs = loaded.execute_sharded(handles).disassemble_into_single_device_arrays()
            except jax.errors.JaxRuntimeError as error:
                fail(f"XLA cannot run {module.name}: {error}")
        return [[np.asarray(output[n]) for output in outputs] for n in range(len(self.devices))]

    def _compiled(self, module: Module) -> Any:
        hlo, xla = _imported("jaxlib._hlo"), _imported("jaxlib._jax")
        options = xla.CompileOptions()
        options.num_replicas, options.num_partitions = len(self.devices), 1
        try:
            parsed = hlo.hlo_module_from_text(module.to_text())
            stablehlo = xla.mlir.hlo_to_stablehlo(parsed.as_serialized_hlo_module_proto())
            return self.devices[0].client.compile_and_load(stablehlo, xla.DeviceList(self.devices), options)
        except (RuntimeError, ValueError) as error:
            fail(f"XLA does not compile {module.name}: {error}")


def _imported(name: str) -> Any:
    """Imports a module of jax. Raises CompileError if it is missing, or this version of jax has it elsewhere."""
    try:
        return importlib.import_module(name)
    except ImportError:
        fail(f"{name} is missing" if name == "jax" else f"this version of jaxlib has no {name}",
             help="pip install 'hloom[xla]'")
