"""Tells Python functions the shardings of values: `jax.debug.inspect_array_sharding`.

JAX leaves it to XLA's partitioner to call the functions, which a custom-call names by an address. Here it names them by
number, and Hloom calls them once it has chosen shardings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..frontends.extras import imported
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module, Stage
from ..ir.ops.calls.custom_call import target_of
from ..ir.sharding.sharding import leaf_shardings
from ..ir.sharding.tiling import Tiling
from ..passes.base import Pass, PassContext
from . import PURPOSE
from .meshes import placed, spell

_TARGET = "InspectSharding"


@functools.cache
def primitive_of_inspections() -> Any:
    """Returns JAX's primitive, which has no public name."""
    jax = imported("jax", PURPOSE)
    (equation,) = jax.make_jaxpr(functools.partial(jax.debug.inspect_array_sharding, callback=print))(0.0).eqns
    return equation.primitive


def numbering(functions: list[Callable[..., None]]) -> Callable[..., Any]:
    """Returns the lowering rule of that primitive, which adds each function to a list and calls it by its number."""
    ffi = imported("jax.ffi", PURPOSE)

    def lower(context: Any, value: Any, *, callback: Callable[..., None]) -> list[Any]:
        rule = ffi.ffi_lowering(_TARGET, has_side_effect=True, backend_config=str(len(functions)), api_version=1,
                                skip_ffi_layout_processing=True)  # fmt: skip
        rule(context.replace(avals_out=context.avals_in), value)
        functions.append(callback)
        return []

    return lower


@dataclass(frozen=True)
class TellShardings(Pass):
    """Calls the function of each inspected value with the value's sharding on the devices of the program."""

    functions: Sequence[Callable[..., None]]
    devices: Sequence[Any]

    name: ClassVar[str] = "tell-shardings"
    consumes: ClassVar[frozenset[Stage]] = frozenset((Stage.SHARDED,))

    def run(self, module: Module, context: PassContext) -> bool:
        for computation in module:
            for instruction in computation:
                if target_of(instruction) == _TARGET:
                    function = self.functions[int(str(instruction.backend_config))]
                    function(self._sharding(module, instruction.operands[0]))
        return False

    def _sharding(self, module: Module, value: Instruction) -> Any:
        (sharding,) = leaf_shardings(value.sharding, 1)
        dims = sharding.tiling(value.shape.rank).dims if sharding is not None and not sharding.has_manual else ()
        mesh, (spec,) = spell([Tiling(dims)], len(self.devices), module.meshes.values())
        return placed(imported("jax", PURPOSE).sharding.NamedSharding(mesh, spec), self.devices)
