"""Models among the compared programs: the examples, and the annotated JAX programs of `sharded_programs`.

JAX's programs say little about their results and speak Shardy's language. So that two partitioners can begin and end
with the same tiles, parameters and results get the shardings that Hloom's propagation finds, and all annotations are
written as HLO shardings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hloom
from hloom.driver import by_xla
from hloom.driver.by_xla import plain, write_listed
from hloom.ir.graph.module import Module, Stage, clone_module

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
    return by_xla.with_fixed_ends(module, hloom.propagate(module), name)


def as_sharded(module: Module) -> Module:
    """The program with the shardings of Hloom's propagation on every array outside of tuples.

    Loops have none: XLA drops state that does not change on its way, and refuses the sharding that still lists it.
    """
    sharded = hloom.propagate(module)
    sharded.stage = Stage.GLOBAL
    for computation in sharded:
        for instruction in computation:
            inner = instruction.shape.is_tuple and instruction is not sharded.entry.root
            write_listed(instruction, None if inner else instruction.sharding)
    return plain(sharded, module.name, sharded.num_partitions)


def as_listed(module: Module) -> Module:
    """A copy with all annotations as device lists, which XLA's own propagation reads. It says nothing of where its
    instructions come from.
    """
    copy = clone_module(module)
    copy.stack_frames = ""
    for computation in copy:
        for instruction in computation:
            write_listed(instruction, instruction.annotation)
            instruction.metadata = instruction.location = None
    return plain(copy, module.name, module.num_partitions)
