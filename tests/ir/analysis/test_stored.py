"""Which values lie in memory: forecasts assume just what the fuser leaves there."""

from __future__ import annotations

from collections.abc import Iterator

import hloom
import pytest
from comm_programs.models import FILES
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import Clock
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.interfaces import memory
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.graph.op import Role
from hloom.ir.tools.control_flow import computations_run
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.cleanup.dce import DeadCodeElimination
from hloom.passes.fusion.fuse import FusionPass
from support.command_line import EXAMPLES
from support.partition_check import partitioned


def in_memory(computation: Computation) -> Iterator[str]:
    """The names of the arrays that a fused computation makes."""
    for i in computation:
        if i.op.role is Role.FUSION and i.called()[0].name.startswith("fused_computation"):
            root = i.called()[0].root
            yield from (r.name for r in (root.operands if root.op.role is Role.TUPLE else [root]))
        elif i.op.role is not Role.ELEMENT:
            yield i.name


def shown(value: Instruction) -> Iterator[str]:
    """The names of a value and its views."""
    yield value.name
    for user in value.users:
        if memory(user.op).is_view:
            yield from shown(user)


def disagreements(module: Module) -> list[str]:
    """The values of a program that lie in memory for a forecast and not after fusion, or the other way round."""
    context = PassContext()
    run_pipeline([DeadCodeElimination()], module, context)
    fused, clock, found = clone_module(module), Clock.of(module, PRESETS["h100"]), list[str]()
    run_pipeline([FusionPass(blocks=False)], fused, context)
    made = {c.name: set(in_memory(c)) for c in fused}
    for computation in computations_run(module):
        names = made[computation.name]
        for value in computation:
            if value.shape.is_array and not memory(value.op).is_view and value.op.role is not Role.ELEMENT:
                is_stored = not names.isdisjoint(shown(value))
                found += [value.name] if clock.is_stored(value) is not is_stored else []
    return found


@pytest.mark.share(3)
@pytest.mark.parametrize("name", FILES)
def test_forecasts_assume_what_is_fused(name: str) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    assert disagreements(clone_module(module)) == []
    assert disagreements(partitioned(module)) == []


@pytest.mark.slow
def test_forecasts_of_models_assume_what_is_fused() -> None:
    pytest.importorskip("jax")
    from sharded_programs.catalog import PROGRAMS

    for name in sorted(PROGRAMS):
        assert disagreements(hloom.partition(hloom.parse(PROGRAMS[name]())).module) == [], name
