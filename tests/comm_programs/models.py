"""Models among the compared programs: the examples, and the annotated JAX programs of `sharded_programs`.

JAX's programs say little about their results and speak Shardy's language. So that two partitioners can begin and end
with the same tiles, parameters and results get the shardings that Hloom's propagation finds, and all annotations are
written as HLO shardings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import hloom
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module, Stage, clone_module
from hloom.ir.ops.calls.behaviour import CustomCallAttributes
from hloom.ir.ops.calls.custom_call import behaviour
from hloom.ir.sharding.sharding import AnySharding, Sharding, ShardingKind, Spelling, TupleSharding
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.cleanup.dce import DeadCodeElimination
from hloom.passes.cleanup.inline import CallInliner

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ("mlp_named", "mlp_train", "transformer_train", "transformer_scan_train")
MANUAL = ("shard_map_inside",)  # written in Shardy's words only


def models() -> dict[str, Callable[[], str]]:
    """Makers of annotated HLO text, by name. Needs JAX for all but the examples."""
    from sharded_programs.catalog import PROGRAMS

    found: dict[str, Callable[[], str]] = {name: (EXAMPLES / f"{name}.hlo").read_text for name in FILES}
    return found | {f"jax_{name}": PROGRAMS[name] for name in sorted(PROGRAMS) if name not in MANUAL}


def with_fixed_ends(name: str, text: str) -> Module:
    """The program with HLO shardings at its annotations, its parameters and its results."""
    module = hloom.parse(text, name)
    run_pipeline((CallInliner(), DeadCodeElimination()), module, PassContext())
    sharded = hloom.propagate(module)
    for computation in module:
        for instruction in computation:
            _write(instruction, instruction.annotation)
    ends = zip((*module.entry.parameters, module.entry.root), (*sharded.entry.parameters, sharded.entry.root))
    for ours, theirs in ends:
        _write(ours, theirs.sharding)
    return _plain(module, name, sharded.num_partitions)


def as_sharded(module: Module) -> Module:
    """The program with the shardings of Hloom's propagation on every array outside of tuples.

    Loops have none: XLA drops state that does not change on its way, and refuses the sharding that still lists it.
    """
    sharded = hloom.propagate(module)
    sharded.stage = Stage.GLOBAL
    for computation in sharded:
        for instruction in computation:
            inner = instruction.shape.is_tuple and instruction is not sharded.entry.root
            _write(instruction, None if inner else instruction.sharding)
    return _plain(sharded, module.name, sharded.num_partitions)


def as_listed(module: Module) -> Module:
    """A copy with all annotations as device lists, which XLA's own propagation reads. It says nothing of where its
    instructions come from.
    """
    copy = clone_module(module)
    copy.stack_frames = ""
    for computation in copy:
        for instruction in computation:
            _write(instruction, instruction.annotation)
            instruction.metadata = instruction.location = None
    return _plain(copy, module.name, module.num_partitions)


def _write(instruction: Instruction, sharding: AnySharding | None) -> None:
    """Puts a sharding on an instruction as a device list, and takes Shardy's away."""
    instruction.shardy = None
    instruction.frontend_attributes = {
        k: v for k, v in instruction.frontend_attributes.items() if not k.startswith("xla.sdy.")
    }
    instruction.sharding = _listed(sharding)
    attributes = instruction.attributes
    if isinstance(attributes, CustomCallAttributes) and behaviour(attributes).only_annotates:
        instruction.attributes = replace(attributes, custom_call_target="Sharding")


def _listed(sharding: AnySharding | None) -> AnySharding | None:
    if isinstance(sharding, TupleSharding):
        return TupleSharding(tuple(cast(Sharding, _listed(s)) for s in sharding.elements))
    if sharding is None or sharding.kind is not ShardingKind.TILED:
        return sharding
    if sharding.is_replicated:
        return Sharding(ShardingKind.REPLICATED)
    return replace(sharding, spelling=Spelling.V2)


def _plain(module: Module, name: str, devices: int) -> Module:
    module.name, module.num_partitions = name, devices
    module.meshes, module.frontend_attributes = {}, {}
    module.allow_propagation_to_parameters = module.allow_propagation_to_output = None
    return module
