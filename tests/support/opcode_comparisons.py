"""Where a source file compares an opcode with text: in place of `op.role`, of a class of ops, or of attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import pairwise

REGISTRIES = {"OPS"}  # whether an opcode is in these is a question about the table, not about the op


def opcode_comparisons(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """The lines of `opcode == "x"`, `i.opcode in NAMES`, `match opcode` and `opcode.startswith("x")`."""
    for node in nodes:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                if any(map(_compares, pairwise(sides), node.ops)):
                    yield node.lineno
            case ast.Match(subject=subject) if _is_opcode(subject):
                yield subject.lineno
            case ast.Call(ast.Attribute(value, "startswith" | "endswith"), [name]):
                if _is_opcode(value) and _is_text(name):
                    yield node.lineno
            case _:
                pass


def _compares(sides: tuple[ast.expr, ast.expr], how: ast.cmpop) -> bool:
    left, right = sides
    if isinstance(how, ast.In | ast.NotIn):
        return _is_opcode(left) and not (isinstance(right, ast.Name) and right.id in REGISTRIES)
    return (_is_opcode(left) and _is_text(right)) or (_is_opcode(right) and _is_text(left))


def _is_opcode(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "opcode"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
