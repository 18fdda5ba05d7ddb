"""Tells how a plan's time would change with other hardware: memory, links, and devices along each axis of the mesh.

The choices that planning found, and the divisions of all their axes combined, are ranked anew by the costs of the other
machine or mesh and improved class by class. Both sides of a comparison are times of the model, found alike with quick
costs of resharding, so that an answer takes a second where a plan takes a minute. No program is scheduled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...cost.machine import Machine
from ...ir.sharding.mesh import AxisRef, Mesh
from ..base import PassContext
from ..op_sharding.divisions import Divisions
from ..resharding.table import WHOLE
from .choice_costs import ChoiceCosts, PlanValue
from .descent import axes_of, quick
from .model import Model
from .moves import QuickTable
from .on_mesh import MeshPlan
from .search import ASSUMED

_TWICE = 0.5  # of the time of collectives
_KNOWN = 12  # choices whose axes are combined
_STARTS = 3  # choices that are improved


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change of the hardware: the time of a step relative to the plan's, by the model, and the bytes on a device.
    `fits` says whether they are within the limit.
    """

    change: str
    ratio: float
    memory: float
    fits: bool


def what_if(on: MeshPlan, context: PassContext, machine: Machine, seconds: float) -> list[WhatIf]:
    """Returns the changes that are judged in about this many seconds. The machine is for any number of devices."""
    deadline, found = time.monotonic() + seconds, list[WhatIf]()
    own = _best(on, context, on.mesh, on.limit)
    for change, (one, mesh, limit) in _changes(on, context, machine):
        if time.monotonic() > deadline:
            break
        best = _best(on, one, mesh, limit)
        fits = best.memory <= limit
        found.append(WhatIf(change, best.seconds / own.seconds if own.seconds else 1.0, best.memory, fits))
    return found


def _changes(
    on: MeshPlan, context: PassContext, machine: Machine
) -> Iterator[tuple[str, tuple[PassContext, Mesh, float]]]:
    """Yields texts with the machine, the mesh and the memory of a device."""
    if on.limit < float("inf"):
        yield "twice the memory", (context, on.mesh, 2 * on.limit)
        yield "half the memory", (context, on.mesh, on.limit / 2)
    faster = machine.slower(_TWICE)
    if faster != machine:
        yield "links twice as fast", (_with(context, faster, on.mesh.size), on.mesh, on.limit)
    if machine.torus and math.prod(machine.torus) < 2 * on.mesh.size:
        return  # it has no more devices
    sizes: Mapping[str, int] = dict(on.mesh.axes)
    for name, size in sizes.items():
        mesh = Mesh.of(**{**sizes, name: 2 * size})
        yield f"axis {name} of {2 * size}", (_with(context, machine, mesh.size), mesh, on.limit)
    if not on.model.of.fixed:  # which say nothing of another axis
        name = next(f"more{n or ''}" for n in range(len(sizes) + 1) if f"more{n or ''}" not in sizes)
        mesh = Mesh.of(**sizes, **{name: 2})
        yield "one more axis of 2", (_with(context, machine, mesh.size), mesh, on.limit)


def _with(context: PassContext, machine: Machine, devices: int) -> PassContext:
    return replace(context, machine=machine.of_devices(devices))


def _best(on: MeshPlan, context: PassContext, mesh: Mesh, limit: float) -> PlanValue:
    """Returns the value of the best choice for a machine and a mesh."""
    axes = [mesh.digits(AxisRef(name)) for name, _ in mesh.axes]
    costs = ChoiceCosts(Model(on.model.of, Divisions(context.decider(mesh.size), axes), QuickTable), ASSUMED[1])
    whole = (WHOLE,) * len(costs.model.classes)
    known = axes_of(on.model, [choice for _, choice, _ in on.proposals[:_KNOWN]])
    return costs.value(quick(costs, list(dict.fromkeys([*known, whole])), limit, _STARTS))
