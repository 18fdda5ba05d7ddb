"""The commands of docs/jax.md run as they stand, one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.command_line import EXAMPLES, ROOT, have_mpi, hloom, process

PAGE = (ROOT / "docs" / "jax.md").read_text()


def commands() -> list[list[str]]:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for line in block.splitlines()]


def test_commands(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    *first, last = commands()
    for program, *arguments in first:
        assert program == "hloom"
        assert hloom(*arguments, cwd=tmp_path).code == 0, arguments
    assert last[-3:] == ["--ranks", "4", "--check"]
    if have_mpi():
        done = process(*last[1:], cwd=tmp_path)
        assert done.code == 0, done.err
        assert "4 MPI ranks" in done.out
        assert "check passed" in done.out
