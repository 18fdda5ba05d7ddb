"""`hloom sweep`: the table, JSON, the program that it writes, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import NAMED, hloom


@pytest.fixture(autouse=True)
def _needs_the_solver() -> None:
    pytest.importorskip("highspy")


def test_a_table_a_plot_and_the_best_program(tmp_path: Path) -> None:
    out = tmp_path / "best.hlo"
    done = hloom("sweep", NAMED, "--machine", "cpu-cluster", "--machine", "h100", "--devices", "2,4", "--best", "1",
                 "--rows", "3", "-o", out, cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("mlp: 6 meshes in ")
    assert ".. 3 more" in lines
    assert lines[-1].endswith("#")
    assert hloom("run", out, "--check", cwd=tmp_path).code == 0


def test_json_has_the_points_best_first(tmp_path: Path) -> None:
    done = hloom("sweep", NAMED, "--machine", "h100", "--meshes", "4x2;8", "--set", "x=data,", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    points = json.loads(done.out)["points"]
    assert {tuple(p["mesh"].values()) for p in points} == {(4, 2), (8,)}
    assert [p["seconds"] for p in points] == sorted(p["seconds"] for p in points)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--meshes", "8by4"), "'8by4' is no mesh"),
        (("--devices", "0"), "'0' is not a number of at least 1"),
        (("--set", "none=x,"), "'none' fits no value"),
        (("--set", "x=three,"), "the mesh has no axis 'three'"),
        (("--machine", "abacus"), "abacus"),
        (("--meshes", "4x2;8", "--devices", "2,4"), "the meshes 4x2;8 have numbers of devices of their own, 2,4 are"),
    ],
)
def test_errors_are_named(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = hloom("sweep", NAMED, *arguments, cwd=tmp_path)
    assert done.code in (2, 65)
    assert message in done.err
    assert "Traceback" not in done.err


def test_what_fits_on_no_mesh_is_an_error_as_of_a_plan(tmp_path: Path) -> None:
    arguments = (NAMED, "--machine", "h100", "--memory", "1KB", "--devices", "4", "--time", "3s")
    done, plan = (hloom(command, *arguments, cwd=tmp_path) for command in ("sweep", "plan"))
    assert done.code == plan.code == 65
    assert "mlp fits on no mesh into 1 KB: the least that is found takes" in done.err


EACH_DEVICE = """HloModule each, num_partitions=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b) }
ENTRY main { x = f32[4] parameter(0)
  ROOT y = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add }
"""


@pytest.mark.parametrize("command", ["sweep", "plan"])
def test_the_program_of_each_device_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "each.hlo").write_text(EACH_DEVICE)
    done = hloom(command, "each.hlo", "--machine", "h100", "--devices", "4", "--time", "3s", cwd=tmp_path)
    assert done.code == 65
    assert f"a {command} is of a program that is not sharded yet, each is the program of each device" in done.err


ACTS = """HloModule acts
ENTRY main { x = f32[64] parameter(0)
  told = () custom-call(x), custom_call_target="tell", custom_call_has_side_effect=true
  ROOT y = f32[64] negate(x) }
"""


def test_a_program_that_no_mesh_divides_is_refused_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "acts.hlo").write_text(ACTS)
    done = hloom("sweep", "acts.hlo", "--machine", "h100", "--devices", "4,8,16", "--time", "3s", cwd=tmp_path)
    assert done.code == 65
    assert 'acts cannot be divided: custom-call told ("tell") has an effect outside the program' in done.err
