"""Where a source file tests the class of an op or of its attributes, as in `isinstance(i.op, Slice)`.

Such a test names the ops that its author knew. Most can ask what is meant instead: an interface of the op, its role, or
a function of the file that defines the op.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from .import_graph import Place, imported_places, module_of, name_of, parsed

_BASES = {("ir/graph/op.py", "Op"), ("ir/graph/attributes.py", "Attributes")}


def op_classes(sources: Sequence[Path]) -> frozenset[Place]:
    """Returns the classes of ops and of attributes that these files define."""
    files = {module_of(path): name_of(path) for path in sources}
    bases: dict[Place, list[Place]] = {}
    for path in sources:
        names = imported_places(path, files)
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                own = [Place(name_of(path), node.name)]
                called = [b.value if isinstance(b, ast.Subscript) else b for b in node.bases]
                places = [names.get(b.id, Place(name_of(path), b.id)) for b in called if isinstance(b, ast.Name)]
                bases[own[0]] = places
    found = {place for place in bases if (place.file, place.name) in _BASES}
    while more := {place for place, of in bases.items() if found.intersection(of)} - found:
        found |= more
    return frozenset(found)


def names_of(path: Path, classes: frozenset[Place], files: Mapping[tuple[str, ...], str]) -> frozenset[str]:
    """Returns the names by which a file knows these classes, also those of tuples of them at its top level."""
    own = {place.name: place for place in classes if place.file == name_of(path)}
    known = {name for name, place in (imported_places(path, files) | own).items() if place in classes}
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and _names_in(node.value) & known:
            known |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(known)


def op_tests(nodes: Iterable[ast.AST], known: frozenset[str]) -> Iterator[int]:
    """Yields the lines that test for a class of one of these names."""
    for node in nodes:
        match node:
            case ast.Call(ast.Name("isinstance" | "issubclass"), [_, kinds]) if _names_in(kinds) & known:
                yield node.lineno
            case ast.Call(ast.Attribute(_, "interface"), [kind]) if _names_in(kind) & known:
                yield node.lineno
            case ast.MatchClass(cls) if _names_in(cls) & known:
                yield cls.lineno
            case _:
                pass


def _names_in(node: ast.expr) -> set[str]:
    """Returns the names of a class, a tuple or a union of classes; none for other expressions."""
    match node:
        case ast.Name(name):
            return {name}
        case ast.Tuple(parts):
            return set[str]().union(*map(_names_in, parts))
        case ast.BinOp(left, ast.BitOr(), right):
            return _names_in(left) | _names_in(right)
        case _:
            return set()
