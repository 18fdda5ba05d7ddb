"""The lines of docs/planning.md run as they stand, one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.command_line import EXAMPLES, ROOT, have_mpi, hloom, process

PAGE = (ROOT / "docs" / "planning.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_commands(tmp_path: Path) -> None:
    """The plan is checked on four ranks, proved, and reproduced by its strategy file."""
    pytest.importorskip("jax")
    pytest.importorskip("highspy")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    lines = [shlex.split(line)[1:] for block in blocks("sh") for line in block.splitlines()]
    assert [line[0] for line in lines] == ["plan", "run", "prove", "forecast"]
    for line in lines:
        if line[0] != "run":
            done = hloom(*line, cwd=tmp_path)
            assert done.code == 0, done.err
            if line[0] == "plan":
                time = re.search(r": ([\d.]+ [um]s) a step", done.out)
                assert time is not None
                assert f"annotations, with a forecast of {time[1]}\n" in done.out
        elif have_mpi():
            done = process(*line, cwd=tmp_path)
            assert done.code == 0, done.err
            assert "check passed" in done.out


def test_the_way_back_to_jax() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("highspy")
    names: dict[str, object] = {}
    (block,) = blocks("python")
    exec(block, names)
    assert names["found"].plan.mesh.size == 4  # pyright: ignore
