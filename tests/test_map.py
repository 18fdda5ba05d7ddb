"""The map for newcomers (docs/architecture.md) shows the code as it is, and CONTRIBUTING.md commits as they are."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hloom.driver.backend import has_native_code
from support.command_line import ROOT
from support.docs_makers import maker
from support.import_graph import import_graph, parsed, rooms
from support.nursery import cold
from test_house import SOURCES

MAP = (ROOT / "docs" / "architecture.md").read_text()
DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))
ROW = re.compile(r"^\| `(.+)/` \| .+ \| (.+) \| `(.+)` \|$", re.MULTILINE)
ROOM_ROWS = [(room, door, first) for room, door, first in ROW.findall(MAP)]
STEPS = re.findall(r"^\| .+ \| `(\S+\.py)` \| `(\S+)` \|$", MAP, re.MULTILINE)
ON_RANKS = {"runtime/ranks/launch.py", "runtime/mpi.py", "runtime/fabric/ranks.py"}


def test_pictures_are_up_to_date() -> None:
    module = maker("make_map")
    assert [page.name for page in module.PICTURES if page.read_text() != module.page(page)] == [], (
        "run `python docs/make_map.py`"
    )


def test_arrows_that_follow_from_others_are_left_out() -> None:
    graph = {"a": frozenset("bcd"), "b": frozenset("c"), "c": frozenset(""), "d": frozenset("")}
    assert maker("make_map").direct(graph, "a") == {"b", "d"}


def test_each_room_stands_on_the_map_once() -> None:
    assert sorted(room for room, _, _ in ROOM_ROWS) == sorted(set(rooms(import_graph(SOURCES))) - {"."})


def _names(body: Iterable[ast.stmt], inside: str = "") -> Iterator[str]:
    """The names that statements bind, those of methods as `Class.method`."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield inside + node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{node.name}.")
        elif isinstance(node, ast.If):
            yield from _names(node.body, inside)
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (inside + target.id for target in targets if isinstance(target, ast.Name))


def _names_of(path: Path) -> set[str]:
    return set(_names(parsed(path).body))


@pytest.mark.parametrize(("room", "door", "first"), ROOM_ROWS, ids=[room for room, _, _ in ROOM_ROWS])
def test_each_room_has_its_door_and_its_first_file(room: str, door: str, first: str) -> None:
    assert (ROOT / room / first).is_file()
    there = {name for path in (ROOT / room).glob("*.py") for name in _names_of(path)}
    names = re.findall(r"`(\w+)`", door)
    assert names
    assert [name for name in names if name not in there] == []


def test_the_walk_names_functions_that_exist() -> None:
    assert len(STEPS) > 20
    assert [step for step in STEPS if step[1] not in _names_of(ROOT / step[0])] == []
    assert {file for file, _ in STEPS} > ON_RANKS


TRACED = """
import json, sys
called = set()
def note(frame, event, argument):
    if event == "call":
        called.add((frame.f_code.co_filename, frame.f_code.co_qualname))
sys.setprofile(note)
from hloom.__main__ import main
status = main({arguments})
sys.setprofile(None)
print(json.dumps(sorted(called)))
sys.exit(status)
"""


def test_the_walk_goes_through_its_files() -> None:
    """All but the files of ranks, on simulated devices in one process."""
    if not has_native_code():
        pytest.skip("needs llvmlite and a fused multiply-add")
    (line,) = re.findall(r"^`hloom (run .+?)`", MAP, re.MULTILINE)
    arguments = line.replace("--ranks 2", "--devices 8").split()
    ended = cold(TRACED.format(arguments=arguments), ROOT, HLOOM_TEST=f"the walk of {os.getpid()}")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out.splitlines()[-1])
    called = {(Path(os.path.realpath(file)), name) for file, name in found if not file.startswith("<")}
    assert [step for step in STEPS if step[0] not in ON_RANKS and (ROOT / step[0], step[1]) not in called] == []


def test_files_that_the_pages_name_exist() -> None:
    there = [path.as_posix() for path in (*SOURCES, *(ROOT / "tests").rglob("*.py"))]
    named = [
        (page.name, name)
        for page in (*DESIGN, ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text())
    ]
    assert len(named) > 60
    assert [(page, name) for page, name in named if not any(path.endswith(f"/{name}") for path in there)] == []


def test_commits_shown_to_contributors_change_that_many_files() -> None:
    shown = re.findall(r"`git show (\w+)`[^:;]*: (\d+) files", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(shown) == 5
    for commit, files in shown:
        show = ["git", "-C", str(ROOT), "show", "--format=", "--name-only", commit]
        done = subprocess.run(show, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip("this copy has no history")
        assert len(done.stdout.split()) == int(files), commit
