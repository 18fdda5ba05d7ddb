"""Plans with the batch in parts: a candidate where the parts hide what the whole batch waits for."""

from __future__ import annotations

import time

import hloom
import pytest
from hloom.cost.presets import parse_machine
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext
from hloom.passes.planning.batch_parts import in_parts
from hloom.passes.planning.judge import judge
from hloom.passes.planning.on_mesh import PlanCandidate
from hloom.passes.planning.time_left import TimeLeft
from support.layered_programs import Model


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "helps"), [("tp", True), ("dp", False)])
def test_parts_of_what_waits(kind: str, helps: bool) -> None:
    sizes = {"data": 1, "model": 8} if helps else {"data": 8, "model": 1}
    module = hloom.parse(Model(layers=2, batch=8192, width=8192, hidden=28672, kind=kind, loop=False, **sizes).text())
    context = PassContext(machine=parse_machine("tpu-v4"))
    whole = PlanCandidate("as annotated", Mesh.of(all=8), module, judge(module, context, 8))
    found = list(in_parts([whole], context, 0, TimeLeft(time.monotonic() + 60)))
    assert bool(found) == helps
    for one in found:
        assert one.name == f"as annotated, batch in {one.parts} parts"
        assert one.judged.seconds < 0.999 * whole.judged.seconds
        assert one.judged.exposed < whole.judged.exposed
    assert list(in_parts([whole], context, 0, TimeLeft(time.monotonic() - 1))) == []


def test_nothing_is_tried_where_nothing_waits() -> None:
    module = hloom.parse(Model(layers=1, kind="dp", loop=False, data=1, model=1).text())
    context = PassContext(machine=parse_machine("tpu-v4"))
    alone = PlanCandidate("alone", Mesh.of(all=1), module, judge(module, context, 1))
    assert alone.judged.fits
    assert list(in_parts([alone], context, 0, TimeLeft(time.monotonic() + 60))) == []
