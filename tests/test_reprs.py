"""Representations of objects are short, however much of a program they reach: messages and debuggers show them."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hloom
from hloom.ir.diagnostics import Diagnostic, InternalError, Severity
from hloom.passes.base import PassContext
from hloom.report.shardings import solved
from support.command_line import NAMED
from support.command_line import hloom as run_command
from support.import_graph import Place, imported_places, module_of, name_of, nodes_of
from test_house import SOURCES

LONGEST = 5000  # of values such as shapes and rules, which are as long as one op makes them
GRAPH = {Place(f"ir/graph/{name.lower()}.py", name) for name in ("Instruction", "Computation", "Module")}
_CONTAINERS = re.compile(r"\b(?:list|dict|tuple|set|frozenset|deque|Sequence|Mapping|Iterable)\[")
# What an op itself may list.
ALLOWED = {"CustomCallAttributes", "ConditionalAttributes", "P"}


def _annotations(node: ast.ClassDef) -> list[str]:
    """The types of the fields of a dataclass, without those of functions that they hold."""
    texts = [ast.unparse(s.annotation) for s in node.body if isinstance(s, ast.AnnAssign)]
    return [re.sub(r"Callable\[.*\]", "", text) for text in texts if "ClassVar" not in text]


def _dataclasses() -> Iterator[tuple[Place, ast.ClassDef, dict[str, Place]]]:
    """The dataclasses of the package, and the places that names mean in their files."""
    files = {module_of(path): name_of(path) for path in SOURCES}
    for path in SOURCES:
        classes = [node for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
        places = imported_places(path, files) | {c.name: Place(name_of(path), c.name) for c in classes}
        for node in classes:
            if any(ast.unparse(d).startswith("dataclass") for d in node.decorator_list):
                yield Place(name_of(path), node.name), node, places


def test_what_holds_many_parts_of_programs_is_brief() -> None:
    """A generated representation follows lists and tables of instructions, or of what holds some, through the graph."""
    fields = {
        place: [(text, {places[w] for w in re.findall(r"\w+", text) if w in places}) for text in _annotations(node)]
        for place, node, places in _dataclasses()
    }
    holders = set(GRAPH)
    while more := {p for p, found in fields.items() if p not in holders and any(r & holders for _, r in found)}:
        holders |= more
    wrong = [
        f"{place.file} {place.name}"
        for place, node, _ in _dataclasses()
        if any(refs & holders and _CONTAINERS.search(text) for text, refs in fields[place])
        and not any(ast.unparse(d) == "brief" for d in node.decorator_list)
        and place.name not in ALLOWED
    ]
    assert wrong == []
    assert len(holders) > 100


class _Watch:
    """Notes the longest representation of each class of the package among the local variables of what runs."""

    def __init__(self) -> None:
        self.longest: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "return" or not frame.f_globals.get("__name__", "").startswith("hloom"):
            return
        for value in list(frame.f_locals.values()):
            if type(value).__module__.startswith("hloom"):
                self._note(f"{type(value).__module__}.{type(value).__qualname__}", value)

    def _note(self, name: str, value: Any) -> None:
        self._seen[name] += 1
        if self._seen[name] not in (1, 5, 50, 500):
            return
        sys.setprofile(None)
        try:
            self.longest[name] = max(self.longest[name], len(repr(value)))
        except AttributeError:
            pass  # it lacks fields, because it is being made
        finally:
            sys.setprofile(self)


def test_representations_of_what_runs_are_short(tmp_path: Path) -> None:
    """Compiles, schedules, runs and checks an example."""
    watch = _Watch()
    before = sys.getprofile()
    for command in (("schedule",), ("run", "--check", "--backend", "native")):
        sys.setprofile(watch)
        try:
            outcome = run_command(command[0], NAMED, *command[1:], cwd=tmp_path)
        finally:
            sys.setprofile(before)
        assert outcome.code == 0, outcome.err
    assert {name: n for name, n in watch.longest.items() if n > LONGEST} == {}
    assert {name.split(".")[1] for name in watch.longest} >= {"ir", "passes", "cost", "codegen", "runtime", "report"}
    assert len(watch.longest) > 200


def test_a_leaf_of_a_long_program_shows_itself_alone() -> None:
    lines = [f"  x{n + 1} = f32[8] add(x{n}, x{n})" for n in range(200)]
    text = "HloModule m\nENTRY e {\n  x0 = f32[8] parameter(0), sharding={devices=[4]<=[4]}\n" + "\n".join(lines)
    module = hloom.parse(f"{text}\n  ROOT r = f32[8] negate(x200)\n}}")
    graph = solved(module, PassContext()).graph
    (leaf,) = graph.leaves[graph.relations[-1].instruction]
    assert repr(leaf).startswith("Leaf(shape=<Shape>, instruction=<r = f32[8] negate(x200)>, dims=<tuple of 1>")
    assert max(len(repr(x)) for x in (leaf, graph.relations[-1], leaf.causes[0][0])) <= 500


def test_messages_are_bounded() -> None:
    assert len(str(InternalError("x" * 100_000))) < 2100
    assert len(Diagnostic(Severity.REMARK, "x" * 100_000).render()) < 2100
    module = hloom.parse("HloModule m\nENTRY e { ROOT t = (" + ", ".join(["f32[]"] * 5000) + ") parameter(0) }")
    assert repr(module.entry.root).startswith("<t = (f32[], f32[], ")
    assert repr(module.entry.root).endswith("... parameter()>")
    assert len(repr(module.entry.root)) < 110
