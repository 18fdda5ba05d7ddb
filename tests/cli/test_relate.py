"""`hloom relate`: its table, its JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from support.command_line import NAMED, hloom


def test_table(tmp_path: Path) -> None:
    lines = hloom("relate", NAMED, cwd=tmp_path).out.splitlines()
    assert lines[0].split() == ["value", "op", "per", "device", "is"]
    row = next(line for line in lines if line.startswith("y "))
    assert row.endswith("f32[4,4]    partial sum over y of y [x, -]")
    assert lines[0].index(" is") == row.index(" partial")
    assert lines[-1] == "15 values: 13 tile, 2 partial"


def test_values_are_chosen_by_name(tmp_path: Path) -> None:
    done = hloom("relate", NAMED, "all-*", cwd=tmp_path)
    assert [line.split()[0] for line in done.out.splitlines()[1:3]] == ["all-reduce", "all-reduce.1"]
    done = hloom("relate", NAMED, "nobody", cwd=tmp_path)
    assert done.code == 65
    assert "no value is called nobody" in done.err


def test_json(tmp_path: Path) -> None:
    found = json.loads(hloom("relate", NAMED, "h", "--json", cwd=tmp_path).out)
    assert found["counts"] == {"tile": 13, "partial": 2}
    assert found["complete"] is True
    (value,) = found["values"]
    assert value["relation"] == "tile of h [x, y]"
    assert value["offsets"]["7"] == [4, 24]


def test_a_program_per_device_has_no_original(tmp_path: Path) -> None:
    local = hloom("partition", NAMED, cwd=tmp_path).out
    done = hloom("relate", "-", cwd=tmp_path, text=local)
    assert done.code == 2
    assert "use hloom.relate" in done.err
