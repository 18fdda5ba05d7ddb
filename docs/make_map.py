"""Draws the pictures of docs/architecture.md and docs/design/partitioning.md: which room of the package imports which.

    python docs/make_map.py

The arrows are the imports of the source files. An arrow that follows from two others is left out, so a room may import
all rooms that its arrows lead to. Imports that only register ops, and late names that lead upwards, are no arrows:
tests/test_house.py lists them. A test compares the pages with the code, so the pictures cannot go stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".import", "tests") if str(ROOT / folder) not in sys.path]

from support.import_graph import Graph, import_graph, room_of, without  # noqa: E402
from test_house import REGISTERING, SOURCES, UPWARD  # noqa: E402


def part_of(name: str) -> str:
    """The part of a file: its folder at the root, or a file of the root itself."""
    return name.partition("/")[0]


def pass_room_of(name: str) -> str:
    """The room of a file inside of `passes/`, else an empty text."""
    return room_of(name) if name.startswith("passes/") else ""


PICTURES = {  # page: the box of each file
    ROOT / "docs" / "architecture.md": part_of,
    ROOT / "docs" / "design" / "partitioning.md": pass_room_of,
}


def drawn(box_of: Callable[[str], str]) -> str:
    """The picture of the boxes of all files, as Mermaid draws it; files without a box are left out."""
    boxes: dict[str, set[str]] = {}
    for name, imported in without(import_graph(SOURCES), REGISTERING | UPWARD).items():
        boxes.setdefault(box_of(name), set()).update(map(box_of, imported))
    graph = {box: frozenset(others - {box, ""}) for box, others in boxes.items() if box}
    lines = [_line(box, direct(graph, box)) for box in sorted(graph)]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


def direct(graph: Graph, box: str) -> set[str]:
    """The boxes that a box imports and that none of the others that it imports leads to."""
    return {other for other in graph[box] if not any(other in reached(graph, o) for o in graph[box] - {other})}


def reached(graph: Mapping[str, frozenset[str]], box: str) -> set[str]:
    """All boxes that the arrows of a box lead to, itself included."""
    found, stack = {box}, [box]
    while stack:
        new = graph[stack.pop()] - found
        found |= new
        stack += new
    return found


def _line(box: str, others: Iterable[str]) -> str:
    label = box if box.endswith(".py") else f"{box}/"
    arrows = " & ".join(map(_name, sorted(others)))
    return f'    {_name(box)}["{label}"]' + (f" --> {arrows}" if arrows else "")


def _name(box: str) -> str:
    return re.sub(r"\W", "_", box.removesuffix(".py").strip("_"))


def page(path: Path) -> str:
    """The text of a page with the picture that the code gives."""
    text, count = re.subn(r"```mermaid\n.*?```", lambda _: drawn(PICTURES[path]), path.read_text(), flags=re.DOTALL)
    assert count == 1, f"{path.name} has {count} pictures"
    return text


if __name__ == "__main__":
    for path in PICTURES:
        path.write_text(page(path))
