"""Finds tables that other modules fill: they are incomplete until somebody happens to import those.

Two ways are found: a change of an imported table (`TABLE[name] = x`, `module.TABLE.append(x)`), and, while a module is
imported, a call or a decorator that is a function of another module which changes a table of its own, directly or by
calling others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .import_graph import Place

_CHANGING = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault",
     "update")
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A file: its statements, and the places in other files that its names mean."""

    name: str
    body: Sequence[ast.stmt]
    imported: Mapping[str, Place]

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        return [node for statement in self.body for node in ast.walk(statement)]

    @cached_property
    def functions(self) -> Mapping[str, ast.FunctionDef]:
        return {node.name: node for node in self.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def tables(self) -> frozenset[str]:
        """The names that the module assigns at its top level."""
        plain = (t for node in self.body if isinstance(node, ast.Assign) for t in node.targets)
        typed = (node.target for node in self.body if isinstance(node, ast.AnnAssign))
        return frozenset(t.id for t in (*plain, *typed) if isinstance(t, ast.Name))

    def place(self, node: ast.expr) -> Place | None:
        """The place that an expression names: a function of this file, or anything of another one. An attribute of an
        object stands for the object.
        """
        if isinstance(node, ast.Name):
            return Place(self.name, node.id) if node.id in self.functions else self.imported.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        place = self.place(node.value)
        return place if place is None or place.name else Place(place.file, node.attr)


def pushed_tables(sources: Sequence[Source]) -> Iterator[tuple[str, int, Place]]:
    """Yields file, line, and the table or function of another file, for all places where one file fills another's."""
    pushing = _pushing(sources)
    for source in sources:
        for line, changed in _changes(source.nodes):
            place = source.place(changed)
            if place is not None and place.name and place.file != source.name:
                yield source.name, line, place
        for called in _called_on_import(source.body):
            place = source.place(called)
            if place in pushing and place.file != source.name:
                yield source.name, called.lineno, place


def _changes(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, ast.expr]]:
    """Yields line and expression of the objects that statements or calls change."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            yield node.lineno, node.func.value
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else ()
        targets = (node.target,) if isinstance(node, ast.AugAssign) else targets
        yield from ((target.lineno, target.value) for target in targets if isinstance(target, ast.Subscript))


def _pushing(sources: Sequence[Source]) -> set[Place]:
    """The functions that change a table of their own module, and those that call them."""
    found: set[Place] = set()
    callers: dict[Place, list[Place]] = {}
    for source in sources:
        for name, function in source.functions.items():
            nodes, place = list(ast.walk(function)), Place(source.name, name)
            if any(isinstance(e, ast.Name) and e.id in source.tables for _, e in _changes(nodes)):
                found.add(place)
            for callee in (source.place(node.func) for node in nodes if isinstance(node, ast.Call)):
                if callee is not None:
                    callers.setdefault(callee, []).append(place)
    waiting = list(found)
    while waiting:
        more = set(callers.get(waiting.pop(), ())) - found
        found |= more
        waiting += more
    return found


def _called_on_import(body: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yields the functions that statements call as they run: not those in bodies of functions, but decorators."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
        if isinstance(node, ast.Call):
            yield node.func
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            yield from _called_on_import(list(ast.iter_child_nodes(node)))
