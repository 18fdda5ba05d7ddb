"""Collectives of nodes whose devices have a network card each."""

from __future__ import annotations

from pathlib import Path

import hloom
import pytest
from hloom.cost.formulas import Kind, received
from hloom.cost.links import Link
from hloom.cost.machine import Cluster
from hloom.cost.presets import as_machine
from hloom.cost.rails import over_rails
from hloom.cost.transfer import SECOND
from hloom.ir.sharding.digit import Digit

FAST, CARD = Link(1e-5, 240e9), Link(1e-4, 25e9, rails=True)
SIZE = 1e9


def seconds(kind: Kind, inside: int, nodes: int) -> float:
    """Without the latency."""
    cost = over_rails(kind, [(FAST, inside), (CARD, nodes)])
    return (cost.time(received(kind, SIZE, inside * nodes)) - cost.latency) / SECOND


@pytest.mark.parametrize(("kind", "inside", "nodes", "expected"), [
    # Half of the array enters each of two nodes, over eight cards.
    ("all-gather", 8, 2, SIZE / 2 / 8 / 25e9), ("reduce-scatter", 8, 2, SIZE / 2 / 8 / 25e9),
    ("all-reduce", 8, 2, 2 * SIZE / 2 / 8 / 25e9), ("collective-broadcast", 8, 2, SIZE / 2 / 8 / 25e9),
    ("all-gather", 2, 4, SIZE * 3 / 4 / 2 / 25e9),
    # One device of each node: its card is all there is.
    ("all-gather", 1, 4, SIZE * 3 / 4 / 25e9), ("all-to-all", 1, 4, SIZE * 3 / 4 / 25e9),
    # Each device receives half of its array from the other node.
    ("all-to-all", 8, 2, SIZE / 2 / 25e9),
    ("all-gather", 8, 1, SIZE * 7 / 8 / 240e9), ("all-to-all", 8, 1, SIZE * 7 / 8 / 240e9),
    ("collective-permute", 8, 2, SIZE / 25e9),
])  # fmt: skip
def test_bytes_over_cards_and_links(kind: Kind, inside: int, nodes: int, expected: float) -> None:
    fastest = received(kind, SIZE, inside * nodes) / (240e9 if inside > 1 else 25e9)  # all of it passes one link
    assert seconds(kind, inside, nodes) == pytest.approx(max(expected, fastest))


def test_latency_is_that_of_the_levels_used() -> None:
    assert over_rails("all-gather", [(FAST, 8), (CARD, 1)]).latency == FAST.latency * SECOND
    assert over_rails("all-gather", [(FAST, 8), (CARD, 2)]).latency == CARD.latency * SECOND


def test_sixteen_cards_of_two_nodes() -> None:
    """256 MiB on two nodes of A100 arrive at nearly the rate of NVLink, not at that of one card."""
    machine = as_machine("a100")
    whole = (Digit(16, 1),)
    gather = machine.collective("all-gather", whole).time(received("all-gather", 2**28, 16)) / SECOND
    assert gather == pytest.approx(150e-6 + 2**28 * 15 / 16 / 230e9)
    columns = machine.collective("all-gather", (Digit(2, 8),)).time(2**27) / SECOND
    assert columns == pytest.approx(150e-6 + 2**27 / 25e9)


def test_no_collective_is_faster_than_the_bound_of_all() -> None:
    machine = as_machine("a100")
    for digits in ((Digit(4, 1),), (Digit(16, 1),), (Digit(2, 8),), (Digit(2, 4), Digit(4, 8))):
        for kind in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
            assert machine.fastest.time(2**20) <= machine.collective(kind, digits).time(2**20) * (1 + 1e-12)


def test_rails_in_a_machine_file(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    text = 'name = "m"\n[[links]]\nfrom = 1\nlatency = "1 us"\nbandwidth = "100 GB/s"\nsource = "here"\n'
    text += '[[links]]\nfrom = 8\nlatency = "1 us"\nbandwidth = "10 GB/s"\nrails = %s\nsource = "here"\n'
    path.write_text(text % "true")
    machine = hloom.parse_machine(str(path))
    assert isinstance(machine, Cluster)
    assert [link.rails for _, link in machine.links.levels] == [False, True]
    path.write_text(text % "3")
    with pytest.raises(hloom.CompileError, match="'3' is neither true nor false"):
        hloom.parse_machine(str(path))
