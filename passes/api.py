"""The passes as functions on modules, for those who embed Hloom. The module given is left as it is."""

from __future__ import annotations

from ..ir.graph.module import Module, clone_module
from ..ir.tools.verifier import check
from . import pipelines
from .base import PassContext, Rules


def verify(module: Module) -> None:
    """Checks everything that must hold of a module at its stage. Raises CompileError with all that does not."""
    check(module)


def propagate(module: Module, num_devices: int | None = None, rules: Rules | None = None) -> Module:
    """A copy of a GLOBAL module in which every value has a sharding (stage SHARDED).

    `num_devices` is only needed for programs that name no mesh. `rules` gives built-in ops other sharding rules, by
    opcode, as text (`{"sort": "([b i]) -> [b i] permutation={i}"}`, used where it fits the shapes) or as functions from
    an `OpCall` to a `ShardingRule` or None. They steer propagation only: the partitioner divides work by the op's own
    rule. Raises CompileError, also if `num_devices` contradicts the meshes.
    """
    return pipelines.propagate(clone_module(module), PassContext(num_devices=num_devices, rules=rules or {}))


def partition(module: Module, num_devices: int | None = None) -> Module:
    """The program that each device runs (stage LOCAL), from a GLOBAL or SHARDED module; propagates first where needed.

    The entry's parameters and root carry their shardings, `global_layout` their global shapes. Raises CompileError.
    """
    return pipelines.partition(clone_module(module), PassContext(num_devices=num_devices))
