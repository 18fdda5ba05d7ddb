"""Plans with dimensions that the devices do not divide evenly."""

from __future__ import annotations

from dataclasses import replace

import hloom
import numpy as np
import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.sharding.mesh import Mesh
from hloom.ir.sharding.sharding import Sharding
from hloom.ir.tools.spmd import parts
from hloom.passes.planning.by_hand import BY_HAND, UNEVENLY, by_hand
from hloom.passes.planning.choice_costs import Assumed
from hloom.passes.planning.legal import paddings
from hloom.passes.planning.times import ClusterTiles
from hloom.passes.resharding.table import WHOLE
from hloom.runtime.inputs.inputs import inputs_for_module

from .test_bound import SLOW_LINKS, costs_of, program
from .test_plan import SLOW, STEP

TWELVE = STEP.replace("32", "12").replace("16", "20").replace("64", "60").replace("f12", "f32")  # nothing by 8


@pytest.fixture(autouse=True)
def _needs_the_solver() -> None:
    pytest.importorskip("highspy")


def _is_even(value: Instruction) -> bool:
    every = zip(parts(value.sharding), value.shape.leaves(), strict=True)
    return all(one.tiling(s.rank).is_even(s.dims) for one, s in every)


def test_the_largest_tile_counts() -> None:
    found = [paddings((12, 16), (8, 2), ((0, 1), (1, 1))), paddings((9, 9), (2, 2), ((0, 1),))]
    assert [one.tolist() for one in found if one is not None] == [[16 / 12, 1.0], [(10 / 9) ** 2]]
    assert paddings((16, 16), (8, 2), ((0, 1), (1, 1))) is None
    tiles = ClusterTiles(np.array([[1, 1], [2, 1], [4, 3]]), np.array([9, 6]))
    assert tiles.share(frozenset({0})).tolist() == [1.0, 5 / 9, 3 / 9]
    assert tiles.share(frozenset({0, 1})).tolist() == pytest.approx([1.0, 5 / 9, 3 / 9 * 2 / 6])


def test_values_of_one_size_move_as_their_own_tiles_do() -> None:
    costs = costs_of(program(0), SLOW_LINKS, Assumed(), data=8)
    reads, found = costs.model.of.reads[0], list[float]()
    for dims, padding in (((12, 16), 16 / 12), ((16, 12), 1.0), ((20, 16), 24 / 20)):
        move = costs.moves(replace(reads, dims=dims), [(0,)], [(WHOLE,)], False)
        even = replace(reads, dims=(16, 16), size=reads.size * padding)
        assert move.tolist() == [[pytest.approx(float(costs.moves(even, [(0,)], [(WHOLE,)], False)[0, 0]))]]
        found += move[0].tolist()
    assert found[1] < found[2] < found[0]


def test_uneven_tiles_are_faster_than_whole_values() -> None:
    module = hloom.parse(TWELVE)
    found, even = (hloom.plan(module, SLOW, mesh="8", seconds=0.5, even=even) for even in (False, True))
    assert found.seconds < even.seconds
    ends = [*even.module.entry.parameters, even.module.entry.root]
    assert all(map(_is_even, ends))
    inputs = inputs_for_module(module)
    wanted = hloom.evaluate(module, inputs)
    for plan in (found, even):
        assert plan.gap is not None
        assert 0 < plan.bound <= plan.on.least * (1 + 1e-9)
        names = [candidate.name for candidate in plan.candidates]
        assert len(set(names)) == len(names)
        for candidate in plan.candidates[:3]:
            local = hloom.partition(candidate.module, machine=SLOW)
            for got, want in zip(hloom.simulate(local, inputs), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_by_hand_the_batch_is_divided_unevenly_too() -> None:
    module, mesh = hloom.parse(TWELVE), Mesh.of(data=8)
    found = dict(by_hand(module, {0: 0}, mesh))
    names = {name.removesuffix(BY_HAND).removesuffix(UNEVENLY) for name in found}
    assert names == {"all data parallel", "all sharded"}
    x = {name: program.entry.parameters[0].sharding for name, program in found.items()}
    assert str(x["all data parallel" + UNEVENLY + BY_HAND]) == str(x["all sharded" + UNEVENLY + BY_HAND])
    assert not _is_even(found["all data parallel" + UNEVENLY + BY_HAND].entry.parameters[0])
    assert len(dict(by_hand(module, {0: 0}, mesh, even=True))) == 2
    assert len(dict(by_hand(hloom.parse(STEP), {0: 0}, mesh))) == 2  # all of it is even


def test_by_hand_some_devices_may_have_no_part_of_the_batch() -> None:
    mesh = Mesh.of(data=4, model=4)
    found = dict(by_hand(hloom.parse(TWELVE), {0: 0}, mesh))
    x = found["all data parallel" + UNEVENLY + BY_HAND].entry.parameters[0]
    assert isinstance(x.sharding, Sharding)
    assert [len(dim.axes) for dim in x.sharding.dims] == [2, 0]


def test_a_sharding_that_is_kept_may_be_uneven() -> None:
    found = hloom.plan(hloom.parse(TWELVE), SLOW, mesh="8", seconds=0.1, keep=["x=data,"])
    assert not _is_even(found.module.entry.parameters[0])
