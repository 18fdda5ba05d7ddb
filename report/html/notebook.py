"""Shows objects in notebooks: short static HTML without scripts, which notebooks show of untrusted files too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...cost.collectives import collectives
from ...cost.memory import LiveMemory
from ...cost.presets import machine_name
from ...cost.sizes import sized, timed
from ...ir.diagnostics import Diagnostic
from ...ir.graph.computation import Computation
from ...ir.graph.module import Module
from ...ir.sharding.sharding import Sharding
from ...ir.shown import shortened
from ...ir.tools.printer import computation_text
from ...ir.tools.spmd import is_per_device
from ...ir.types.element_type import F32
from ...ir.types.shape import array
from ...passes.planning.plan import Plan
from ..collectives import summary
from ..forecast import StepForecast, forecast_text
from ..plan import plan_text
from ..schedule import Schedule, schedule_summary
from .markup import Markup, element, joined, table
from .pictures import tiles_picture, timeline_picture

_LINES = 40  # of a program
_LONGEST = 200  # characters of a line
_ROWS = 20  # of a table


def notebook_html(value: Any) -> str:
    """Returns the HTML of an object that notebooks show. Raises TypeError for an object of another class."""
    for kind, show in _SHOWN:
        if isinstance(value, kind):
            return str(element("div", show(value)))
    raise TypeError(f"{type(value).__name__} has no HTML")


def _module(module: Module) -> Markup:
    found = module.callees_first()
    devices = f", {module.devices} devices" if module.devices > 1 else ""
    title = element("b", f"{module.name}: {module.stage.value}, {sum(map(len, found))} instructions{devices}")
    parts = [title]
    if is_per_device(module):
        sent = sorted(collectives(module), key=lambda c: -c.sent_bytes)
        rows = [(c.kind, c.name, f"{c.sent_bytes:,}", c.groups, c.cause, c.source) for c in sent[:_ROWS]]
        parts.append(element("div", summary(sent)))
        parts += [table(("kind", "name", "bytes sent", "groups", "cause", "source"), rows, (2,))] if rows else []
    parts.append(element("details", element("summary", "entry"), _text(computation_text(module.entry))))
    return joined(parts)


def _computation(computation: Computation) -> Markup:
    return joined((element("b", f"{computation.name}: {len(computation)} instructions"),
                   _text(computation_text(computation))))  # fmt: skip


def _sharding(sharding: Sharding) -> Markup:
    """Draws the tiles of the least array that the sharding divides evenly."""
    title = element("code", sharding)
    if sharding.mesh is None or not sharding.dims:
        return title
    tiling = sharding.tiling(len(sharding.dims))
    least = array(F32, tuple(tiling.tiles(dim) for dim in range(len(sharding.dims))))
    return joined((title, tiles_picture(least, sharding) or ""))


def _forecast(found: StepForecast) -> Markup:
    return _text(forecast_text(found))


def _schedule(found: Schedule) -> Markup:
    rows = [
        (c.kind, c.name, sized(c.bytes), c.groups, str(c.runs), timed(c.start), timed(c.waited), c.state, c.cause)
        for c in sorted(found.collectives, key=lambda c: -c.waited * c.runs)[:_ROWS]
    ]
    head = ("kind", "name", "bytes", "groups", "runs", "start", "delays", "state", "cause")
    return joined((_text(schedule_summary(found)), timeline_picture(found),
                   table(head, rows, (2, 4, 5, 6)) if rows else ""))  # fmt: skip


def _plan(found: Plan) -> Markup:
    return _text(plan_text(found, machine_name(found.context.machine)))


def _memory(found: LiveMemory) -> Markup:
    rows = [(sized(b.bytes), b.name, b.kind, b.shape, b.source) for b in found.buffers[:_ROWS]]
    title = element("b", f"{sized(found.peak)} at {found.at}")
    return joined((title, table(("bytes", "buffer", "kind", "shape", "source"), rows, (0,))))


def _diagnostic(found: Diagnostic) -> Markup:
    return _text(found.render())


def _text(text: str) -> Markup:
    lines = [shortened(line, _LONGEST) for line in text.splitlines()]
    left_out: Iterable[str] = [f"({len(lines) - _LINES} more lines)"] if len(lines) > _LINES else []
    return element("pre", "\n".join([*lines[:_LINES], *left_out]))


_SHOWN: tuple[tuple[type[Any], Callable[[Any], Markup]], ...] = (
    (Module, _module), (Computation, _computation), (Sharding, _sharding), (StepForecast, _forecast),
    (Schedule, _schedule), (LiveMemory, _memory), (Diagnostic, _diagnostic), (Plan, _plan),
)  # fmt: skip
