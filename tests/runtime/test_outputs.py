"""Outputs are written whole or not at all."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from hloom.ir.user_files import OutputError
from hloom.runtime.outputs import check_outputs, outputs_record, save_outputs


def test_names_and_types_are_in_the_manifest(tmp_path: Path) -> None:
    save_outputs(tmp_path / "a" / "b", [np.ones(3, np.float32), np.array(1)], ["loss", "step"])
    arrays = json.loads((tmp_path / "a" / "b" / "manifest.json").read_text())["arrays"]
    assert [(a["file"], a["name"], a["type"], a["dims"]) for a in arrays] == [
        ("output_0.npy", "loss", "f32", [3]), ("output_1.npy", "step", "s64", [])
    ]  # fmt: skip


def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path: Path) -> None:
    """A limit on the size of files stands for the end of the disk; it is met in the second array."""
    save_outputs(tmp_path, [np.zeros(4), np.zeros(4)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OutputError, match="outputs cannot be written to "):
            save_outputs(tmp_path, [np.ones(4), np.ones(4096)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_trying_leaves_an_empty_folder(tmp_path: Path) -> None:
    check_outputs(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        check_outputs(tmp_path / "file")


def test_a_mean_that_is_no_number_is_told_without_a_warning() -> None:
    outputs = [np.array([np.inf, -np.inf], np.float32), np.full(2, 1.5e308)]
    both, large = outputs_record(outputs, ["both", "large"])
    assert (both["min"], both["mean"], both["max"]) == (None, None, None)
    assert (large["min"], large["mean"], large["max"]) == (1.5e308, None, 1.5e308)
