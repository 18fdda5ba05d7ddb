"""A wheel that is built and installed has all that the commands need, in a folder that is empty otherwise."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import EXAMPLES, ROOT, environment

_LEFT_OUT = shutil.ignore_patterns(".*", "tests", "bench", "docs", "build", "*.egg-info", "__pycache__", "site")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds a wheel of the sources, and returns the folder into which it is installed, without what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=_LEFT_OUT)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "-q", "--no-deps", "-w", str(folder), str(folder / "source")]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode and ("No matching distribution" in done.stderr or "No module named pip" in done.stderr):
        pytest.skip("pip cannot fetch setuptools")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("hloom-*.whl")
    install = [*pip, "install", "-q", "--no-deps", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("run mlp.hlo --check", "check passed"),
        ("report mlp.hlo --machine h100 -o r.html", "mlp: r.html, "),
        ("machine tpu-v4", "bf16"),
        ("doctor", "ok  0.1.0, Python "),
    ],
)
def test_commands_work_in_an_empty_folder(line: str, shown: str, installed: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "mlp_named.hlo", tmp_path / "mlp.hlo")
    done = subprocess.run(
        [sys.executable, "-m", "hloom", *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=environment() | {"PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.slow
def test_every_module_is_packed(installed: Path) -> None:
    names = {p.relative_to(installed / "hloom") for p in (installed / "hloom").rglob("*.py")}
    parts = ("cli", "codegen", "cost", "driver", "frontends", "ir", "passes", "report", "runtime")
    ours = {p.relative_to(ROOT) for part in parts for p in (ROOT / part).rglob("*.py")}
    assert ours - names == set()
    assert {p.suffix for p in (installed / "hloom").rglob("*.*")} >= {".css", ".js", ".toml", ".lark", ".typed"}
