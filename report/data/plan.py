"""Prepares the subject of a report: a program, its shardings, its per-device program, and the forecast of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...cost.machine import Machine
from ...ir.brief import brief
from ...ir.diagnostics import Diagnostic
from ...ir.graph.module import Module, Stage, clone_module
from ...ir.sharding.mesh import Mesh
from ...ir.sharding.sharding import Sharding
from ...ir.tools.spmd import is_per_device
from ...passes.base import PassContext
from ...passes.pipelines import partition, remarks
from ...passes.propagation.one_device import is_undivided
from ...passes.scheduling import schedule
from ...passes.stages import divided_states, to_scheduled
from ..forecast import StepForecast, forecast_of
from ..measured import Agreement
from ..shardings import Solved, solved


@brief
@dataclass(frozen=True, slots=True)
class Reported:
    """A program as a report shows it. `solved` is None for one that came with shardings of all values, or per device.
    `label` tells strategies of one program apart, `measured` are the times of a run, and
    `shardings` those of values by name where another partitioner has found them.
    """

    label: str
    whole: Module
    local: Module
    solved: Solved | None
    forecast: StepForecast
    machine: Machine
    found: tuple[Diagnostic, ...]
    measured: Agreement | None = None
    shardings: Mapping[str, Sharding] | None = None


def reported(whole: Module, context: PassContext, label: str = "", memory: int | None = None) -> Reported:
    """Propagates, partitions and forecasts a program; schedules it within `memory` bytes of a device (0: those of the
    machine) unless that is None. The module given stays as it is, and one that is partitioned already is only forecast.
    Raises CompileError.
    """
    found, local = None, clone_module(whole)
    divided = None if memory is None else divided_states(whole, context)
    if whole.stage is Stage.GLOBAL and not is_per_device(whole):
        undivided = is_undivided(whole, context)
        found = solved(clone_module(whole), context)
        local = local if undivided else clone_module(found.module)
    if not is_per_device(local):
        partition(local, context)
    if to_scheduled(local, context, None if local.has_schedule else memory, divided=divided):
        states = divided_states(whole, context)
        found = solved(states, context) if states is not None else found
    return described(whole, local, found, context, label, memory)


def described(
    whole: Module, local: Module, found: Solved | None, context: PassContext, label: str, memory: int | None
) -> Reported:
    """Forecasts the program of each device, whoever divided it; schedules it first, in place, unless `memory` is None.
    Shows it as the machine runs it (`PassContext.as_run`). Raises CompileError.
    """
    if memory is not None and not local.has_schedule:
        schedule(local, context, memory)
    local, clock = context.run_as(local)
    forecast = forecast_of(local, context.machine, whole, clock=clock)
    return Reported(label, whole, local, found, forecast, context.machine, tuple(remarks(context)))


def on_mesh(found: Mapping[str, Sharding], mesh: Mesh) -> dict[str, Sharding]:
    """Returns shardings with the axes of a mesh, where it has them."""
    named: dict[str, Sharding] = {}
    for name, sharding in found.items():
        tiling = sharding.tiling(len(sharding.dims))
        named[name] = Sharding.from_tiling(tiling, mesh) or sharding
    return named
