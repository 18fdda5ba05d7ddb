"""Links that collectives share: those of one axis of a torus, or of one level, take the sum; others the larger."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product
from random import Random

import hloom
import pytest
from hloom.cost.layout import laid
from hloom.cost.links import Link, Links
from hloom.cost.machine import Cluster
from hloom.cost.permutes import crossing
from hloom.cost.seconds import Clock
from hloom.cost.timeline import Timeline, timeline
from hloom.cost.torus import in_shape
from hloom.ir.graph.module import Module
from hloom.passes.schedule.bound import program_bound

RATE = 1e9  # bytes per second over both links of an axis
SIZE = 64 * 1024 * 1024  # bytes of a gathered array


def torus(*shape: int, wrap: int = 4) -> Cluster:
    """A torus without steps, whose axes work at the same time; memory takes no time."""
    link = Link(0.0, RATE, 0.0, len(shape), shape, wrap)
    return Cluster(Links(((1, link),)), memory_bytes=1e30, torus_engines=True)


def program(body: str, **sizes: int) -> Module:
    """A program on a mesh of axes x, y .., of which every device reads the parameter p."""
    mesh = "mesh[" + ",".join(f"'{name}'={size}" for name, size in sizes.items()) + "]"
    devices = 1
    for size in sizes.values():
        devices *= size
    names = [line.split()[0] for line in body.splitlines()]
    shapes = ", ".join(line.split()[2] for line in body.splitlines())
    return hloom.parse(f"""HloModule m, num_partitions={devices}
    ENTRY e {{
      p = f32[{SIZE // 4 // 16}] parameter(0), sharding={{{mesh}, [{{'x'}}]}}
      {body.replace("MESH", mesh)}
      ROOT r = ({shapes}) tuple({", ".join(names)})
    }}""")


def gather(axis: str, devices: int) -> str:
    """An all-gather over an axis of the mesh; a device receives all but its own 4 MB."""
    return (f"g{axis} = f32[{SIZE // 4 // 16 * devices}] all-gather(p), replica_groups=MESH {{'{axis}'}}, "
            f"use_global_device_ids=true, channel_id={ord(axis)}, dimensions={{0}}")  # fmt: skip


def received(devices: int) -> float:
    """The seconds of the bytes that a device receives in such an all-gather, over both links of an axis."""
    return SIZE / 16 * (devices - 1) / RATE


def both(machine: Cluster, **sizes: int) -> Timeline:
    """Two all-gathers that nothing orders, over axes x and y."""
    return timeline(program("\n".join(gather(name, size) for name, size in sizes.items()), **sizes), machine)


def test_axes_of_a_mesh_on_different_axes_of_a_torus_take_the_larger() -> None:
    found = both(torus(4, 16), x=4, y=16)
    assert found.seconds == pytest.approx(max(received(4), received(16)))
    assert found.busy == pytest.approx({"axis 0": received(4), "axis 1": received(16)})


def test_devices_need_not_be_numbered_by_rows() -> None:
    """By rows x would lie on both axes, and its collectives would keep those of y from running."""
    found = both(torus(4, 16), x=16, y=4)
    assert found.seconds == pytest.approx(received(16))
    assert found.busy == pytest.approx({"axis 0": received(4), "axis 1": received(16)})


def test_axes_of_a_mesh_on_one_axis_of_a_torus_take_the_sum() -> None:
    """Neighbours are a line at half the rate; four devices apart are a ring whose links four groups share."""
    found = both(torus(1, 16), x=4, y=4)
    assert found.seconds == pytest.approx(received(4) / 0.5 + received(4) / 0.25)
    assert found.busy == pytest.approx({"axis 1": found.seconds})


def test_part_of_an_axis_that_another_one_fills() -> None:
    """x lies on axis 0 and on half of axis 1, where y fills the other half."""
    found = both(torus(4, 8), x=16, y=2)
    assert found.busy["axis 1"] == pytest.approx(found.seconds)
    assert found.busy["axis 0"] < found.seconds


@pytest.mark.parametrize(("step", "seconds"), [(16, received(16)), (1, received(16) + 2 * received(2))])
def test_a_permute_along_an_axis_leaves_the_others_free(step: int, seconds: float) -> None:
    """Along x it runs beside the longer gather of y, along y after it, over one of the two links of each device."""
    block = 64 if step == 16 else 16
    pairs = ",".join(f"{{{n},{n // block * block + (n + step) % block}}}" for n in range(64))
    sent = f"s = f32[{SIZE // 4 // 16}] collective-permute(p), channel_id=9, source_target_pairs={{{pairs}}}"
    module = program(f"{gather('x', 4)}\n{gather('y', 16)}\n{sent}", x=4, y=16)
    assert timeline(module, torus(4, 16)).seconds == pytest.approx(seconds)


def test_all_devices_use_all_axes() -> None:
    machine = laid(program(gather("x", 4), x=4, y=16), torus(4, 16))
    assert machine.engines_of("all-gather", None) == ("axis 0", "axis 1")


GPUS = replace(
    Cluster(Links(((1, Link(0.0, 4e9)), (8, Link(0.0, 1e9)))), memory_bytes=1e30), engines=((8, "network"),)
)


@pytest.mark.parametrize(("sizes", "is_shared"), [
    ({"x": 16, "y": 8}, False),  # across nodes and inside of them
    ({"x": 64, "y": 2}, True),  # x fills the rest of a node
    ({"x": 8, "y": 16}, True),  # y fills a node and crosses to another
    ({"x": 4, "y": 4, "z": 8}, True),  # x and y cross, z is not used
])  # fmt: skip
@pytest.mark.parametrize("machine", [GPUS, hloom.parse_machine("h100:16x8")], ids=["plain", "h100"])
def test_nodes_share_their_network_and_what_is_inside(machine: Cluster, sizes: dict[str, int], is_shared: bool) -> None:
    used = {name: size for name, size in sizes.items() if name != "z"}
    module = program("\n".join(gather(name, size) for name, size in used.items()), **sizes)
    clock = Clock.of(module, machine)
    own = [clock.collective(i) for i in module.entry if i.op.is_collective]
    assert timeline(module, machine).seconds == pytest.approx(sum(own) if is_shared else max(own), rel=1e-3)


def test_the_bound_adds_up_each_link() -> None:
    cases = (torus(4, 16), {"x": 4, "y": 16}), (torus(1, 16), {"x": 4, "y": 4}), (GPUS, {"x": 64, "y": 2})
    for machine, sizes in cases:
        module = program("\n".join(gather(name, size) for name, size in sizes.items()), **sizes)
        bound = program_bound(module, Clock.of(module, machine))
        assert bound.seconds == pytest.approx(timeline(module, machine).seconds)


def hops(a: int, b: int, size: int, is_ring: bool) -> list[tuple[tuple[int, int], float]]:
    """Returns the links from a place to another along an axis, with the share of what goes there that each carries."""
    forth = (b - a) % size
    if not is_ring:
        ways = [(1 if b > a else -1, abs(b - a), 1.0)]
    else:
        ways = [(1, forth, 1.0 if forth < size - forth else 0.5 * (2 * forth == size)),
                (-1, size - forth, 1.0 if forth > size - forth else 0.5 * (2 * forth == size))]  # fmt: skip
    return [(((a + way * n) % size, way), share) for way, steps, share in ways for n in range(steps if a != b else 0)]


@pytest.mark.parametrize(("shape", "wrap"), [
    ((1, 8), 4), ((1, 8), 16), ((1, 6), 6), ((4, 8), 4), ((4, 8), 8), ((4, 8), 16), ((8, 8), 8), ((6, 4), 6),
    ((2, 4, 4), 4),
])  # fmt: skip
def test_an_all_to_all_takes_what_its_fullest_link_takes(shape: tuple[int, ...], wrap: int) -> None:
    """Each device sends a byte to each, along one axis after the other, by the shorter way of a ring."""
    load: dict[tuple[object, ...], float] = defaultdict(float)
    places = list(product(*map(range, shape)))
    for source, target in product(places, places):
        at = list(source)
        for axis, size in enumerate(shape):
            is_ring = size > 2 and size % wrap == 0
            for link, share in hops(at[axis], target[axis], size, is_ring):
                load[(axis, *at[:axis], *at[axis + 1 :], *link)] += share
            at[axis] = target[axis]
    count = len(places)
    share = in_shape("all-to-all", Link(0.0, RATE, 0.0, len(shape), shape, wrap), count)[1]
    # The bandwidth is that of both links of an axis, one way: half of it for a link.
    assert share * (count - 1) == pytest.approx(max(load.values()) / 0.5)


def shift(step: int, size: int) -> tuple[tuple[int, int], ...]:
    return tuple((n, (n + step) % size) for n in range(size))


@pytest.mark.parametrize(("step", "links", "steps"), [
    (1, 1, 1), (-1, 1, 1), (3, 3, 3), (-3, 3, 3), (4, 2, 4), (5, 3, 3), (7, 1, 1),
])  # fmt: skip
def test_a_permute_along_a_ring_takes_the_links_of_its_steps(step: int, links: int, steps: int) -> None:
    """By hand: as many messages cross each link as they go steps; half of those to the other side go each way."""
    way = crossing(Link(0.0, RATE, 1.0, 1, (8,), 4), shift(step, 8))
    assert way is not None
    assert (way.share, way.steps) == (2 * links, steps)
    assert len(way.ways) == (2 if step == 4 else 1)


def test_a_shift_along_a_line_goes_back_over_all_of_it() -> None:
    assert crossing(Link(0.0, RATE, 1.0, 1, (8,), 16), shift(1, 8)) == (7, ((0, True), (0, False)), 2.0)


def test_cores_of_one_node_use_no_links() -> None:
    """A shift goes through both cores of each node; a shift by two sends two messages over each link."""
    link = Link(0.0, RATE, 0.0, 1, (16,), 8, cores=2)
    assert crossing(link, tuple((n, n ^ 1) for n in range(16))) == (1, (), 1.0)
    assert [way.share for step in (1, 2) if (way := crossing(link, shift(step, 16)))] == [2.0, 4.0]


def routed(targets: list[tuple[int, ...]], shape: tuple[int, ...], wrap: int) -> float:
    """The messages over the fullest link, link by link: from all places along one axis after the other."""
    load: dict[tuple[object, ...], float] = defaultdict(float)
    for source, target in zip(product(*map(range, shape)), targets, strict=True):
        at = list(source)
        for axis, size in enumerate(shape):
            for link, share in hops(at[axis], target[axis], size, size > 2 and size % wrap == 0):
                load[(axis, *at[:axis], *at[axis + 1 :], *link)] += share
            at[axis] = target[axis]
    return max(load.values())


@pytest.mark.parametrize(("shape", "wrap"), [((8,), 8), ((4, 8), 4), ((4, 8), 16), ((2, 4, 4), 4), ((3, 5), 1)])
def test_no_route_fills_links_less_than_a_permute_takes(shape: tuple[int, ...], wrap: int) -> None:
    """Along an axis that is what it takes; else a route may fill links more, of all permutes here up to three times."""
    places, random = list(product(*map(range, shape))), Random(7)
    link = Link(0.0, RATE, 0.0, len(shape), shape, wrap)
    for n in range(20):
        axis, is_along = n % len(shape), n < 10
        targets = random.sample(places, len(places))
        if is_along:
            places_of_axis = random.sample(range(shape[axis]), shape[axis])
            targets = [(*p[:axis], places_of_axis[p[axis]], *p[axis + 1 :]) for p in places]
        way = crossing(link, tuple(enumerate(map(places.index, targets))))
        assert way is not None
        if targets == places:
            continue
        fullest = 2 * routed(targets, shape, wrap)
        assert way.share == pytest.approx(max(fullest, 2.0)) if is_along else fullest / 3 <= way.share <= fullest


def test_a_transposition_spreads_over_the_links_of_a_cut() -> None:
    """By hand: in a mesh of 8 by 8 nodes 16 messages cross the middle one way, over 8 links; by rows 7 cross one."""
    places = list(product(range(8), range(8)))
    targets = [(b, a) for a, b in places]
    way = crossing(Link(0.0, RATE, 0.0, 2, (8, 8), 16), tuple(enumerate(map(places.index, targets))))
    assert way is not None
    assert (way.share, way.steps, len(way.ways)) == (2 * 16 / 8, 14, 4)
    assert routed(targets, (8, 8), 16) == 7


@pytest.mark.parametrize(("second", "times"), [(-16, 1), (16, 2), (32, 2)])
def test_permutes_in_both_directions_run_at_the_same_time(second: int, times: int) -> None:
    """Along the ring of x: one step back uses the other link of each device, one forth the same, two both in turns."""
    lines = list[str]()
    for n, step in enumerate((16, second)):
        pairs = ",".join(f"{{{a},{b}}}" for a, b in shift(step, 128))
        lines.append(f"sent{n} = f32[{SIZE // 4 // 16}] collective-permute(p), channel_id={n + 1}, "
                     f"source_target_pairs={{{pairs}}}")  # fmt: skip
    found = timeline(program("\n".join(lines), x=8, y=16), torus(8, 16))
    sent = 2 * SIZE / 16 / RATE
    assert found.seconds == pytest.approx(sent * (times + (second == 32)))
    assert set(found.busy) == ({"axis 0 forth"} if times == 2 else {"axis 0 forth", "axis 0 back"})
