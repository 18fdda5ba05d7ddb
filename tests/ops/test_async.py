"""Starts, updates and dones: what they accept, what XLA makes of them, and what they refuse."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.interfaces import has_result_hint
from hloom.ir.graph.op import find_op, op_named
from ops.samples_async import DERIVED, SAMPLES

_ALL = [*DERIVED, *dict.fromkeys(text for texts in SAMPLES.values() for text in texts)]


@pytest.mark.parametrize("text", _ALL)
def test_xla_reads_what_we_print(text: str) -> None:
    pytest.importorskip("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    printed = parse(text).to_text()
    assert parse(printed).to_text() == printed
    assert hlo.hlo_module_from_text(printed).to_string() == hlo.hlo_module_from_text(text).to_string()


@pytest.mark.parametrize("text", _ALL)
def test_shape_without_contexts_is_inferred(text: str) -> None:
    for instruction in parse(text).entry:
        op, operands = instruction.op, [o.shape for o in instruction.operands]
        if instruction.opcode.endswith("-start") and not has_result_hint(op):
            inferred = op.infer_shape(operands, instruction.attributes, None)
            parts = inferred.elements[:2] if inferred.is_tuple else (inferred,)
            done = parse(text).entry.root.shape
            assert any(part.compatible(done) for part in (inferred, *parts))


def body(lines: str) -> str:
    return (
        "HloModule m\nv { p = f32[8] parameter(0) ROOT z = f32[8] add(p, p) }\n"
        "w { p = f32[8] parameter(0) ROOT z = f32[8] add(p, p) }\nENTRY e { x = f32[8] parameter(0) " + lines + " }"
    )


_NEGATE = "s = ((f32[8]), f32[8], s32[]) negate-start(x) "
_CALL = "s = ((f32[8]), f32[8], s32[]) async-start(x), calls=v "


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (_NEGATE + "r = f32[8] abs-done(s)", "abs-done: the operand must be its abs-start, it is negate-start"),
        (_NEGATE + "r = f32[8] copy-done(s)", "copy-done: the operand must be its copy-start, it is negate-start"),
        ("t = (f32[8], f32[8]) tuple(x, x) r = f32[8] copy-done(t)", "must be its copy-start, it is tuple"),
        ("s = f32[8] negate-start(x)", r"negate-start: the result must be \(\(operands\), result, contexts..\)"),
        ("s = ((f32[8]), f32[9], s32[]) negate-start(x)", "declared shape .*f32.9.* but operands give"),
        ("s = ((f32[8]), f32[8]) add-start(x)", "add-start: takes 2 operands, found 1"),
        ("s = ((f32[7]), f32[8], s32[]) async-start(x), calls=w", "but operands give"),
        ("s = ((f32[8], f32[8]), f32[8]) async-start(x, x), calls=w", "takes 1 parameters, but gets 2"),
        (_CALL + "r = f32[8] async-done(s), calls=w", "async-done calls w, but its start calls v"),
        (_CALL + "r = f32[7] async-done(s)", r"async-done: declared shape f32\[7\] but operands give f32\[8\]"),
        (_CALL + "u = f32[8] async-update(s)", r"declared shape f32\[8\] but operands give \(\(f32\[8\]\)"),
        ("s = (f32[7], f32[8], u32[]) copy-start(x)", "but operands give"),
        ("s = f32[8] copy-start(x)", r"copy-start: the result must be \(result, operand, contexts..\)"),
        ("s = ((), f32[8]) constant-start()", "opcode 'constant-start' is not supported"),
        ("s = f32[8] negate-start-start(x)", "opcode 'negate-start-start' is not supported"),
        ("s = f32[8] what-done(x)", "opcode 'what-done' is not supported"),
    ],
)
def test_refusals(lines: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        parse(body(lines))


def test_opcodes_are_derived_once() -> None:
    assert find_op("negate-start") is op_named("negate-start")
    assert find_op("parameter-start") is None
    assert find_op("async-start-done") is None
    with pytest.raises(KeyError, match="nothing-done"):
        op_named("nothing-done")
