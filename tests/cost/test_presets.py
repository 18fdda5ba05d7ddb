"""Machines by name and as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hloom.cost.machine import DEFAULT, SECOND, Cluster
from hloom.cost.presets import PRESETS, machine_name, parse_machine
from hloom.ir.diagnostics import CompileError
from hloom.ir.sharding.digit import Digit
from hloom.ir.types.element_type import ELEMENT_TYPES

F8, BF16, F32, F64, S4, S8, S32, S64 = (
    ELEMENT_TYPES[name] for name in ("f8e5m2", "bf16", "f32", "f64", "s4", "s8", "s32", "s64")
)


def test_no_text_is_the_default() -> None:
    assert parse_machine() is DEFAULT


@pytest.mark.parametrize("name", PRESETS)
def test_presets_compute_narrow_types_no_slower(name: str) -> None:
    machine = parse_machine(name)
    assert machine is PRESETS[name]
    times = [machine.work(1e6, element) for element in (F8, BF16, F32, F64)]
    assert times == sorted(times)
    assert machine.collective("all-gather", (Digit(2, 1),)).latency > 0


def test_rates_are_taken_by_width() -> None:
    machine = parse_machine("work=bf16:400T,f32:60T;memory=2TB")
    assert [machine.work(6e13, e) for e in (F8, BF16, F32, F64, S32)] == [0.15 * SECOND] * 2 + [SECOND] * 3
    assert machine.memory(2e12) == SECOND
    assert machine.fastest == DEFAULT.fastest


def test_integers_have_rates_of_their_own() -> None:
    products = [PRESETS["h100"].work(1.0, e) for e in (S8, S4, S32)]
    assert products[0] == products[1] == PRESETS["h100"].work(1.0, F8)
    assert products[2] > 8 * products[0]
    machine = parse_machine("h100;work=s32:6T")
    assert [machine.work(6e12, e) for e in (S32, S64)] == [SECOND, pytest.approx(6 / 33 * SECOND)]
    assert machine.work(1.0, BF16) == PRESETS["h100"].work(1.0, BF16)


def test_a_preset_with_another_rate_and_other_links() -> None:
    machine = parse_machine("h100; memory=2.4TB", "1us/100GB")
    assert isinstance(machine, Cluster)
    assert machine.by_bits == PRESETS["h100"].by_bits
    assert machine.memory(2.4e12) == SECOND
    assert machine.fastest.latency == 1e-6 * SECOND


def test_a_preset_without_a_kernel_for_attention() -> None:
    machine = parse_machine("h100;attention=0")
    assert (machine.attention, PRESETS["h100"].attention) == (0.0, 0.5)
    assert machine.work(1.0, BF16) == PRESETS["h100"].work(1.0, BF16)


def test_a_preset_with_another_launch() -> None:
    machine = parse_machine("h100;launch=5.8us")
    assert machine.launch == pytest.approx(5.8e-6 * SECOND)
    assert PRESETS["h100"].launch == pytest.approx(2.3e-6 * SECOND)


def test_a_preset_with_a_shape() -> None:
    torus, nodes = parse_machine("tpu-v4:8x16x16;memory=2TB"), parse_machine("h100:4x4")
    assert isinstance(torus, Cluster)
    assert torus.links.levels[0][1].shape == (8, 16, 16)
    assert torus.of_devices(2048) == torus.of_devices(8) == torus
    with pytest.raises(CompileError, match="a torus of 8x16x16 has 2048 devices, 4096 are needed"):
        torus.of_devices(4096)
    assert torus.memory(2e12) == SECOND
    assert isinstance(nodes, Cluster)
    assert [start for start, _ in nodes.links.levels] == [1, 4]
    assert parse_machine("h100:16x8") == PRESETS["h100"]


@pytest.mark.parametrize(("text", "message"), [
    ("tpu-v4:8x16", "tpu-v4 is a torus of 3 axes, not of 2"),
    ("h100:2x4x8", "h100 has no shape of 3 numbers: it has 2 levels"),
    ("h100:0x8", "h100 has no devices in the shape 0x8"),
    ("cpu-cluster:4", "cpu-cluster has no shape of 1 numbers"),
    ("h300", "'h300' is neither a machine nor a rate"),
    ("h100;speed=3", "'speed=3' is neither a machine nor a rate"),
    ("h100;launch=soon", "'launch=soon' has no time"),
    ("h100;attention=2", "'attention=2' has no share between 0 and 1"),
    ("h100;attention=", "'attention=' has no share between 0 and 1"),
    ("memory=fast", "'memory=fast' has no rate above zero"),
    ("memory=0TB", "'memory=0TB' has no rate above zero"),
    ("work=c64:3T", "'c64:3T' in 'work=c64:3T' is not a type of floats or integers and a rate"),
])  # fmt: skip
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        parse_machine(text)


def test_a_machine_file_has_its_name(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('name = "our pod"\nlike = "h100"\n[memory]\nsize = { value = "81 GB", source = "us" }\n')
    assert machine_name(parse_machine(str(path))) == "our pod"
    assert machine_name(parse_machine(f"{path};memory=1TB")) == "the given machine"
    assert machine_name(PRESETS["h100"]) == "h100"
