"""Files that commands write: those that cannot be written are refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from hloom.ir.user_files import writable
from support.command_line import NAMED, hloom


@pytest.mark.parametrize("option", ["-o", "--strategy-out"])
def test_a_plan_is_not_lost_for_want_of_a_folder(option: str, tmp_path: Path) -> None:
    out = tmp_path / "missing" / "plan.out"
    done = hloom("plan", NAMED, "--machine", "h100", "--time", "600s", option, out, cwd=tmp_path)
    assert done.code == 74
    assert f"{out} cannot be written: No such file or directory" in done.err


def test_files_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    there = tmp_path / "there.hlo"
    there.write_text("old")
    assert writable(str(there)) == str(there)
    assert there.read_text() == "old"
    assert writable(str(tmp_path / "new.hlo"))
    assert not (tmp_path / "new.hlo").exists()
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        writable(str(tmp_path))
