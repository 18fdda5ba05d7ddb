"""Every Python example of the pages in docs/ runs as it stands, from the root of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.command_line import ROOT

_BLOCK = re.compile(r"^## ([^\n]*)\n|^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Page and heading of each fenced block of Python, and its text."""
    found: list[tuple[str, str]] = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        heading = ""
        for match in _BLOCK.finditer(page.read_text()):
            heading = match[1] or heading
            if match[2] is not None:
                found.append((f"{page.name}: {heading}", match[2]))
    return found


@pytest.mark.parametrize(("place", "example"), examples(), ids=[place for place, _ in examples()])
def test_example(place: str, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "jax" in example or "stablehlo" in example:
        pytest.importorskip("jax")
    monkeypatch.chdir(ROOT)
    exec(compile(example, place, "exec"), {})


def test_examples_are_found_and_short() -> None:
    editing = [text for place, text in examples() if place.startswith("editing.md")]
    assert len(editing) >= 7
    assert max(len(text.splitlines()) for text in editing) <= 17


def test_printed_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """The comment beside the example of an error says what it prints."""
    (text,) = [text for place, text in examples() if place == "editing.md: Errors"]
    exec(compile(text, "mistake", "exec"), {})
    wanted = r"transpose: unknown attribute 'dimension'\n.*did you mean 'dimensions'\?"
    assert re.search(wanted, capsys.readouterr().out)


def test_pages_are_there() -> None:
    assert {"editing.md", "architecture.md"} <= {Path(p).name for p in (ROOT / "docs").glob("*.md")}
