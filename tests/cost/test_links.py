"""Links: which one a collective needs, per level of strides and per mesh axis, and their text."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.links import DEFAULT, Link, Links, parse_links
from hloom.ir.sharding.digit import Digit
from hloom.ir.sharding.mesh import Mesh


def test_a_collective_runs_at_the_pace_of_its_slowest_link() -> None:
    links = parse_links("1us/100GB;8:5us/25GB")
    near, far = Link(1e-6, 100e9), Link(5e-6, 25e9)
    assert links == Links(((1, near), (8, far)))
    assert links.across((Digit(8, 1),)) == near
    assert links.across((Digit(2, 8),)) == far
    assert links.across((Digit(4, 4),)) == far
    assert links.across((Digit(2, 1), Digit(2, 16))) == far
    assert (links.slowest, links.fastest, links.borders) == (far, near, (8,))


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
