"""The site of docs/ is built without a warning: links resolve, commands and public names have their places."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import hloom
import pytest
from hloom.cli.commands import COMMANDS
from support.command_line import ROOT

NEEDED = ("mkdocs", "mkdocstrings", "mkdocstrings_handlers")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(map(find_spec, NEEDED)):
        pytest.skip("needs the extra `docs`")
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(made)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.mark.slow
def test_commands_and_names_have_their_places(site: Path) -> None:
    for name, command in COMMANDS.items():
        page = (site / "commands" / name / "index.html").read_text()
        assert all(option in page for option in re.findall(r"--[a-z-]+", " ".join(command.examples)))
    api = (site / "api" / "index.html").read_text()
    missing = [name for name in hloom.__all__ if name != "__version__" and f">{name}<" not in api]
    assert missing == []


@pytest.mark.slow
def test_pages_ask_nothing_of_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text())
        assert [place for place in loaded if "canonical" not in place] == [], page


def test_every_page_is_in_the_navigation() -> None:
    made = {"index.md", "api.md", "notebook.md"}
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)) - made
    assert listed == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
