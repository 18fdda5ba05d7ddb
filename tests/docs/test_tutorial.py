"""The way of docs/tutorial.md from a function of JAX to a plan, a checked run and a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.command_line import ROOT, have_mpi, hloom, process

_PAGE = (ROOT / "docs" / "tutorial.md").read_text().partition("## Your own function")[2]


@pytest.mark.slow
def test_from_a_function_to_a_page(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    pytest.importorskip("highspy")
    (code,) = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    (tmp_path / "step.py").write_text(code)
    lines = [line.split()[1:] for line in re.findall(r"^\$ (hloom .*)$", _PAGE, re.MULTILINE)]
    assert [line[0] for line in lines] == ["plan", "run", "report"]
    for line in lines:
        if "--ranks" in line and not have_mpi():
            continue
        done = (process if "--ranks" in line else hloom)(*line, cwd=tmp_path)
        assert done.code == 0, done.err
        assert line[0] != "run" or "check passed" in done.out
    assert "<h2>Side by side</h2>" in (tmp_path / "step.html").read_text()
