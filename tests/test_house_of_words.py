"""The house of words: docstrings in plain English, names that are used once, and tests that replace nothing."""

from __future__ import annotations

import argparse
import ast
import builtins
import pickle
import re
from collections import Counter

import pytest
from support.import_graph import ROOT, name_of, nodes_of, parsed
from test_house import SOURCES, files_of

MOST_SHARED_STEMS = 10  # names of several files of one part

SHARED_NAMES = {"Exchange", "Program", "ReshardPlan", "Rows"}  # of two classes each

# A docstring begins with a verb or with the name of the thing, not with a clause or in the middle of a sentence, and
# has no clause in place of a noun: not "the order of what it calls" but "the order of its callees".
_CLAUSE = re.compile(
    r"(?:(?:\w+ )?[Ww]hat|Of (?:a|an|the|all)|So|That|How (?:many|much|often))\b"
    r"|.*\b(?:about|after|as|at|before|behind|beside|by|for|from|in|into|of|on|than|to|with) what\b"
)


def test_docstrings_are_plain() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                wrong += [f"{name_of(path)}: {text.splitlines()[0]}"] if _CLAUSE.match(" ".join(text.split())) else []
    assert wrong == []


@pytest.mark.parametrize("text", ["What it calls.", "Returns what it calls.", "The order of what it calls."])
def test_clauses_in_docstrings_are_found(text: str) -> None:
    assert _CLAUSE.match(text)
    assert not _CLAUSE.match("Returns the order of its callees, and says what changed.")


_RAISED = re.compile(r"\b[Rr]aises (?:\w+\.)?([A-Z]\w+)")


def test_docstrings_name_exceptions_that_exist() -> None:
    """A docstring that says `Raises NAME` names an exception of the package or of Python."""
    bases = {node.name: [ast.unparse(base).split(".")[-1] for base in node.bases]
             for path in SOURCES for node in nodes_of(path) if isinstance(node, ast.ClassDef)}  # fmt: skip
    of_python = {**vars(argparse), **vars(pickle), **vars(builtins)}

    def is_exception(name: str) -> bool:
        known = of_python.get(name)
        is_one = isinstance(known, type) and issubclass(known, BaseException)
        return is_one or any(map(is_exception, bases.get(name, ())))

    texts = [(name_of(path), ast.get_docstring(node) or "") for path in SOURCES for node in nodes_of(path)
             if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]  # fmt: skip
    named = [(file, name) for file, text in texts for name in _RAISED.findall(text)]
    assert len(named) > 300
    assert [(file, name) for file, name in named if not is_exception(name)] == []


def test_names_of_files_are_used_once_in_a_part() -> None:
    """A file is found by its name. Two of a name in one part are few, the like in rooms that do the like."""
    found: dict[str, Counter[str]] = {}
    for path in SOURCES:
        if path.stem != "__init__":
            found.setdefault(path.relative_to(ROOT).parts[0], Counter())[path.stem] += 1
    shared = {part: sorted(stem for stem, count in stems.items() if count > 1) for part, stems in found.items()}
    assert {part: stems for part, stems in shared.items() if len(stems) > MOST_SHARED_STEMS} == {}


def test_names_of_classes_are_used_once() -> None:
    """A class is found by its name. Two of a name are few, and each is public or a term of two fields."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name_of(path))
    assert {name for name, files in found.items() if len(files) > 1} == SHARED_NAMES


# Attributes that tests replace, because what they need has no seam: what other packages and the system offer, mistakes
# that no input brings about, and few more. The number may only fall.
PATCHES = 19


def test_patches_are_few() -> None:
    """`monkeypatch.setattr`, `setattr` and `mock.patch` in tests; not dicts, such as the environment."""
    files = [path for path in files_of(("tests",), (".py",)) if re.search(r"setattr|mock", path.read_text())]
    nodes = [(path, node) for path in files for node in nodes_of(path)]
    found = [(name_of(path), ast.unparse(node.func)) for path, node in nodes if isinstance(node, ast.Call)]
    found = [f for f in found if re.search(r"(^|\.)setattr$|^mock\.patch(?!\.dict)", f[1])]
    assert len(found) == PATCHES, found
