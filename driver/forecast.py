"""Forecasts the step of a program, for the command and for Python."""

from __future__ import annotations

from dataclasses import replace

from ..cost.machine import DEFAULT, Machine
from ..cost.presets import as_machine
from ..ir.checked_call import NotNegative, checked
from ..ir.diagnostics import fail
from ..ir.gc_pause import paused_collector
from ..ir.graph.module import Module, clone_module
from ..passes.base import PassContext
from ..passes.schedule.bound import program_bound
from ..passes.stages import During, divided_states, partition_and_schedule, to_local, to_scheduled, unseen
from ..report.forecast import StepForecast, forecast_of, memory_by_xla
from ..report.schedule import Schedule, schedule_of
from .native_clock import native_clock, program_work


@checked
def forecast(
    module: Module, machine: Machine | str = DEFAULT, *, memory: NotNegative = 0, batch_of: str = "",
    split_batch: int = 0,
) -> StepForecast:
    """Returns the forecast of a program on a machine, as `hloom forecast` prints it. It is partitioned, and scheduled
    within `memory` bytes of a device (0: those of the machine), unless it already is; the module given stays as it is.

    `batch_of` names the parameter whose elements are counted per second if they are integers (tokens), or else its rows
    (samples). `split_batch` is the number of parts in which the batch may be computed. Raises CompileError.
    """
    context = PassContext(machine=as_machine(machine))
    local = partition_and_schedule(clone_module(module), context, memory, split_batch)
    return forecast_in_order(local, context.machine, module, batch_of)


def schedule_in_order(local: Module, machine: Machine) -> Schedule:
    """Returns the schedule of a per-device program in its order, with the times of `forecast_in_order`."""
    as_run = native_clock(local, machine)
    if as_run is None:
        return schedule_of(local, machine)
    prepared, clock = as_run
    found, bound = schedule_of(prepared, machine, clock), program_bound(prepared, clock).seconds
    return replace(found, bound=bound, gap=found.seconds / bound - 1 if bound else None)


def put_in_order(
    module: Module, context: PassContext, *, as_is: bool = False, memory: int = 0, flat: bool = False, split: int = 0,
    with_before: bool = False, during: During = unseen,
) -> Schedule | None:
    """Makes a module the program of each device, in place. It gets a new order within `memory` bytes (0: those of the
    machine), unless it has a schedule or stays `as_is`; `flat` and `split` are those of `to_scheduled`. `during`
    surrounds each part of the work.

    Returns the schedule of the old order, if asked for it by `with_before` and the order is new. Raises CompileError.
    """
    divided = None if as_is else divided_states(module, context)
    to_local(module, context, during)
    if module.has_schedule and split:
        fail(f"{module.name} is scheduled already: its batch stays whole",
             help="--split-batch takes programs without a schedule")  # fmt: skip
    keeps = as_is or module.has_schedule
    before = schedule_in_order(module, context.machine) if with_before and not keeps else None
    to_scheduled(module, context, None if keeps else memory, flat=flat, during=during, split=split, divided=divided)
    return before


def forecast_in_order(local: Module, machine: Machine, whole: Module, batch_of: str = "") -> StepForecast:
    """Returns the forecast of a per-device program in its order, with the times of native code and the memory of XLA
    where the machine runs it by these. `whole` and `batch_of` are those of `forecast_of`. Raises CompileError.
    """
    with paused_collector():
        as_run = native_clock(local, machine)
        local, clock = (local, None) if as_run is None else as_run
        found = forecast_of(local, machine, whole, batch_of, clock, memory_by_xla(local, machine))
    if clock is None or not machine.native.unmeasured:
        return found
    return replace(found, unmeasured=machine.native.not_measured(program_work(local, machine.native.second_cache)))
