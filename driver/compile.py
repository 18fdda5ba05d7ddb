"""Makes a `Program` of a module: partitions and schedules it, and chooses its backend.

A program that runs on ranks is scheduled where that is forecast to save more time than it takes. A forecast needs
a machine: that of `hloom machine calibrate`, or another that the user names. Without a schedule equal collectives of a
program are combined (`combine_collectives`), and a schedule has to be faster than that. It cannot save more than the
time for which computation waits for collectives, so a program that runs once, or hardly communicates, is not scheduled
at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ..cost.host import HOST
from ..cost.machine import DEFAULT, Machine
from ..cost.presets import as_machine
from ..cost.timeline import timeline
from ..ir.checked_call import Duration, NotNegative, Positive, checked
from ..ir.deadlock.find import find_waits
from ..ir.diagnostics import CompileError, Diagnostics, fail, without_errors
from ..ir.gc_pause import paused_collector
from ..ir.graph.module import Module, clone_module
from ..ir.tools.interface import unflattened
from ..ir.tools.library_calls import without_library_calls
from ..ir.tools.spmd import is_per_device
from ..ir.tools.unknown_values import require_values
from ..passes.base import PassContext, Rules, run_pipeline
from ..passes.op_sharding.forms import LocalForms
from ..passes.pipelines import remarks
from ..passes.schedule.combine_collectives import CombineCollectives
from ..passes.scheduling import schedule
from ..passes.spmd.local_forms import local_forms
from ..passes.stages import During, divided_states, to_local, to_scheduled, unseen
from ..runtime.plan.call_graph import live_in
from .assumptions import remark_callbacks, remark_placements
from .backend import AUTO, NATIVE, Backend
from .program import Program

_BETTER = 0.99  # share of the time without a schedule that one must stay below


@dataclass(frozen=True, slots=True)
class Options:
    """How a program is compiled.

    `ranks` is the number of MPI ranks that it will run on (None: in one process). `schedule` orders its collectives; by
    None a native program on ranks is scheduled if the machine `is_known` and a forecast says that it pays. `memory`
    limits the bytes of a schedule on a device (0: those of the machine), `flat_parameters` joins the parameters that it
    gathers together, and `split_batch` is the number of parts in which it may compute the batch. `runs` is how often
    the program will run.
    """

    backend: str = AUTO
    ranks: int | None = None
    schedule: bool | None = None
    is_known: bool = False
    memory: int = 0
    flat_parameters: bool = False
    runs: float = math.inf
    split_batch: int = 0


@checked
def compile(
    module: Module, num_devices: Positive | None = None, *, backend: Literal["auto", "native", "reference"] = "auto",
    machine: Machine | str | None = None, ranks: Positive | None = None, schedule: bool | None = None,
    memory: NotNegative = 0, flat_parameters: bool = False, runs: Duration = math.inf, rules: Rules | None = None,
    forms: LocalForms | None = None, split_batch: int = 0,
) -> Program:
    """Returns a module compiled to run, as `hloom run` compiles it; the module is left as it is.

    A GLOBAL or SHARDED module is partitioned (`num_devices`, `rules`, `forms` and `machine` as for `partition`), a
    per-device program is taken as it is. `backend` computes it: `native` code, the `reference` op by op, or the faster
    of both for a program that runs `runs` times (`auto`). `ranks` is the number of MPI ranks that it will run on.
    `schedule` orders its collectives in at most `memory` bytes of a device (0: those of the machine); by None, a native
    program for ranks is scheduled where a forecast for the `machine` says that it pays. `flat_parameters` joins
    parameters that a schedule gathers together, and `split_batch` parts of the batch are computed independently of each
    other where that is faster.

    Raises CompileError for programs that cannot be partitioned, scheduled within `memory`, or run, and for `memory`,
    `flat_parameters` or `split_batch` without a `schedule`.
    """
    of_schedule = {"memory": memory, "flat_parameters": flat_parameters, "split_batch": split_batch}
    for word in (word for word, given in of_schedule.items() if given and not schedule):
        fail(f"{word} is for a schedule: give schedule=True, too")
    context = PassContext(
        num_devices=num_devices, default_devices=ranks, machine=DEFAULT if machine is None else as_machine(machine),
        rules=rules or {}, forms=forms or local_forms(),
    )
    options = Options(backend, ranks, schedule, machine is not None, memory, flat_parameters, runs, split_batch)
    with paused_collector():
        program = compiled(module, context, options)
    program.require_runnable(ranks)
    return program


def compiled(module: Module, context: PassContext, options: Options, during: During = unseen) -> Program:
    """Returns a module compiled by a context, which receives the remarks. `during` surrounds each part of the work.
    Raises CompileError.
    """
    require_values(live_in(module.entry), "to run the program")
    program = Program(without_library_calls(unflattened(module)), clone_module(module), machine=context.machine)
    local, ranks = program.local, options.ranks
    if is_per_device(module) and context.num_devices not in (None, program.devices):
        fail(f"the program was partitioned for {program.devices} devices, {context.num_devices} are asked for")
    divided = divided_states(local, context) if options.schedule else None
    to_local(local, context, during)
    if options.schedule:
        to_scheduled(local, context, options.memory, flat=options.flat_parameters, during=during,
                     split=options.split_batch, divided=divided)
    if ranks is not None and ranks > program.devices:
        fail(f"the program runs on {program.devices} devices, too few for {ranks} ranks")
    unsure = without_errors(find_waits(local))
    if ranks is not None:  # in one process a device that waits in vain is an error of the run
        context.diagnostics.found += unsure
    program.backend = Backend.chosen(options.backend, local, -(-program.devices // (ranks or 1)) * options.runs)
    is_free = options.schedule is None and options.is_known and not local.has_schedule
    if ranks is not None and is_free and program.backend.acting == NATIVE:
        with during("scheduling"):
            schedule_for_ranks(local, context, options.runs)
    with during("compiling"):
        program.backend = program.backend.knowing(local)
    remark_placements(local, context.diagnostics)
    remark_callbacks(local, context.diagnostics)
    program.backend.remark(context.diagnostics)
    program.diagnostics = tuple(remarks(context))
    return program


def schedule_for_ranks(module: Module, context: PassContext, times: float) -> None:
    """Schedules a LOCAL module in place if `times` runs on the context's machine are forecast to take less time, and
    remarks on it.
    """
    combined = clone_module(module)
    run_pipeline([CombineCollectives()], combined, PassContext())
    plain = timeline(combined, context.machine)
    if plain.exposed * HOST.scheduled_share * times < HOST.scheduling * sum(map(len, module)):
        return
    scheduled, unheard = clone_module(module), Diagnostics()
    try:
        schedule(scheduled, replace(context, diagnostics=unheard))
    except CompileError:  # the machine may have less memory than the host that plays it
        return
    seconds = timeline(scheduled, context.machine).seconds
    if seconds < plain.seconds * _BETTER:
        module.take(scheduled)
        saved = 1 - seconds / plain.seconds
        context.diagnostics.remark(
            f"the program is scheduled, as by --schedule: a run is forecast to take {saved:.0%} less time",
            help="--no-schedule runs it as it is",
        )
