"""Where a text leaves a result's shape out, it gets the layout that XLA infers from the layouts of operands.

For every op with samples: its operands get unusual layouts, all of them or one alone, and the roots of what it calls
too; the shape of the result is taken out of the text; XLA reads the same from this text and from our print of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hloom.frontends import parse
from hloom.ir.graph.dynamic_sizes import result_shape
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.interfaces import has_result_hint
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import ShapeError, op_named
from hloom.ir.types.shape import Layout, Shape, tuple_shape
from ops.test_samples import SAMPLES

_NAME = "the_result"
# XLA calls these results by the sizes that `dimensions` would be in its builder: no program means that.
_NONSENSE = {"broadcast"}
_OPCODES = sorted(op for op in SAMPLES if not has_result_hint(op_named(op)) and op not in _NONSENSE)


def _xla_line(text: str) -> str:
    hlo: Any = importlib.import_module("jaxlib._hlo")
    printed: str = hlo.hlo_module_from_text(text).to_string()
    return next(line for line in printed.splitlines() if f"%{_NAME} =" in line)


def _laid_out(shape: Shape, rest: str) -> Shape:
    """The shape with its dimensions in the opposite order, tiles, and `rest` in its layout."""
    if shape.is_tuple:
        return tuple_shape(tuple(_laid_out(e, rest) for e in shape.elements))
    if not shape.is_array:
        return shape
    layout = Layout(tuple(range(shape.rank)), ((8, 128),), rest) if shape.rank else Layout(None, (), rest)
    return replace(shape, layout=None if layout == Layout() else layout)


def _uses(module: Module) -> list[Instruction]:
    return [use for computation in module.computations for use in computation]


def _different_uses(opcode: str) -> Iterator[tuple[str, int]]:
    """Uses of the op with different kinds of operands: the text, and which instruction it is."""
    seen: set[tuple[Any, ...]] = set()
    for text in SAMPLES[opcode]:
        for number, use in enumerate(_uses(parse(text))):
            operands = [o.shape for o in use.operands]
            kinds = tuple((o.rank, o.is_tuple, o.element.bits < 8) for o in operands)
            if use.opcode != opcode or kinds in seen:
                continue
            try:
                inferred = result_shape(use.op, operands, use.attributes, None)
            except ShapeError:  # a scan of nothing must say how long it is
                continue
            if inferred.compatible(use.shape):
                seen.add(kinds)
                yield text, number


def _without_shape(module: Module, use: Instruction) -> str:
    assert use.parent is not None
    use.parent.rename(use, _NAME)
    head, text = f"%{_NAME} = {use.shape} {use.opcode}(", module.to_text()
    assert head in text
    return text.replace(head, f"%{_NAME} = {use.opcode}(")


def _texts(text: str, number: int) -> Iterator[str]:
    count = len(_uses(parse(text))[number].operands)
    for rest in ("", "S(1)"):
        for places in dict.fromkeys([tuple(range(count)), *((i,) for i in range(min(count, 3)))]):
            module = parse(text)
            use = _uses(module)[number]
            changed = [use.operands[place] for place in places]
            if len(places) == count:
                changed += [computation.root for computation in use.called()]
            for instruction in changed:
                instruction.shape = _laid_out(instruction.shape, rest)
            yield _without_shape(module, use)


@pytest.mark.share(3)
@pytest.mark.parametrize("opcode", _OPCODES)
def test_layout_is_the_one_of_xla(opcode: str) -> None:
    pytest.importorskip("jax")
    for text in (text for use in _different_uses(opcode) for text in _texts(*use)):
        try:
            theirs = _xla_line(text)
        except RuntimeError as error:
            if "infer shape" not in str(error):
                raise
            continue  # what we infer beyond XLA is our own affair
        assert _xla_line(parse(text).to_text()) == theirs


@pytest.mark.parametrize(
    ("element", "use"),
    [
        ("f32", "negate(a)"), ("c64", "abs(a)"), ("f32", "abs(a)"), ("f32", "add(a, a)"), ("s4", "add(a, a)"),
        ("pred", "and(a, a)"), ("s4", "compare(a, a), direction=LT"), ("s4", "transpose(a), dimensions={1,0}"),
    ],
)  # fmt: skip
def test_size_of_elements(element: str, use: str) -> None:
    pytest.importorskip("jax")
    text = f"ENTRY e {{\n a = {element}[4,2]{{0,1:E(4)S(2)}} parameter(0)\n ROOT {_NAME} = {use}\n}}"
    assert _xla_line(parse(text).to_text()) == _xla_line(text)


@pytest.mark.parametrize(
    ("a", "b", "c", "use"),
    [
        # floats of several types: the result has the highest precision or that of one operand, and the first's layout
        ("bf16[4,2]{0,1}", "f32[4,2]", "", "add(a, b)"),
        ("f16[4]", "bf16[4]", "", "add(a, b)"),
        ("f8e4m3fn[4]", "f8e5m2[4]", "", "multiply(a, b)"),
        ("f8e3m4[4]", "f8e4m3b11fnuz[4]", "", "add(a, b)"),
        ("f4e2m1fn[4,2]{0,1:E(4)}", "f32[4,2]", "", "add(a, b)"),
        ("f32[4]", "f64[4]", "", "compare(a, b), direction=LT"),
        ("f32[4]", "bf16[4]", "f16[]", "clamp(c, a, b)"),
        ("bf16[4]", "f32[4]", "f16[]", "clamp(c, a, b)"),
        ("bf16[4,2]", "f32[2]", "f16[2]", "batch-norm-training(a, b, c), epsilon=0.1, feature_index=1"),
        ("bf16[4]", "f32[2]", "", "concatenate(a, b), dimensions={0}"),
        ("bf16[4]{0:S(1)}", "f32[]", "", "pad(a, b), padding=1_1"),
        ("bf16[4,2]{0,1}", "f32[2,3]", "", "dot(a, b)"),
        # the elements of a select are as wide as those of its second operand
        ("pred[4,2]{0,1:S(3)}", "s4[4,2]{1,0:E(4)}", "s4[4,2]", "select(a, b, c)"),
        ("pred[4,2]{0,1:L(2)S(3)}", "s4[4,2]{1,0:E(4)}", "s4[4,2]", "select(a, b, c)"),
        ("pred[4,2]", "s4[4,2]{1,0:E(4)}", "s4[4,2]", "select(a, b, c)"),
        ("pred[2]", "bf16[2]", "f32[2]", "select(a, b, c)"),
        ("pred[4,2]{0,1:E(4)}", "s4[4,2]", "s4[4,2]{1,0:E(8)}", "select(a, b, c)"),
        # dynamic and unbounded dimensions
        ("f32[<=4]", "f32[4]", "f32[]", "clamp(a, b, c)"),
        ("f32[4]", "f32[<=4]", "f32[]", "clamp(a, b, c)"),
        ("f32[?,2]{0,1}", "f32[4,<=2]", "", "add(a, b)"),
        ("f32[?,2]{0,1}", "f32[?,2]{0,1}", "", "compare(a, b), direction=LT"),
        ("f32[?,2]{0,1:S(2)}", "", "", "negate(a)"),
        ("f32[?,<=2]{0,1}", "", "", "transpose(a), dimensions={1,0}"),
        ("f32[?,2]{0,1}", "", "", "reverse(a), dimensions={0}"),
        ("pred[]", "f32[?,2]{0,1}", "f32[4,2]", "select(a, b, c)"),
    ],
)  # fmt: skip
def test_shape_is_the_one_of_xla(a: str, b: str, c: str, use: str) -> None:
    pytest.importorskip("jax")
    lines = [f"{'abc'[n]} = {shape} parameter({n})" for n, shape in enumerate((a, b, c)) if shape]
    text = "\n".join(["ENTRY e {", *lines, f"ROOT {_NAME} = {use}", "}"])
    assert _xla_line(parse(text).to_text()) == _xla_line(text)


@pytest.mark.parametrize("shape", ["f32[<=3]{0:S(1)}", "(f32[<=3], f32[])"])
def test_constants_are_static(shape: str) -> None:
    pytest.importorskip("jax")
    values = "({1, 2, 3}, 4)" if shape.startswith("(") else "{1, 2, 3}"
    text = f"ENTRY e {{ {_NAME} = {shape} constant({values})\n ROOT r = tuple({_NAME}) }}"
    assert _xla_line(parse(text).to_text()) == _xla_line(text)
    nested = text.replace("tuple(", f"tuple({shape} constant({values}), ")
    assert _xla_line(parse(nested).to_text()) == _xla_line(nested)


@pytest.mark.parametrize("declared", ["f32[4]", "f32[<=4]", "f32[?]"])
@pytest.mark.parametrize("actual", ["f32[4]", "f32[<=4]", "f32[?]"])
def test_repeated_shapes_need_not_say_what_is_dynamic(declared: str, actual: str) -> None:
    pytest.importorskip("jax")
    text = f"""ENTRY e (a: {declared}) -> {declared} {{
  a = {actual} parameter(0)
  ROOT {_NAME} = {actual} negate({declared} a)
}}"""
    assert _xla_line(parse(text).to_text()) == _xla_line(text)


def test_built_instructions_have_no_layout() -> None:
    entry = parse("ENTRY e { ROOT a = f32[4,2]{0,1} parameter(0) }").entry
    assert entry.build("negate", entry.root).shape.layout is None
    assert entry.add("negate", [entry.root]).shape.layout is None
