"""Runs the cells of docs/tutorial.ipynb one after the other and keeps what they show, as Jupyter does.

    python docs/make_notebook.py

A cell shows what it prints, and its last expression, as HTML if it has such a form. Pages in frames are not kept, since
they are large, and neither is the text of what has HTML. A test runs the cells, too, and compares what they show but
for the numbers.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / ".import")]

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"

Cell = dict[str, Any]


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Returns the notebook with the outputs of its cells. Raises what they raise."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[Cell] = []
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = cell | {"execution_count": count, "outputs": _outputs("".join(cell["source"]), names, count)}
        cells.append(cell)
    return notebook | {"cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Runs a cell, and returns what it shows."""
    body = ast.parse(source).body
    last = body[-1] if isinstance(body[-1], ast.Expr) else None
    body = body[:-1] if last is not None else body
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {count}", "exec"), names)
        shown = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names) if last is not None else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if shown is not None:
        html: str = shown._repr_html_() if hasattr(shown, "_repr_html_") else ""
        data = {"text/plain": [f"<{type(shown).__name__}>"] if html else _lines(repr(shown))}
        if html and not html.startswith("<iframe"):
            data["text/html"] = _lines(html)
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def text(notebook: dict[str, Any]) -> str:
    """Returns the file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(text(run(json.loads(NOTEBOOK.read_text()))))
