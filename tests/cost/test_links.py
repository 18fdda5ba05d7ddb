"""Links: which one a collective needs, per level of strides and per mesh axis, and their text."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.links import DEFAULT, Link, Links, parse_links
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.mesh import Mesh
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.pipelines import parse_pipeline


def test_a_collective_runs_at_the_pace_of_its_slowest_link() -> None:
    links = parse_links("1us/100GB;8:5us/25GB")
    near, far = Link(1e-6, 100e9), Link(5e-6, 25e9)
    assert links == Links(((1, near), (8, far)))
    assert links.across((Digit(8, 1),)) == near
    assert links.across((Digit(2, 8),)) == far
    assert links.across((Digit(4, 4),)) == far
    assert links.across((Digit(2, 1), Digit(2, 16))) == far
    assert (links.slowest, links.nearest, links.fastest) == (far, near, near)


def test_links_of_mesh_axes() -> None:
    mesh = Mesh((("x", 4), ("y", 2), ("z", 8)))
    links = parse_links("1us/100GB;y:9us/1GB", mesh)
    assert links.across((Digit(8, 1),)) == links.across((Digit(4, 16),)) == Link(1e-6, 100e9)
    assert links.across((Digit(2, 8),)) == Link(9e-6, 1e9)
    assert parse_links("") is DEFAULT


@pytest.mark.parametrize("text", ["fast", "1us", "1us/0GB", "1us/1GB;0:1us/1GB", "1us/1GB;y:1us/1GB", "1us/1GB;8:1"])
def test_mistakes(text: str) -> None:
    with pytest.raises(hloom.CompileError) as error:
        parse_links(text)
    assert "such as 1us/100GB;8:5us/25GB" in (error.value.diagnostics[0].help or "")


def test_the_partitioner_takes_links() -> None:
    """A row of four numbers: one collective with real latencies, fewer bytes in two without."""
    text = ("HloModule m, num_partitions=8\nENTRY e {\n  x = f32[64] parameter(0), sharding={devices=[8]<=[8]}\n"
            "  ROOT y = f32[64] copy(x), sharding={devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}\n}\n")
    counts: list[int] = []
    for option in ("", "{links=1us/100GB}"):
        module = hloom.parse(text)
        run_pipeline(parse_pipeline(f"propagate,spmd-partition{option}"), module, PassContext())
        counts.append(len(hloom.collectives(module)))
    assert counts[0] > counts[1] == 1
