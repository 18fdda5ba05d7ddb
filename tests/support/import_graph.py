"""Which source file of the package imports which: on import, in a function, by a late name, or for type checkers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hloom.ir.gc_pause import paused_collector

ROOT = Path(__file__).parents[2]

LATE_NAME = re.compile(r"[a-z_]+(\.[a-z_0-9]+)*:[A-Za-z_]\w*")
Graph = Mapping[str, frozenset[str]]  # path of a file, as `ir/graph/op.py`, to those it imports


@cache
def name_of(path: Path) -> str:
    """The path of a file of the repository as the tables of the tests have it."""
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    with paused_collector():  # else it walks the trees of all other files, again and again
        return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a file."""
    with paused_collector():
        return tuple(ast.walk(parsed(path)))


@cache
def own_imports(path: Path) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Line and parts of each module that a relative import may mean: `from .op import A` is `op`, or `op.A`. Late names
    (`ir/late.py`) are imports, too.
    """
    return (*((line, parts) for line, _, parts in _own_names(path)), *_late_names(path))


def _late_names(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and LATE_NAME.fullmatch(node.value):
            module, _, name = node.value.partition(":")
            parts = (*module.replace("jax.", "with_jax.").split("."), name)
            if (ROOT / parts[0]).is_dir():
                yield node.lineno, parts


def _own_names(path: Path) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yields line, name and parts of each name that a relative import binds."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= len(package) + 1, f"{name_of(path)}:{node.lineno} leaves the package"
            base = package[: len(package) - node.level + 1]
            module = tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, (*base, *module, alias.name)


def import_graph(sources: Sequence[Path]) -> Graph:
    """The graph of the relative imports among these files."""
    files = {module_of(path): name_of(path) for path in sources}
    return {
        name_of(path): frozenset(
            files[found]
            for _, parts in own_imports(path)
            for found in [parts if parts in files else parts[:-1]]
            if found in files and files[found] != name_of(path)
        )
        for path in sources
    }


def module_of(path: Path) -> tuple[str, ...]:
    """The dotted name of a file of the package, as its parts."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def room_of(name: str) -> str:
    """The folder of a file, as the tables have it; the root's own files are `.`."""
    return Path(name).parent.as_posix()


def rooms(graph: Graph) -> Graph:
    """The graph of folders: one imports another if a file of it does."""
    found: dict[str, set[str]] = {room_of(name): set() for name in graph}
    for name, imported in graph.items():
        found[room_of(name)] |= {room_of(other) for other in imported} - {room_of(name)}
    return {room: frozenset(others) for room, others in found.items()}


def without(graph: Graph, arrows: Mapping[tuple[str, str], str]) -> Graph:
    """The graph without these arrows, given as (importer, imported)."""
    return {name: frozenset(o for o in others if (name, o) not in arrows) for name, others in graph.items()}


def circles(graph: Graph) -> list[list[str]]:
    """The groups of names that reach each other (strongly connected components of more than one), by Kosaraju."""
    order = _finished(graph, sorted(graph), set())
    backwards: dict[str, set[str]] = {name: set() for name in graph}
    for name, others in graph.items():
        for other in others:
            backwards.setdefault(other, set()).add(name)
    seen: set[str] = set()
    found: list[list[str]] = []
    for start in reversed(order):
        group = _finished(backwards, [start], seen)
        if len(group) > 1:
            found.append(sorted(group))
    return sorted(found, key=lambda group: (-len(group), group))


def _finished(graph: Mapping[str, frozenset[str] | set[str]], starts: list[str], seen: set[str]) -> list[str]:
    """The names reached from these and not seen before, in the order in which a search by depth leaves them."""
    order: list[str] = []
    stack = [(start, False) for start in reversed(starts)]
    while stack:
        name, is_done = stack.pop()
        if is_done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            stack += [(name, True), *((other, False) for other in sorted(graph.get(name, ())))]
    return order


@dataclass(frozen=True)
class Place:
    """A name at the top level of a file; the empty name is the module itself."""

    file: str
    name: str


def imported_places(path: Path, files: Mapping[tuple[str, ...], str]) -> dict[str, Place]:
    """The places of the package that the names mean which a file imports; `files` are those of all modules."""
    found: dict[str, Place] = {}
    for _, name, parts in _own_names(path):
        if parts in files:
            found[name] = Place(files[parts], "")
        elif parts[:-1] in files:
            found[name] = Place(files[parts[:-1]], parts[-1])
    return found
