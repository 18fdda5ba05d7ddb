"""Type checkers accept a program that uses every public name, in their strictest mode."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import hloom
import pytest
from support.command_line import ROOT

USE = """
def use(path: Path) -> str:
    module = hloom.load(path)
    forms = hloom.local_forms()
    local = hloom.partition(module, 4, machine="h100", forms=forms, passes=hloom.PIPELINE, verify="each")
    verdict: hloom.Verdict = hloom.prove(module, local)
    sharding = hloom.Sharding.over(hloom.Mesh.of(x=2), "x", None)
    return f"{verdict.is_equal} {local.certificate.received_bytes} {sharding} {hloom.builder.trace}"
"""


def _client(folder: Path) -> Path:
    names = "\n".join(f"{name.strip('_')}_ = hloom.{name}" for name in hloom.__all__ if name != "jax")
    path = folder / "client.py"
    path.write_text(f"from pathlib import Path\n\nimport hloom\n\n{names}\n{USE}")
    return path


def _checked(*arguments: str | Path, **variables: str) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], env=os.environ | variables, check=False, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_mypy(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    _checked("mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", _client(tmp_path),
             MYPYPATH=str(ROOT / ".import"))  # fmt: skip


@pytest.mark.slow
def test_pyright(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    client = _client(tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(
        f'{{"extraPaths": ["{ROOT / ".import"}"], "typeCheckingMode": "strict", "reportUnusedVariable": false}}')
    _checked("pyright", "--pythonpath", sys.executable, "-p", tmp_path)
    assert client.exists()


def test_names_are_exported_under_their_own_names() -> None:
    """What mypy asks for in its strict mode: an import says `as` with the name that it has."""
    lines = [line.split("#")[0].split() for line in (ROOT / "__init__.py").read_text().splitlines()]
    renamed = [words for words in lines if "as" in words and words[-1] != words[-3]]
    assert renamed == []
