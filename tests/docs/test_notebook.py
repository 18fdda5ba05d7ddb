"""The tutorial notebook runs, and shows what is kept of it; docs/pictures/ are what runs draw today."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from support.command_line import ROOT
from support.docs_makers import maker
from support.nursery import cold

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e-?\d+)?")
_PLAN = re.compile(r"<pre>plan for .*</pre>", re.DOTALL)  # what is found depends on the time, which is the machine's
_RUN = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("make_notebook", "docs/make_notebook.py")
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
print(json.dumps(made.run(json.loads(made.NOTEBOOK.read_text()))))
"""


def _shown(notebook: dict[str, Any]) -> list[str]:
    """What each cell shows, without numbers, as the planner's times and the forecast's are others tomorrow."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [_PLAN.sub("", _NUMBER.sub("#", json.dumps(cell["outputs"]))) for cell in cells]


def test_cells_run_and_show_what_is_kept() -> None:
    pytest.importorskip("highspy")
    kept = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text())
    ended = cold(_RUN, ROOT)
    assert ended.code == 0, ended.err
    assert _shown(json.loads(ended.out)) == _shown(kept), "run `python docs/make_notebook.py`"
    html = ["".join(o["data"].get("text/html", [])) for cell in kept["cells"] for o in cell.get("outputs", [])
            if "data" in o]  # fmt: skip
    assert sum(map(bool, html)) >= 7
    assert "<script" not in "".join(html)


def test_pictures_are_what_runs_draw() -> None:
    """But for the numbers, which move with each forecast: the same engines, and collectives in the same states."""

    def drawn(text: str) -> str:
        return _NUMBER.sub("#", re.sub(r' d="[^"]*"', "", text))

    for name, text in maker("make_pictures").pictures().items():
        kept = (ROOT / "docs" / "pictures" / name).read_text()
        assert drawn(kept) == drawn(text), "run `python docs/make_pictures.py`"


def test_the_picture_of_the_page_is_shown() -> None:
    page: Path = maker("make_pictures").PAGE
    data = page.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1280, 860)
    assert f"](docs/pictures/{page.name})" in (ROOT / "README.md").read_text()


def test_every_picture_is_shown_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text() for page in pages)
    assert [p.name for p in (ROOT / "docs" / "pictures").iterdir() if f"pictures/{p.name})" not in text] == []
