"""Dynamic dimensions: result shapes as XLA infers them, values at sizes below the bound, and what is refused."""

# jaxlib's internal modules have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.runtime import evaluate

BEFORE = """
f { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
lt { p.0.lhs = f32[] parameter(0) p.0.rhs = f32[] parameter(1) ROOT r = pred[] compare(p.0.lhs, p.0.rhs), direction=LT }
ge { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }
n { a = f32[] parameter(0) ROOT r = f32[] negate(a) }
"""
_X = "f32[<=8,4]"
_ROWS = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"
_SCATTER = "inserted_window_dims={0}, update_window_dims={1}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
_IMAGE = "window={size=3x3}, dim_labels=b01f_01io->b01f"
_DOT = "dot(p0, p1), lhs_contracting_dims"
_NORM = "epsilon=0.1, feature_index=1"

# Shapes of the operands, and an op whose result shape XLA infers too.
INFERRED: list[tuple[str, str]] = [
    (_X, "negate(p0)"),
    (f"{_X} f32[8,4]", "add(p0, p1)"),
    (f"f32[8,4] {_X}", "compare(p0, p1), direction=EQ"),
    (f"pred[8,4] {_X} f32[8,4]", "select(p0, p1, p2)"),
    (f"f32[] {_X} f32[]", "clamp(p0, p1, p2)"),
    (f"{_X} f32[4,5]", f"{_DOT}={{1}}, rhs_contracting_dims={{0}}"),
    (f"{_X} f32[<=8,5]", f"{_DOT}={{0}}, rhs_contracting_dims={{0}}"),
    ("f32[<=2,3,<=4] f32[2,<=4,<=5]",
     f"{_DOT}={{2}}, rhs_contracting_dims={{1}}, lhs_batch_dims={{0}}, rhs_batch_dims={{0}}"),
    (_X, "reduce(p0, z), dimensions={1}, to_apply=f"),
    (_X, "reduce(p0, z), dimensions={0}, to_apply=f"),
    (_X, "transpose(p0), dimensions={1,0}"),
    (_X, "reverse(p0), dimensions={0}"),
    (f"{_X} f32[8,3]", "concatenate(p0, p1), dimensions={1}"),
    (f"{_X} f32[3,4]", "concatenate(p0, p1), dimensions={0}"),
    (f"f32[8,4] {_X}", "concatenate(p0, p1), dimensions={0}"),
    (_X, "pad(p0, z), padding=1_1x0_0"),
    (_X, "pad(p0, z), padding=0_0x1_0"),
    (_X, "pad(p0, z), padding=0_0_1x0_0"),
    (_X, "sort(p0), dimensions={0}, to_apply=lt"),
    (_X, "sort(p0), dimensions={1}, to_apply=lt"),
    (_X, "reduce-window(p0, z), window={size=2x1}, to_apply=f"),
    (_X, "reduce-window(p0, z), window={size=1x2}, to_apply=f"),
    (f"{_X} f32[7,4]", "select-and-scatter(p0, p1, z), window={size=2x1}, select=ge, scatter=f"),
    (_X, "map(p0), dimensions={0,1}, to_apply=n"),
    (f"{_X} s32[3]", f"gather(p0, p1), {_ROWS}, slice_sizes={{1,4}}"),
    ("f32[8,4] s32[<=3]", f"gather(p0, p1), {_ROWS}, slice_sizes={{1,4}}"),
    ("f32[8,<=4] s32[3]", f"gather(p0, p1), {_ROWS}, slice_sizes={{1,4}}"),
    ("f32[8,<=4] s32[3]", f"gather(p0, p1), {_ROWS}, slice_sizes={{1,2}}"),
    (f"{_X} s32[<=3] f32[<=3,4]", f"scatter(p0, p1, p2), {_SCATTER}, to_apply=f"),
    ("f32[8,4] s32[<=3] f32[<=3,4]", f"scatter(p0, p1, p2), {_SCATTER}, to_apply=f"),
    ("f32[<=2,8,8,3] f32[3,3,3,5]", f"convolution(p0, p1), {_IMAGE}"),
    ("f32[2,<=8,8,3] f32[3,3,3,5]", f"convolution(p0, p1), {_IMAGE}"),
    ("f32[2,8,8,<=3] f32[3,3,3,5]", f"convolution(p0, p1), {_IMAGE}"),
    (_X, "fft(p0), fft_type=RFFT, fft_length={4}"),
    ("f32[<=3,4,4]", "cholesky(p0)"),
    (f"{_X} f32[4] f32[4]", f"batch-norm-training(p0, p1, p2), {_NORM}"),
    (f"{_X} f32[4] f32[4] f32[4] f32[4]", f"batch-norm-inference(p0, p1, p2, p3, p4), {_NORM}"),
    (_X, "topk(p0), k=2, largest=true"),
    (f"{_X} f32[4,5] s32[2]",
     "ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"),
    (_X, "get-dimension-size(p0), dimensions={0}"),
    (_X, "tuple(p0)"),
    (f"pred[] {_X}", "select(p0, p1, p1)"),
]  # fmt: skip
# Where the result shape is written, as it must be, and XLA believes it.
DECLARED = [
    ("f32[<=8]", "f32[<=8,4] broadcast(p0), dimensions={0}"),
    (_X, "f32[<=32] reshape(p0)"),
    (_X, "f32[<=8,1,4] reshape(p0), inferred_dimension=0"),
    (_X, "s32[<=8,4] convert(p0)"),
    (_X, "s32[<=8,4] bitcast-convert(p0)"),
    (_X, "f32[<=8,8] all-gather(p0), dimensions={1}, replica_groups={{0,1}}"),
    (_X, "f32[<=8,2] reduce-scatter(p0), dimensions={1}, replica_groups={{0,1}}, to_apply=f"),
    (_X, "f32[<=8,4] collective-permute(p0), source_target_pairs={{0,0}}"),
    (_X, "((f32[<=8,4]), f32[4,<=8]) transpose-start(p0), dimensions={1,0}"),
]


def program(shapes: str, line: str) -> str:
    parameters = "\n".join(f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes.split()))
    return f"HloModule m\n{BEFORE}ENTRY e {{\n{parameters}\n  z = f32[] constant(0)\n  ROOT root = {line}\n}}"


@pytest.mark.parametrize(("shapes", "line"), [*INFERRED, *DECLARED])
def test_shapes_are_those_of_xla(shapes: str, line: str) -> None:
    pytest.importorskip("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    text = program(shapes, line)
    printed: str = hlo.hlo_module_from_text(text).to_string()
    found = re.search(r"ROOT %root = (\(.*\)|\S+) [a-z\-]+\(", printed)
    assert found is not None
    theirs = parse(f"ENTRY e {{ ROOT p = {found[1]} parameter(0) }}").entry.root.shape
    assert str(parse(text).entry.root.shape.without_layout()) == str(theirs.without_layout())


# One operand, of which the first 3 of 8 rows are there.
BELOW = [
    "negate(x)", "add(x, x)", "compare(x, x), direction=EQ", "transpose(x), dimensions={1,0}",
    "reverse(x), dimensions={0}", "concatenate(x, x), dimensions={1}", "concatenate(x, x), dimensions={0}",
    "reduce(x, z), dimensions={0}, to_apply=f", "reduce(x, z), dimensions={1}, to_apply=f",
    "sort(x), dimensions={0}, to_apply=lt", "dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "reduce-window(x, z), window={size=2x1}, to_apply=f", "pad(x, z), padding=1_2x0_0", "s32[<=8,4] convert(x)",
    "get-dimension-size(x), dimensions={0}",
]  # fmt: skip
_SET = "n = s32[] constant(3)\n  x = f32[<=8,4] set-dimension-size(p0, n), dimensions={0}\n  ROOT root"


@pytest.mark.parametrize("line", BELOW)
def test_values_below_the_bound(line: str) -> None:
    """The same as of an array that has only the elements that are there."""
    array = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    (found,) = evaluate(parse(program("f32[8,4]", line).replace("ROOT root", _SET)), [array])
    small = program("f32[3,4]", re.sub(r"\bx\b", "p0", line).replace("<=8", "3"))
    (wanted,) = evaluate(parse(small), [array[:3]])
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add(x, p0)", "add root: add: operand shapes differ: f32[3,4] and f32[8,4]"),
        ("f32[<=32] reshape(x)", "reshape root: f32[<=8,4] must have its full size, found [3, 4]"),
        ("f32[<=8,4,2] broadcast(x), dimensions={0,1}", "broadcast root: an operand of size [3, 4]"),
        ("slice(x), slice={[0:5],[0:4]}", "slice"),
    ],
)
def test_what_cannot_be_evaluated_below_the_bound(line: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        evaluate(parse(program("f32[8,4]", line).replace("ROOT root", _SET)), [np.zeros((8, 4), np.float32)])
    assert message in str(error.value)


def test_at_the_bound_everything_is_evaluated() -> None:
    array = np.arange(32, dtype=np.float32).reshape(8, 4)
    for line in ("f32[<=32] reshape(x)", "f32[<=8,4,2] broadcast(x), dimensions={0,1}"):
        text = program("f32[8,4]", line).replace("ROOT root", _SET.replace("constant(3)", "constant(8)"))
        (found,) = evaluate(parse(text), [array])
        assert found.reshape(8, 4, -1)[:, :, 0].tolist() == array.tolist()


STATIC = """ENTRY e {
  x = f32[8] parameter(0)
  n = s32[] parameter(1)
  d = f32[<=8] set-dimension-size(x, n), dimensions={0}
  ROOT r = f32[8] negate(d)
}
"""


def test_results_that_are_called_static() -> None:
    """XLA believes the declaration; what the elements beyond the size are, nobody says."""
    module = parse(STATIC)
    assert parse(module.to_text()).to_text() == module.to_text()
    with pytest.raises(CompileError, match="negate: the result is declared static") as error:
        evaluate(module, [np.zeros(8, np.float32), np.array(3, np.int32)])
    assert error.value.diagnostics[0].line == 5


def test_results_of_which_one_dimension_is_called_static() -> None:
    text = STATIC.replace("[8]", "[8,4]").replace("[<=8]", "[<=8,4]")
    more = "e = f32[<=8,<=4] set-dimension-size(d, n), dimensions={1}\n  ROOT r = f32[<=8,4] negate(e)"
    module = parse(text.replace("ROOT r = f32[8,4] negate(d)", more))
    with pytest.raises(CompileError, match="negate: the result is declared static"):
        evaluate(module, [np.zeros((8, 4), np.float32), np.array(3, np.int32)])


def test_static_results_of_other_sizes_are_errors() -> None:
    with pytest.raises(CompileError, match="declared shape"):
        parse(STATIC.replace("r = f32[8]", "r = f32[7]"))
