"""The command lines of README.md and docs/ run in cold processes and print what stands below them.

Lines about files that a reader has to have (`step.hlo`) are left out. `..` stands for lines that a page leaves out.
"""

from __future__ import annotations

import re

import pytest
from support.command_line import ROOT
from support.nursery import cold, command

_BLOCK = re.compile(r"^```(console|text|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"\S+\.(?:hlo|toml|npz|json|mlir|pb)\b")
_ERRORS = re.compile(r"(error|that of one device) \d\S*e-\d+")
_NEEDS_MORE = ("--ranks", ">", "|", "from-jax", "hosts", "bench")


def _commands() -> list[tuple[str, str, str]]:
    """The page, the command line and the output of each command that needs nothing but the repository."""
    found: list[tuple[str, str, str]] = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for kind, block in _BLOCK.findall(page.read_text()):
            parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] if kind != "sh" else block.splitlines()
            for line, _, output in (part.partition("\n") for part in parts):
                if line.startswith("hloom ") and _can_run(line):
                    found.append((page.name, line.removeprefix("hloom ").partition("  #")[0], output))
    return found


def _can_run(line: str) -> bool:
    return all((ROOT / name).exists() for name in _FILE.findall(line)) and not any(w in line for w in _NEEDS_MORE)


def _case(page: str, line: str, output: str) -> object:
    """README.md is tested in a warm process as well, so its cold one is slow."""
    marks = [pytest.mark.slow] if page == "README.md" else []
    return pytest.param(line, output, id=f"{page}: {line}", marks=marks)


@pytest.mark.parametrize(("line", "output"), [_case(*found) for found in _commands()])
def test_command(line: str, output: str) -> None:
    ended = cold(command(line), ROOT)
    assert ended.code == ("wrong_by_xla" in line), ended.err
    wanted, shown = (_ERRORS.sub(r"\1 ?", text).strip() for text in (output, ended.out))
    pattern = ".*".join(re.escape(part) for part in re.split(r"^\.\.$", wanted, flags=re.MULTILINE))
    assert not output or re.match(pattern + r"(\n|$)", shown, re.DOTALL), ended.out


def test_commands_are_found() -> None:
    assert len(_commands()) >= 12
