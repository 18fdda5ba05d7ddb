"""Machine files: what they say, what they write, and the places of their errors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hloom.cost.fits import Fit
from hloom.cost.links import Link, Links
from hloom.cost.machine import DEFAULT, Cluster
from hloom.cost.machine_file import load_machine, read_machine
from hloom.cost.machine_text import machine_text
from hloom.cost.presets import PRESETS, parse_machine
from hloom.cost.quantity import Quantity
from hloom.ir.diagnostics import CompileError
from hloom.ir.sharding.digit import Digit

TEXT = """# A machine.
name = "mine"

[memory]
size = { value = "80 GB", source = "label" }
bandwidth = { value = "3.35 TB/s", source = "label" }
reserve = { value = 0.25, source = "habit" }

[compute]
launch = { value = "5.8us", source = "measured" }
overlap = { value = 0.9, source = "measured" }
fuses = false

[work]
bf16 = { value = "494 T", source = "label" }
f32 = { value = 6e13, source = "label" }
other = { value = "1 T", source = "guess" }

[[links]]
latency = "25 us"
bandwidth = "368 GB/s"
step = "1 us"
source = "fit"

[[links]]
from = 8
latency = "0.15 ms"
bandwidth = 5e10
torus = 2
source = "label"

[[collectives]]
kind = "all-gather"
devices = [8, 4]
latency = "30 us"
bandwidth = "394 GB/s"
array = "2 us"
source = "measured"

[engines]
all-gather = "gathers"
8 = "network"
"""
MACHINE = Cluster(
    Links(((1, Link(25e-6, 368e9, 1e-6)), (8, Link(150e-6, 50e9, 0.0, 2)))), 3.35e12, 1e12, ((16, 494e12), (32, 6e13)),
    5.8e-6, 0.9, 80e9, 0.25, (("all-gather", "gathers"), (8, "network")),
    (Fit("all-gather", (8, 4), 30e-6, 394e9, 2e-6),), False,
)  # fmt: skip


def test_a_file_of_everything() -> None:
    found = read_machine(TEXT)
    assert (found.name, found.machine) == ("mine", MACHINE)
    assert found.sources["memory.reserve"] == "habit"
    assert found.sources["links.1"] == "label"
    assert found.machine.capacity == 60e9


def test_files_are_written_as_they_are_read() -> None:
    files = [read_machine(TEXT), *(PRESETS.file(name) for name in PRESETS), read_machine("")]
    for file in files:
        again = read_machine(machine_text(file))
        assert again.machine == file.machine
        assert {k: v for k, v in again.sources.items() if v != "as given"} == file.sources
    assert read_machine("").machine == DEFAULT


def test_a_file_is_a_machine_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    assert parse_machine(str(path)) == MACHINE
    faster = parse_machine(f"{path};memory=9TB", "1us/100GB")
    assert (faster.memory(9e12), faster.fastest.latency) == (1e12, 1e6)
    path.write_text(TEXT.replace('name = "mine"', ""))
    assert load_machine(str(path)).name == "mine"


@pytest.mark.parametrize(("old", "new", "place", "message"), [
    ("[memory]", "[memory", "4:8", "this is not TOML: expected ']' at the end of a table declaration"),
    ("size =", "sise =", "5:1", "'sise' is unknown here"),
    ('{ value = "80 GB", source = "label" }', '"80 GB"', "5:1", "'size' has no value and source"),
    ('"80 GB", source = "label"', '"80 GB", source = " "', "5:1", "the source of 'size' is empty"),
    ("80 GB", "80 gigabytes", "5:1", "'80 gigabytes' is not a number of bytes"),
    ("0.25", "1.25", "7:1", "'1.25' is not a share between 0 and 1"),
    ("3.35 TB/s", "0 TB/s", "6:1", "'0 TB/s' is not a number of bytes per second above zero"),
    ("fuses = false", "fuses = 0", "12:1", "'0' is neither true nor false"),
    ("5.8us", "fast", "10:1", "'fast' is not a time"),
    ("[work]", "[werk]", "14:2", "'werk' is unknown here"),
    ("bf16 =", "pred =", "15:1", "'pred' is no type of floats or integers"),
    ('latency = "25 us"\n', "", "19:3", "this row has no latency"),
    ('from = 8', "from = 1", "26:1", "'from' is no stride of the device number above those before"),
    ("torus = 2", 'torus = "2"', "29:1", "'2' is not a number of axes"),
    ("torus = 2", "torus = 1000000000000000000", "29:1", "'1000000000000000000' is not a number of"),
    ("from = 8", "from = 1000000000000000000", "26:1", "'from' is no stride of the device number"),
    ("[8, 4]", "[8, 1000000000000000000]", "34:1", "'[8, 1000000000000000000]' are not devices of a group"),
    ("3.35 TB/s", "1e300 TB/s", "6:1", "'1e300 TB/s' is not a number of bytes per second"),
    ("25 us", "1e999 us", "20:1", "'1e999 us' is not a time"),
    ('step = "1 us"', 'hops = "1 us"', "22:1", "'hops' is unknown here"),
    ('source = "fit"\n', "", "19:3", "this row has no source"),
    ('"all-gather"\nd', '"gather"\nd', "33:1", "'gather' is not a kind of collectives"),
    ("[8, 4]", "8", "34:1", "'8' are not devices of a group along each level of links"),
    ('"network"', '"compute"', "42:1", "'compute' is not the name of an engine of collectives"),
    ('all-gather = "gathers"', 'gather = "gathers"', "41:1", "'gather' is unknown here"),
    ('name = "mine"', "name = 3", "2:1", "the name is not a string"),
    ('name = "mine"', "work = 3\nname = 'a'", None, ""),
])  # fmt: skip
def test_errors_have_places_and_help(old: str, new: str, place: str | None, message: str) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(CompileError) as caught:
        read_machine(TEXT.replace(old, new, 1), "m.toml")
    shown = str(caught.value)
    if place is not None:
        assert shown.startswith(f"m.toml:{place}: error: {message}")
    assert "m.toml:" in shown


def test_a_file_is_like_a_preset_but_for_what_it_says() -> None:
    text = 'name = "ours"\nlike = "h100"\n[memory]\nsize = { value = "141 GB", source = "label" }\n'
    found, base = read_machine(text), PRESETS.file("h100")
    assert found.machine == replace(base.machine, memory_size=141e9, known_error=0.0)
    assert found.sources["memory.size"] == "label"
    assert found.sources["memory.bandwidth"] == base.sources["memory.bandwidth"]
    row = '[[links]]\nlatency = "1 us"\nbandwidth = "900 GB/s"\nsource = "label"\n'
    other = read_machine(text + row).machine
    assert other == replace(found.machine, links=Links(((1, Link(1e-6, 900e9)),)), fits=(), engines=())
    assert read_machine(machine_text(found)).machine == found.machine


@pytest.mark.parametrize(("like", "message", "help"), [
    ('"h1000"', "'h1000' is unknown here", "did you mean h100?"),
    ("3", "'3' is unknown here", "known: a100, b200, "),
])  # fmt: skip
def test_a_file_is_like_no_unknown_machine(like: str, message: str, help: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_machine(f"like = {like}\n", "m.toml")
    assert str(caught.value).startswith(f"m.toml:1:1: error: {message}\n")
    assert f"help: {help}" in str(caught.value)


@pytest.mark.parametrize(("line", "place", "message"), [
    ('memory.size = { value = "80 gigabytes", source = "label" }', "2:8", "'80 gigabytes' is not a number of bytes"),
    ('memory.sise = { value = "80 GB", source = "label" }', "2:8", "'sise' is unknown here"),
    ('"memory" . "size" = 80', "2:12", "'size' has no value and source"),
    ("memry.size = 80", "2:1", "'memry' is unknown here"),
])  # fmt: skip
def test_errors_of_keys_with_dots_have_places(line: str, place: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_machine(f'like = "h100"\n{line}\n', "m.toml")
    assert str(caught.value).startswith(f"m.toml:{place}: error: {message}\n")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(CompileError, match=r"cannot read the machine file nowhere\.toml: No such file"):
        parse_machine("nowhere.toml")


@pytest.mark.parametrize("quantity", Quantity)
def test_quantities_are_read_as_they_are_written(quantity: Quantity) -> None:
    known: dict[Quantity, list[float]] = {Quantity.SHARE: [0.25, 0.5, 1.0], Quantity.COUNT: [1, 128]}
    values = known.get(quantity, [1e-9, 2.5e-5, 0.125, 1.0, 3350e9, 1e15])
    assert [quantity.read(quantity.text(v)) for v in values] == values
    assert quantity.read(quantity.example) is not None
    assert [quantity.read(v) for v in ("", "5 parsecs", True, [1], "nan", float("inf"), -1)] == [None] * 7


@pytest.mark.parametrize(("digits", "engine"), [
    ((Digit(8, 1),), "communication"), ((Digit(8, 8),), "network"), ((Digit(64, 1),), "network"),
    ((Digit(2, 4), Digit(2, 16)), "network"), ((Digit(4, 1),), "communication"),
])  # fmt: skip
def test_what_leaves_a_node_is_on_the_network(digits: tuple[Digit, ...], engine: str) -> None:
    assert parse_machine("h100").engine("all-gather", digits) == engine


def test_the_file_of_the_page_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "machines.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    found = read_machine(block)
    assert found.name == "ours"
    assert found.machine.engine("reduce-scatter", ()) == "second"
    with pytest.raises(CompileError) as caught:
        read_machine(block.replace("size =", "sise =").replace('3.35 TB', '1 TB').split("bandwidth")[0], "ours.toml")
    assert str(caught.value).splitlines()[0].endswith("error: 'sise' is unknown here")
