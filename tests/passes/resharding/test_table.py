"""The table of resharding costs against the plans that are made."""

from __future__ import annotations

import itertools

import pytest
from hloom.cost.presets import PRESETS
from hloom.cost.transfer import SECOND
from hloom.ir.sharding.mesh import AxisRef, Mesh
from hloom.passes.planning.moves import QuickTable
from hloom.passes.resharding.plan import plan_reshard
from hloom.passes.resharding.table import PARTIAL, WHOLE, ReshardTable, tiling_of

MESH = Mesh.of(a=4, b=2)
AXES = tuple(MESH.digits(AxisRef(name)) for name in ("a", "b"))


@pytest.mark.parametrize("machine", [pytest.param("tpu-v5p", marks=pytest.mark.slow), "h100"])
def test_costs_are_those_of_plans(machine: str) -> None:
    """Exact for the sizes that are searched (16^6 bytes), close between them (5 * 2^20)."""
    table = ReshardTable(AXES, PRESETS[machine])
    targets = list(itertools.product((WHOLE, 0, 1), repeat=2))
    sources = [*targets, (PARTIAL, 1), (WHOLE, PARTIAL), (PARTIAL, PARTIAL)]
    exact: list[float] = []
    for width, (source, target) in itertools.product((256.0, 80.0), itertools.product(sources, targets)):
        ends = tiling_of(source, 2, AXES), tiling_of(target, 2, AXES)
        planned = plan_reshard(*ends, (256, 256), 8, size=width, machine=table.machine).cost / SECOND
        found = table.seconds(source, target, width * 256 * 256)
        if width == 256:
            exact.append(found - planned)
        assert 0.75 * planned <= found <= 1.25 * planned, (source, target)
    assert sum(abs(e) > 1e-12 for e in exact) <= len(exact) // 10  # another shape allows another plan


def test_dimensions_share_searches_and_cutting_is_free() -> None:
    table = ReshardTable(AXES, PRESETS["h100"])
    first = table.seconds((0, WHOLE), (2, WHOLE), 16.0**5)
    known = len(table.known)
    assert table.seconds((3, WHOLE), (1, WHOLE), 16.0**5) == first > 0
    assert len(table.known) == known
    assert table.seconds((WHOLE, 1), (0, 1), 1e9) == 0.0
    assert table.seconds((PARTIAL, PARTIAL), (0, 1), 0.0) == 0.0


def test_pairs_have_the_costs_of_the_divisions_that_they_stand_for() -> None:
    table = ReshardTable(AXES, PRESETS["h100"])
    sources = [(WHOLE, WHOLE), (1, 0), (0, 1), (2, 2), (PARTIAL, 1), (3, WHOLE)]
    targets = [(WHOLE, 2), (2, 1), (1, 1), (0, WHOLE)]
    pairs, places = table.pairs(sources, targets)
    assert len(pairs) < len(sources) * len(targets)
    for line, source in zip(places, sources, strict=True):
        for place, target in zip(line, targets, strict=True):
            assert table.seconds(*pairs[int(place)], 1e6) == table.seconds(source, target, 1e6)


def test_a_sum_is_scattered_where_its_dimension_is_gathered_anyway() -> None:
    """One all-gather over both axes of a torus then takes the place of an all-reduce and one over a single axis."""
    table = ReshardTable(AXES, PRESETS["tpu-v5p"])
    direct = table.seconds((PARTIAL, 0), (WHOLE, WHOLE), 16.0**7)
    summed = table.seconds((PARTIAL, 0), (WHOLE, 0), 16.0**7)
    gathered = table.seconds((WHOLE, 0), (WHOLE, WHOLE), 16.0**7)
    assert direct < 0.8 * (summed + gathered)
    assert table.parts((PARTIAL, 0), (WHOLE, WHOLE), 16.0**7).steps == 2


def test_a_sum_on_three_axes_costs_as_by_whole_axes() -> None:
    mesh = Mesh.of(a=2, b=2, c=2)
    axes = tuple(mesh.digits(AxisRef(name)) for name in ("a", "b", "c"))
    exact, walk = (kind(axes, PRESETS["tpu-v5p"]) for kind in (ReshardTable, QuickTable))
    source = (0, PARTIAL, 1)
    for target in ((0, WHOLE, WHOLE), (WHOLE, WHOLE, 1), (0, 0, 1), (0, WHOLE, 1)):
        assert exact.seconds(source, target, 16.0**7) <= 1.01 * walk.seconds(source, target, 16.0**7), target


def test_a_ring_of_all_devices_keeps_its_latency_and_both_engines_for_large_arrays() -> None:
    """Small arrays go by levels; between the sizes that are searched the one ring of 512 devices pays off."""
    mesh, machine = Mesh.of(data=64, model=8), PRESETS["h100"].of_devices(512)
    axes = tuple(mesh.digits(AxisRef(name)) for name in ("data", "model"))
    table, size = ReshardTable(axes, machine), 1.75e9
    ends = tiling_of((0, 0), 1, axes), tiling_of((WHOLE, WHOLE), 1, axes)
    planned = plan_reshard(*ends, (512,), 512, size=size / 512, machine=machine).cost / SECOND
    found = table.parts((0, 0), (WHOLE, WHOLE), size)
    assert found.seconds == pytest.approx(planned)
    assert found.steps == 1
    assert 0.2 < found.latency / found.seconds < 0.5
    assert found.way is not None
    assert found.way.busy("network", size) == found.way.busy("communication", size) == pytest.approx(found.seconds)


@pytest.mark.parametrize("kind", [ReshardTable, QuickTable])
@pytest.mark.parametrize("size", [0.0, 12.0, 16.0**4, 7e7])
def test_many_pairs_have_the_times_of_each(kind: type[ReshardTable], size: float) -> None:
    """Whatever the numbers of their dimensions are."""
    every = [*itertools.product((WHOLE, 0, 2, 7), repeat=2), (PARTIAL, 1), (WHOLE, PARTIAL)]
    pairs = [(source, target) for source in every for target in every[:-2]]
    one, other = kind(AXES, PRESETS["tpu-v4"]), kind(AXES, PRESETS["tpu-v4"])
    found = zip(*(part.tolist() for part in one.many(pairs, size)))
    assert list(found) == [other.parts(*pair, size)[:3] for pair in pairs]
