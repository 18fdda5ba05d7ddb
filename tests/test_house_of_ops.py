"""The house of ops: what ops say of themselves, and that others ask it instead of knowing them by name or class."""

from __future__ import annotations

import ast
import inspect

import hloom
import pytest
from support.import_graph import module_of, name_of, nodes_of
from support.op_tests import names_of, op_classes, op_tests
from support.opcode_comparisons import opcode_comparisons
from test_house import SOURCES

# Outside of ir/ops nobody compares opcodes, but for these files, which are about the words themselves.
ABOUT_OPCODES = {
    "frontends/hlo_text/instruction_reader.py": "words that stand where an opcode should",
    "frontends/proto/reader.py": "serialized modules have other opcodes for asynchronous ops than texts",
    "ir/tools/pattern.py": "a pattern names opcodes",
}

# Tests of the classes of ops and of attributes outside of ir/ops and local forms. The number may only fall.
TESTS_OF_OP_CLASSES = 118


def test_no_opcode_is_compared_outside_ops() -> None:
    found = {
        name_of(path): lines
        for path in SOURCES
        if not name_of(path).startswith("ir/ops/")
        and (lines := list(opcode_comparisons(nodes_of(path))))
    }
    assert {name: lines for name, lines in found.items() if name not in ABOUT_OPCODES} == {}
    assert set(ABOUT_OPCODES) <= set(found), "these compare none by now"


@pytest.mark.parametrize(
    "line", ['i.opcode == "a"', '"a" != opcode', "i.opcode in _NAMES", 'opcode not in ("a",)', 'i.opcode.endswith("a")']
)
def test_comparisons_of_opcodes_are_found(line: str) -> None:
    assert list(opcode_comparisons(ast.walk(ast.parse(line)))) == [1]


@pytest.mark.parametrize("line", ["i.opcode == other.opcode", "i.opcode in OPS", "HANDLERS.get(i.opcode)"])
def test_other_uses_of_opcodes_are_fine(line: str) -> None:
    assert list(opcode_comparisons(ast.walk(ast.parse(line)))) == []


def test_few_tests_name_classes_of_ops() -> None:
    classes, files = op_classes(SOURCES), {module_of(path): name_of(path) for path in SOURCES}
    others = [p for p in SOURCES if not name_of(p).startswith(("ir/ops/", "passes/spmd/local_forms/"))]
    found = [line for path in others for line in op_tests(nodes_of(path), names_of(path, classes, files))]
    assert len(found) == TESTS_OF_OP_CLASSES, "if there are fewer by now, lower the number"


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(i.op, Slice)", "issubclass(kind, Pad | Slice)", "isinstance(i.op, (Other, Pad))",
        "i.op.interface(Slice)", "match i.attributes:\n  case Slice(): pass",
    ],
)  # fmt: skip
def test_tests_of_op_classes_are_found(line: str) -> None:
    assert len(list(op_tests(ast.walk(ast.parse(line)), frozenset({"Pad", "Slice"})))) == 1


@pytest.mark.parametrize("line", ["isinstance(i.op, Other)", "i.op.interface(Movement)", "i.attributes_as(Slice)"])
def test_other_tests_are_fine(line: str) -> None:
    assert list(op_tests(ast.walk(ast.parse(line)), frozenset({"Pad", "Slice"}))) == []


def test_an_op_is_a_small_core() -> None:
    methods = [name for name, value in vars(hloom.Op).items() if inspect.isfunction(value)]
    assert len(hloom.Op.__annotations__) <= 12
    assert len(methods) <= 8
