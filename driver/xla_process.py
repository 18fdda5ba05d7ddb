"""Compiles HLO text with XLA for virtual devices of the CPU: `python xla_process.py DEVICES < F.hlo`.

It runs in a process of its own, without Hloom: XLA reads its flags when it starts, and ends its process where it meets
what it does not expect. The flags, which also tell where programs are dumped, are those of the environment.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main(text: str, count: int) -> None:
    """Compiles a program for `count` devices. Raises RuntimeError for one that XLA refuses."""
    jax: Any = importlib.import_module("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    xla: Any = importlib.import_module("jaxlib._jax")
    module = hlo.hlo_module_from_text(text)
    stablehlo = xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    options = xla.CompileOptions()
    options.num_replicas, options.num_partitions = 1, count
    options.executable_build_options.use_spmd_partitioning = True
    debug = options.executable_build_options.debug_options  # the code is not run
    debug.xla_backend_optimization_level = 0
    debug.xla_llvm_disable_expensive_passes = True
    devices = tuple(jax.devices("cpu")[:count])
    devices[0].client.compile_and_load(stablehlo, xla.DeviceList(devices), options)


if __name__ == "__main__":
    main(sys.stdin.read(), int(sys.argv[1]))
