"""The forecast of a step: its time and the parts of it, utilisation, rate, memory, and the bounds of the time.

Parts are the ops that work bounds, those that memory bounds, launches, the bubbles of pipelines, and the seconds by
which the collectives of each kind and group, and moves to and from the host, delay computation. Together they are the
step. Without its largest part the next one would bound it, unless collectives or moves that run beside computation take
longer than the rest.

Utilisation is the time that the program's products take at the peak of all devices, by the time of the step: the
products of the program before partitioning, so repeated work does not count, without those that JAX marks as computed
again, and with them.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from ..cost.attention import attention_kernels
from ..cost.bubbles import bubbles
from ..cost.layout import MeshLayout, best_layout
from ..cost.machine import SECOND, Machine
from ..cost.memory import LiveMemory, live_memory
from ..cost.runs import runs
from ..cost.seconds import Clock
from ..cost.sizes import timed
from ..cost.timeline import COMPUTE, TOGETHER, Timeline
from ..cost.work import computes, element_of, may_compute, multiply_adds
from ..ir.brief import brief
from ..ir.diagnostics import fail
from ..ir.graph.host_memory import is_host_move
from ..ir.graph.instruction import Instruction
from ..ir.graph.module import Module
from ..ir.grouping import group_by
from ..ir.in_notebooks import InNotebooks
from ..ir.ops.calls.custom_call import foreign_target, is_custom_call
from ..ir.ops.transfers import is_send, sent_bytes
from ..ir.tools.control_flow import computations_run
from ..ir.tools.library_calls import without_library_calls
from ..ir.tools.spmd import is_per_device
from ..ir.types.element_type import Kind
from ..passes.schedule.bound import Bound, program_bound
from .columns import columns
from .memory import buffers_table
from .schedule import Schedule, path_record, schedule_of
from .xla_memory import xla_memory

_AGAIN = "rematted_computation"  # in JAX's name of an op of the backward pass
_BUFFERS = 5


@dataclass(frozen=True, slots=True)
class ForecastPart:
    """A part of a step: its name and its seconds. `running` are those in which the collectives or moves of this part
    run, also those that computation hides; None for a part of computation.
    """

    name: str
    seconds: float
    running: float | None = None


@brief
@dataclass(frozen=True, slots=True)
class StepForecast(InNotebooks):
    """The forecast of a per-device program. `parts` are largest first; their seconds add up to those of the step. If
    the first one took no time, the step would be bound by the `next` one, empty if there is none.

    `utilisation` is the share of the devices' peak that the program's products take, `with_recomputation` also those
    that are computed again; both None if the program before partitioning is not known. `rate` counts `unit` per
    second. `kernels` is the number of products that are taken to be part of attention kernels, `torus` are the axes
    that the machine is taken to have, empty if it is none; `layout` says how the program's mesh lies best on it,
    None where it has no names or does not fit. `error` is the largest that forecasts of this machine have shown,
    None if none was compared. `unmeasured` are the kinds of the program's work (`cost.native_speed`) that seem to take
    no time, since the machine's calibration did not know them. `unknown` are the targets of custom-calls whose work is
    not known, and `send`, with their runs: they count by the bytes of their arrays in memory.
    """

    devices: int
    parts: tuple[ForecastPart, ...]
    next: str
    schedule: Schedule
    bound: Bound
    utilisation: float | None = None
    with_recomputation: float | None = None
    rate: float | None = None
    unit: str = ""
    kernels: int = 0
    torus: tuple[int, ...] = ()
    layout: MeshLayout | None = None
    error: float | None = None
    unmeasured: tuple[str, ...] = ()
    unknown: tuple[tuple[str, int], ...] = ()

    @property
    def seconds(self) -> float:
        """The time of a step."""
        return self.schedule.seconds

    @property
    def peak(self) -> int:
        """The bytes of a device at the peak of memory."""
        return self.schedule.peak

    def __str__(self) -> str:
        return forecast_text(self)


def memory_by_xla(local: Module, machine: Machine) -> LiveMemory | None:
    """Returns the memory of a program that XLA for CPUs compiles; None where the machine runs it otherwise."""
    return xla_memory(local) if machine.compiles_by_xla else None


def forecast_of(
    local: Module, machine: Machine, whole: Module, batch_of: str = "", clock: Clock | None = None,
    memory: LiveMemory | None = None,
) -> StepForecast:  # fmt: skip
    """Returns the forecast of a per-device program in its order. `whole` is the program before partitioning, or the
    same one. `clock` has its times and `memory` that of a device, if they are known. Raises CompileError if it has no
    parameter `batch_of`.
    """
    clock = clock or Clock.of(local, machine)
    found = schedule_of(local, machine, clock, memory or live_memory(local, clock))
    once = clock.serial(local.entry)
    waits = _delays(found)
    total = sum(wait.waited for wait in waits)
    scale = found.exposed / total if total else 0.0
    idle = bubbles(local, clock)
    named = {key: getattr(once, name) - sum(getattr(b.seconds, name) for b in idle)
             for key, name in (("products", "work"), ("memory", "memory"), ("launches", "launches"))}  # fmt: skip
    for b in idle:
        name = f"bubble, {b.stages} stages in {b.trips} trips"
        named[name] = named.get(name, 0.0) + b.seconds.compute
    parts = [ForecastPart(name, seconds) for name, seconds in named.items() if seconds]
    for name, own in group_by(waits, lambda wait: wait.name).items():
        parts.append(ForecastPart(name, scale * sum(w.waited for w in own), sum(w.running for w in own)))
    parts.sort(key=lambda part: (-part.seconds, -(part.running or 0)))
    devices = local.devices
    utilisation: tuple[float | None, float | None] = (None, None)
    if not is_per_device(whole) and found.seconds:
        utilisation = _utilisation(whole, machine, devices * found.seconds)
    count, unit = _counted(whole, batch_of) if batch_of else (0, "")
    kernels = 0
    if machine.attention:
        kernels = sum(len(attention_kernels(c).products) for c in computations_run(local))
    return StepForecast(
        devices, tuple(parts), _next(parts, waits, found.timeline), found, program_bound(local, clock), *utilisation,
        count / found.seconds if count and found.seconds else None, unit, kernels,
        clock.machine.torus, best_layout(local, clock.machine), machine.error, unknown=_unknown(local),
    )  # fmt: skip


class _Delay(NamedTuple):
    """A collective, or a move to or from the host: the part of the forecast that it belongs to, its engines, and the
    seconds in all runs by which it delays computation, and in which it runs.
    """

    name: str
    engine: str
    waited: float
    running: float


def _delays(found: Schedule) -> list[_Delay]:
    moves = [event for event in found.timeline.events if is_host_move(event.instruction)]
    return [
        *(_Delay(f"{c.kind}, {c.groups}", c.engine, c.waited * c.runs, c.seconds * c.runs) for c in found.collectives),
        *(_Delay(f"moves {e.engine}", e.engine, e.waited * e.trips, e.seconds * e.trips) for e in moves),
    ]


def _next(parts: Sequence[ForecastPart], waits: Sequence[_Delay], line: Timeline) -> str:
    """Names the part that would bound the step if the first one took no time."""
    if len(parts) < 2:
        return ""
    first, left = parts[0], line.compute
    if first.running is None:
        left -= first.seconds
    engine = max(line.busy, key=lambda e: line.busy[e], default="")
    if first.running is None and line.busy.get(engine, 0.0) > left:
        running = {name: sum(wait.running for wait in own if engine in wait.engine.split(TOGETHER))
                   for name, own in group_by(waits, lambda wait: wait.name).items()}  # fmt: skip
        return max(running, key=lambda name: running[name])
    return parts[1].name if parts[1].seconds else ""


def _utilisation(whole: Module, machine: Machine, seconds: float) -> tuple[float, float]:
    """Returns the time of all products at the peak of one device, by this time: without and with recomputation."""
    once = again = 0.0
    for run in runs(without_library_calls(whole), fused=True, having=may_compute):
        if computes(run.instruction):
            element = element_of(run.instruction)
            spent = run.count * machine.work(multiply_adds(run.instruction), element) / SECOND
            if _is_again(run.instruction):
                again += spent
            else:
                once += spent
    return once / seconds, (once + again) / seconds


def _unknown(local: Module) -> tuple[tuple[str, int], ...]:
    """Returns the targets of custom-calls whose work is not known, and `send` for sends, with their runs."""
    found = Counter[str]()
    for run in runs(local, fused=True, having=lambda op: is_custom_call(op) or is_send(op)):
        target = "send" if sent_bytes(run.instruction) is not None else foreign_target(run.instruction)
        if target is not None and not computes(run.instruction):
            found[target] += run.count
    return tuple(found.most_common())


def _is_again(instruction: Instruction) -> bool:
    return instruction.metadata is not None and _AGAIN in instruction.metadata.op_name


def _counted(module: Module, name: str) -> tuple[int, str]:
    """Returns how many tokens or samples a parameter has. Raises CompileError if there is no such."""
    layout = module.global_layout
    shapes = [p.shape for p in module.entry.parameters] if layout is None else list(layout.parameters)
    known = {n: s for p, s in zip(module.entry.parameters, shapes, strict=True) if s.is_array and s.dims
             for n in _names(p)}  # fmt: skip
    if name not in known:
        near = difflib.get_close_matches(name, known, 3) or list(known)[-8:]
        fail(f"no parameter of {module.name} is the array '{name}'", help=f"known: {', '.join(near)}")
    shape = known[name]
    is_tokens = shape.element.kind in (Kind.SIGNED, Kind.UNSIGNED)
    return (shape.num_elements, "tokens") if is_tokens else (shape.dims[0], "samples")


def _names(parameter: Instruction) -> Iterable[str]:
    return filter(None, (parameter.name, parameter.metadata.op_name if parameter.metadata else ""))


def forecast_text(found: StepForecast) -> str:
    """Returns the forecast for people."""
    schedule, bound = found.schedule, found.bound
    rows = [(p.name, timed(p.seconds), f"{p.seconds / found.seconds:.1%}",
             "" if p.running is None else timed(p.running)) for p in found.parts]  # fmt: skip
    lines = [f"{timed(found.seconds)} per step on {found.devices} devices of {schedule.machine}"]
    if rows:
        lines += ["", columns([("waits for", "time", "share", "runs for"), *rows], (False, True, True, True)), ""]
    if found.utilisation is not None and found.with_recomputation is not None:
        lines.append(f"utilisation: {found.utilisation:.1%} of the peak, {found.with_recomputation:.1%} with what is "
                     "computed again")  # fmt: skip
    if found.rate is not None:
        each = found.rate / found.devices
        lines.append(f"rate: {found.rate:,.4g} {found.unit} per second, {each:,.4g} per device")
    if found.torus:
        part = f"the first {found.devices}, row by row, of " if found.devices < math.prod(found.torus) else ""
        lines.append(f"links: {part}a torus of {'x'.join(map(str, found.torus))} devices")
    if found.layout is not None:
        by_rows = found.layout.by_rows
        other = "" if by_rows is None else f", {timed(by_rows)} row by row"
        lines += [f"best layout: {timed(found.layout.seconds)} of collectives{other}, devices {found.layout.order}",
                  *(f"  {line}" for line in found.layout.lines)]  # fmt: skip
    if found.kernels:
        lines.append(f"attention: {found.kernels} products as part of fused kernels")
    if found.unknown:
        calls = ", ".join(f"{count:,} of {target}" for target, count in found.unknown)
        lines.append(f"of unknown time, counted by the bytes of their arrays: {calls}")
    if found.next:
        lines.append(f"bounds: {found.parts[0].name}, {rows[0][2]} of the step; without that {found.next}")
    by = "the ops and loops" if bound.by == COMPUTE else bound.by
    lines.append(f"no order takes less than {timed(bound.seconds)}, by {by}")
    if found.error is not None:
        lines.append(f"confidence: forecasts of this machine were up to {found.error:.0%} off published steps")
    else:
        lines.append("confidence: no step of this machine was compared")
    if found.unmeasured:
        lines.append(f"too fast: {', '.join(found.unmeasured)} of native code were not measured on this machine and "
                     "seem to take no time; hloom machine calibrate measures them")  # fmt: skip
    lines += [f"peak memory: {found.peak:,} bytes at {schedule.at}, the largest buffers of it", ""]
    lines.append(buffers_table(schedule.memory.buffers, _BUFFERS, others=False))
    return "\n".join(lines)


def forecast_record(name: str, found: StepForecast) -> dict[str, object]:
    """Returns the forecast of a program as JSON."""
    schedule, bound = found.schedule, found.bound
    named = ("devices", "seconds", "utilisation", "with_recomputation", "next", "rate", "unit", "kernels", "torus",
             "error", "unmeasured", "peak", "unknown")  # fmt: skip
    return {
        "program": name, "machine": schedule.machine, **{key: getattr(found, key) for key in named},
        "layout": _layout(found.layout) if found.layout is not None else None,
        "parts": [asdict(part) for part in found.parts], "exposed": schedule.exposed, "at": schedule.at,
        "buffers": [asdict(buffer) for buffer in schedule.memory.buffers[:10]],
        "bound": {"seconds": bound.seconds, "by": bound.by, **path_record(bound)},
    }  # fmt: skip


def _layout(found: MeshLayout) -> dict[str, object]:
    order = {"dims": list(found.order.dims), "perm": list(found.order.perm)}
    return {"axes": list(found.lines), "seconds": found.seconds, "by_rows": found.by_rows, "order": order}
