"""Files that commands write: those that cannot be written are refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from hloom.ir.user_files import writable
from support.command_line import EXAMPLES, NAMED, hloom

MLP = EXAMPLES / "mlp_train.hlo"


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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_is_one_kind_of_error_in_all_commands(tmp_path: Path) -> None:
    """Of the forecast as of the trace of a run, and of metrics, which are not standard output."""
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    for arguments, message in (
        (("schedule", NAMED, "--machine", "h100", "--trace", full), f"the trace cannot be written to {full}"),
        (("train", MLP, "--steps", "1", "--metrics", full), f"{full} cannot be written"),
    ):
        done = hloom(*arguments, "--remarks", "none", cwd=tmp_path)
        assert (done.code, done.err.splitlines()[-1]) == (74, f"hloom: error: {message}: No space left on device")
    assert full.is_symlink()


def test_a_checkpoint_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "steps").touch()
    options = ("--steps", "3", "--checkpoint", "steps", "--every", "1", "--remarks", "none")
    done = hloom("train", MLP, *options, cwd=tmp_path)
    reason = "a checkpoint cannot be written to steps: Not a directory"
    assert f"\nhloom: warning: {reason}; the run goes on, with the checkpoint before\n" in done.err
    assert (done.code, done.err.splitlines()[-1]) == (74, f"hloom: error: {reason}")
