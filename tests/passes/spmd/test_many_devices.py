"""Very many devices: compiling costs what it costs for eight, or is refused at once with the reason."""

from __future__ import annotations

import hloom
import pytest
from fuzz import bounded
from hloom.__main__ import main
from hloom.ir.sharding.mesh import LARGEST_MESH
from hloom.passes.annotating.remesh import remesh
from hloom.report.collectives import collectives_table
from support.command_line import EXAMPLES

STENCIL = """HloModule stencil
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[4000000000] parameter(0), sharding={mesh['x'=N], [{'x'}]}
  zero = f32[] constant(0)
  ROOT w = f32[4000000000] reduce-window(x, zero), window={size=3 pad=1_1}, to_apply=add
}
"""
MOVED = """HloModule moved
ENTRY e {
  x = f32[4000000000,2] parameter(0), sharding={mesh['x'=N,'y'=2], [{'x'}, {'y'}]}
  ROOT y = f32[4000000000,2] negate(x), sharding={mesh['x'=N,'y'=2], [{'y','x'}, {}]}
}
"""


@pytest.mark.parametrize("name", ["mlp_named.hlo", "mlp_train.hlo", "transformer_train.hlo"])
def test_cost_does_not_depend_on_the_number_of_devices(name: str) -> None:
    module = hloom.load(EXAMPLES / name)
    sizes: list[int] = []
    axis = {"mlp_named.hlo": "x", "mlp_train.hlo": "data", "transformer_train.hlo": "data"}[name]
    for count in (8, 10**8):
        copy = hloom.parse(module.to_text())
        remesh(copy, {axis: count})
        with bounded():
            local = hloom.partition(copy)
            collectives_table(hloom.collectives(local))
            sizes.append(len(local.to_text()))
    assert sizes[1] < 2 * sizes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STENCIL, "a halo exchange lists its tiles: at most 65,536 are possible, not 100,000,000"),
        (MOVED, "a collective-permute lists its devices: at most 1,048,576 are possible, not 200,000,000"),
    ],
)
def test_what_would_be_listed_is_refused_at_once(text: str, message: str) -> None:
    with bounded(), pytest.raises(hloom.CompileError) as error:
        hloom.partition(hloom.parse(text.replace("=N", "=100000000")))
    assert error.value.diagnostics[0].message == message


def test_more_devices_than_have_numbers() -> None:
    module = hloom.parse("ENTRY e { ROOT x = f32[8] parameter(0) }")
    with pytest.raises(hloom.CompileError, match="2147483648 devices are too many"):
        hloom.partition(module, LARGEST_MESH + 1)
    assert hloom.partition(module, LARGEST_MESH).num_partitions == LARGEST_MESH


@pytest.mark.parametrize("option", ["--mesh=x=99999999999999999999", "--mesh=x=65536,y=65536", "--devices=2147483648"])
def test_arguments(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["partition", str(EXAMPLES / "mlp_named.hlo"), option])
    assert done.value.code == 2
    assert "2147483647 devices, their numbers have 32 bits" in capsys.readouterr().err


def test_too_many_to_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    with bounded():
        assert main(["run", str(EXAMPLES / "mlp_named.hlo"), "--mesh", "x=1000000"]) == 65
    assert "4,000,000 devices cannot be simulated in one process, at most 65,536 can" in capsys.readouterr().err
