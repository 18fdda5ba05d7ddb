"""Every Python example of the pages in docs/ runs as it stands, from the root of the repository."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.command_line import ROOT
from support.nursery import cold

_LONG = ("models.md: Pipelines",)
_ELSEWHERE = ("planning.md: Ten minutes",)  # test_planning_page
_BLOCK = re.compile(r"^## ([^\n]*)\n|^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_IMPORTED = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
_OF_EXAMPLES = {path.stem for path in (ROOT / "examples").iterdir()}


def examples(pages: str = "docs/**/*.md") -> list[tuple[str, str]]:
    """Page and heading of each fenced block of Python, and its text."""
    found: list[tuple[str, str]] = []
    for page in sorted(ROOT.glob(pages)):
        heading = ""
        for match in _BLOCK.finditer(page.read_text()):
            heading = match[1] or heading
            if match[2] is not None:
                found.append((f"{page.name}: {heading}", match[2]))
    return found


def _all() -> list[tuple[str, str]]:
    needs_jax = find_spec("jax") is None
    found = [*examples("README.md"), *examples()]
    return [(p, e) for p, e in found if not needs_jax or not ("jax" in e or "stablehlo" in e)]


@pytest.mark.parametrize(("place", "example"), [
    pytest.param(*found, id=found[0], marks=[pytest.mark.slow] if found[0] in _LONG else [])
    for found in examples() if found[0] not in _ELSEWHERE
])  # fmt: skip
def test_example(place: str, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "jax" in example or "stablehlo" in example:
        pytest.importorskip("jax")
    if "register" in example:  # for the process
        _runs_cold(example)
        return
    monkeypatch.chdir(ROOT)
    exec(compile(example, place, "exec"), {})


@pytest.mark.slow
@pytest.mark.parametrize(("place", "example"), _all(), ids=[place for place, _ in _all()])
def test_example_in_a_cold_process(place: str, example: str) -> None:
    _runs_cold(example)


def _runs_cold(example: str) -> None:
    uses_examples = not _OF_EXAMPLES.isdisjoint(_IMPORTED.findall(example))
    on_path = "import sys\nsys.path.append('examples')\n" if uses_examples else ""  # as the page says
    ended = cold(on_path + example, ROOT)
    assert ended.code == 0, ended.err


def test_examples_are_found_and_short() -> None:
    editing = [text for place, text in examples() if place.startswith("editing.md")]
    assert len(editing) >= 7
    assert len(examples("README.md")) == 1
    assert max(len(text.splitlines()) for text in editing) <= 17


def test_printed_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """The comment beside the example of an error says what it prints."""
    (text,) = [text for place, text in examples() if place == "editing.md: Errors"]
    exec(compile(text, "mistake", "exec"), {})
    wanted = r"transpose: unknown attribute 'dimension'\n.*did you mean 'dimensions'\?"
    assert re.search(wanted, capsys.readouterr().out)


def test_pages_are_there() -> None:
    assert {"editing.md", "architecture.md"} <= {Path(p).name for p in (ROOT / "docs").glob("*.md")}
