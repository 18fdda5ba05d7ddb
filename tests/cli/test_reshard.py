"""The command `reshard`: what it prints of a plan, and what it says where there is none."""

from __future__ import annotations

import pytest
from hloom.__main__ import main

FOUR = "{devices=[4]<=[4]}"


def _reshard(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["reshard", "f32[8]", *arguments]) == 0
    return capsys.readouterr().out


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert _reshard(capsys, "[{'x','y'}]", "{replicated}", "--mesh", "x=2,y=2", "--links", "2us/100GB") == (
        "  all-gather dimension 0 over 4@1\n"
        "1 collectives; 24 bytes received per device, lower bound 24, ratio 1.00; peak memory 40 bytes\n"
        "minimized: time on the given machine, 2 us; lower bound 2 us, ratio 1.00\n"
    )
    assert _reshard(capsys, FOUR, FOUR).startswith("  nothing to do\n0 collectives; 0 bytes received")


@pytest.mark.parametrize(("machine", "shown"), [
    ("h100", "minimized: time on h100, 17 us; lower bound 14 us, ratio 1.21"),
    ("", "minimized: time on the default machine, 0.00025 us; lower bound 0.00025 us, ratio 1.00"),
])  # fmt: skip
def test_whose_time_is_minimized(machine: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = _reshard(capsys, FOUR, "{replicated}", "--machine", machine)
    assert out.splitlines()[-1] == shown


@pytest.mark.parametrize(
    ("arguments", "move", "received"),
    [
        (("{unreduced}", FOUR), "reduce-scatter dimension 0 over 4@1", 24),
        (("{unreduced}", "{replicated}", "--mesh", "x=4"), "all-reduce over 4@1", 48),
        ((FOUR, "{unreduced}"), "dimension 0 becomes a partial sum over 4@1", 0),
        (("{unreduced}", "{unreduced}", "--mesh", "x=4"), "nothing to do", 0),
        (("{replicated}", FOUR), "slice dimension 0 by 4@1", 0),
    ],
)
def test_an_end_that_does_not_say_its_devices_takes_those_of_the_other_or_of_the_mesh(
    arguments: tuple[str, ...], move: str, received: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _reshard(capsys, *arguments)
    assert found.startswith(f"  {move}\n")
    assert f"; {received} bytes received per device" in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{unreduced}", "{replicated}"), "neither sharding says over how many devices the sum is"),
        (("{maximal device=3}", "{unreduced}"), "neither sharding says over how many devices the sum is"),
        (("{unknown}", FOUR), "sharding {unknown} does not say how the value is divided"),
        ((FOUR, "{manual}"), "sharding {manual} does not say how the value is divided"),
        ((FOUR, "{replicated}", "--mesh", "x=8"), "both shardings must be over the same devices"),
        ((FOUR, "{maximal device=4}"), "there is no device 4 among 4"),
        ((FOUR, "{devices=[2,2]<=[4]}"), "has 2 dimensions, f32[8] has 1"),
        ((FOUR, "{replicated}", "--memory", "39"), "no plan stays within 39 bytes per device"),
    ],
)
def test_what_has_no_plan(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reshard", "f32[8]", *arguments]) == 65
    assert message in capsys.readouterr().err
