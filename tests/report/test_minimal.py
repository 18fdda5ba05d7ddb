"""Annotations that imply all others: enough, and none too many."""

from __future__ import annotations

from pathlib import Path

import hloom
import pytest
from hloom.__main__ import main
from hloom.ir.graph.module import Module, Stage
from hloom.passes.base import PassContext
from hloom.report.minimal import minimal_annotations
from hloom.report.shardings import solved

EXAMPLES = Path(__file__).parents[2] / "examples"
WRONG_BY_XLA = Path(__file__).parents[1] / "wrong_by_xla"


def axes(module: Module, kept: set[str], devices: int) -> dict[str, str]:
    """Returns the shardings of all values where only these keep their annotations."""
    for i in (i for c in module for i in c if i.name not in kept):
        i.sharding = i.shardy = None
    return {row.name: row.axes for row in solved(module, PassContext(num_devices=devices)).rows()}


@pytest.mark.parametrize(("name", "most"), [("mlp_named", 2), ("mlp_train", 1)])
def test_all_that_are_found_are_needed(name: str, most: int) -> None:
    def load() -> Module:
        return hloom.load(EXAMPLES / f"{name}.hlo")

    found = minimal_annotations(load())
    chosen = {value for value, _ in found.values}
    assert 0 < len(chosen) <= most < found.count
    expected = {row.name: row.axes for row in solved(load(), PassContext()).rows()}
    devices = solved(load(), PassContext()).module.num_partitions
    assert axes(load(), chosen, devices) == expected
    for one in chosen:
        assert axes(load(), chosen - {one}, devices) != expected


def test_a_program_with_all_shardings_written_out() -> None:
    """The annotations of the source suffice where every value has one."""
    module = hloom.propagate(hloom.load(EXAMPLES / "mlp_train.hlo"))
    module.stage = Stage.GLOBAL
    found = minimal_annotations(module)
    assert found.count > 70
    assert len(found.values) <= 3


def test_one_device_needs_none() -> None:
    found = minimal_annotations(hloom.parse("ENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }"))
    assert (found.values, found.count) == ((), 0)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", str(EXAMPLES / "mlp_train.hlo"), "--minimal"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("images.1")
    assert lines[-1] == "1 of 29 annotations imply the others"


def test_the_ends_of_a_manual_region_keep_their_annotations() -> None:
    """A region is what both sides of its borders say."""
    module = hloom.parse("""HloModule m, num_partitions=4
      ENTRY e {
        x = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]}
        outside = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}
        into = f32[2,6] custom-call(outside), custom_call_target="SPMDFullToShardShape", sharding={manual}
        inside = f32[2,6] negate(into), sharding={manual}
        last = f32[2,6] tanh(inside), sharding={manual}
        ROOT y = f32[8,6] custom-call(last), custom_call_target="SPMDShardToFullShape", sharding={devices=[4,1]<=[4]}
      }""")
    found = minimal_annotations(module)
    assert [value for value, _ in found.values] == ["outside", "into", "last", "y"]
    assert found.count == 6


def test_a_divided_program_has_no_shardings_to_find() -> None:
    """Whoever divided it: its shapes are those of a device."""
    local = hloom.partition(hloom.load(EXAMPLES / "mlp_named.hlo"))
    theirs = hloom.load(WRONG_BY_XLA / "scatter_of_uneven_updates.xla.hlo")
    for program in (local, theirs):
        text = f"propagation is of a program that is not sharded yet, {program.name} is the program of each device"
        with pytest.raises(hloom.CompileError, match=text):
            minimal_annotations(program)
        with pytest.raises(hloom.CompileError, match=text):
            solved(program, PassContext())
