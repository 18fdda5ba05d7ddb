"""Makes a function of JAX of the program of each device.

The program becomes the body of a `jax.shard_map`: JAX exports a stub of the right signature, and the serialized program
in it is replaced by Hloom's. XLA's partitioner leaves such bodies alone, and everything after it (fusion, layouts,
code) is XLA's as ever. Only this file relies on the fields of `jax.export.Exported`; they are checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..codegen import body_module
from ..codegen.for_cpu import for_cpu
from ..frontends.extras import INSTALL, imported
from ..ir.diagnostics import fail
from ..ir.graph.module import Module
from .host import NO_HOST, Host, number_calls

PURPOSE = "to run programs with JAX"
_PROGRAM = "mlir_module_serialized"
_FIELDS = ("fun_name", "nr_devices", "in_avals", "out_avals", "ordered_effects", _PROGRAM)


def local_function(local: Module, platform: str, host: Host = NO_HOST, first: int = 0) -> Callable[..., Any]:
    """Returns the program of one device as a function of JAX on tiles, to be called inside of a `shard_map`.
    `first` is the number, in the program around it, of the first Python function of `host` that it calls.

    Raises CompileError if StableHLO cannot express it, or if this version of JAX has no such artifacts.
    """
    module = body_module(for_cpu(local) if platform == "cpu" else local)
    number_calls(module, first)
    return dataclasses.replace(with_program(module, platform), ordered_effects=host.ordered).call


def with_program(module: Module, platform: str) -> Any:
    """Returns a program of one device as a `jax.export.Exported`, which takes and gives the leaves of its parameters
    and its result. Raises CompileError as `local_function` does.
    """
    jax, export = imported("jax", PURPOSE), imported("jax.export", PURPOSE)
    entry = module.entry
    tiles = [jax.ShapeDtypeStruct(p.shape.dims, p.shape.element.numpy) for p in entry.parameters if p.shape.is_array]
    results = [(leaf.dims, leaf.element.numpy) for leaf in entry.root.shape.leaves() if leaf.is_array]
    artifact = module.to_stablehlo_bytecode()

    def stub(*_: Any) -> tuple[Any, ...]:
        return tuple(jax.numpy.zeros(*result) for result in results)

    with jax.enable_x64(True):  # the program has the types that it has
        exported: Any = export.export(jax.jit(stub, keep_unused=True), platforms=platforms_of(platform))(*tiles)
    missing = [name for name in _FIELDS if name not in getattr(exported, "__dataclass_fields__", {})]
    if missing:
        fail(f"jax.export of this version of jax has no {missing[0]}, which Hloom replaces", help=INSTALL)
    changed: Any = dataclasses.replace(exported, **{_PROGRAM: artifact, "fun_name": module.name})
    return changed


def platforms_of(platform: str) -> tuple[str, ...] | None:
    """Returns the platforms to export for; None is JAX's default, which knows the names of accelerators."""
    return ("cpu",) if platform == "cpu" else None
