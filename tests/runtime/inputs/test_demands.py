"""What programs demand of their inputs, and that inputs drawn accordingly give finite numbers."""

from __future__ import annotations

import warnings
from math import inf
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module
from hloom.ir.graph.value_range import NOT_NEGATIVE, POSITIVE, Columns, Demand, Range
from hloom.runtime.inputs.demands import input_demands
from hloom.runtime.inputs.inputs import inputs_for_module
from support.op_samples import all_samples, few

EXAMPLES = Path(__file__).parents[3] / "examples"
closed = Range.closed
UNIT_RIGHT_OPEN = Range((-inf, 0), (1.0, -1))

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def program(lines: str, others: str = "") -> Module:
    """The module whose entry has these lines, the last one as root; `others` are computations before it."""
    head, _, last = lines.strip().rpartition("\n")
    return hloom.parse(f"HloModule m\n{others}ENTRY e {{\n{head}\nROOT {last.strip()}\n}}\n")


def demanded(lines: str, others: str = "") -> list[Demand]:
    return input_demands(program(lines, others))


X = "x = f32[8] parameter(0)\n"
UNARY: list[tuple[str, Demand]] = [
    ("r = f32[8] sqrt(x)", NOT_NEGATIVE),
    ("r = f32[8] rsqrt(x)", POSITIVE),
    ("r = f32[8] log(x)", POSITIVE),
    ("r = f32[8] log-plus-one(x)", Range((-1.0, 1))),
    ("r = f32[8] atanh(x)", Range((-1.0, 1), (1.0, -1))),
    ("r = f32[8] acos(x)", closed(-1, 1)),
    ("r = f32[8] tanh(x)", None),
    ("n = f32[8] negate(x)\nr = f32[8] log-plus-one(n)", UNIT_RIGHT_OPEN),
    ("a = f32[8] abs(x)\nr = f32[8] sqrt(a)", None),
    ("a = f32[8] exponential(x)\nr = f32[8] log(a)", None),
    ("m = f32[8] multiply(x, x)\nr = f32[8] sqrt(m)", None),
    ("s = f32[8] sqrt(x)\nr = f32[8] log(s)", POSITIVE),
    ("b = bf16[8] convert(x)\nt = bf16[2,4] reshape(b)\nr = bf16[2,4] rsqrt(t)", POSITIVE),
    ("r = f32[8] divide(x, x)", POSITIVE),
    ("i = s32[8] convert(x)\nk = s32[8] constant({1,1,1,1,1,1,1,1})\nr = s32[8] xor(i, k)", None),
]


@pytest.mark.parametrize(("lines", "wanted"), UNARY)
def test_functions_have_domains(lines: str, wanted: Demand) -> None:
    assert demanded(X + lines) == [wanted]


WITH_CONSTANT: list[tuple[str, str, Demand]] = [
    ("1", "a = f32[] subtract(c, x)\nr = f32[] log(a)", UNIT_RIGHT_OPEN),
    ("3", "a = f32[] add(x, c)\nr = f32[] sqrt(a)", Range((-3.0, 0))),
    ("4", "a = f32[] multiply(x, c)\ns = f32[] subtract(c, a)\nr = f32[] log(s)", UNIT_RIGHT_OPEN),
    ("-4", "a = f32[] multiply(c, x)\nr = f32[] rsqrt(a)", Range((-inf, 0), (0.0, -1))),
    ("2", "a = f32[] divide(x, c)\nr = f32[] acosh(a)", Range((2.0, 0))),
    ("0.5", "r = f32[] power(x, c)", NOT_NEGATIVE),
    ("3", "r = f32[] power(x, c)", None),
    ("-1", "r = f32[] power(x, c)", POSITIVE),
    ("0", "a = f32[] maximum(x, c)\nr = f32[] sqrt(a)", None),
    ("1", "m = f32[] multiply(x, x)\na = f32[] subtract(c, m)\nr = f32[] log(a)", Range((-1.0, 1), (1.0, -1))),
    ("0.1", "a = f32[] multiply(c, x)\nm = f32[] multiply(a, x)\nr = f32[] sqrt(m)", None),
]


@pytest.mark.parametrize(("constant", "lines", "wanted"), WITH_CONSTANT)
def test_arithmetic_with_constants(constant: str, lines: str, wanted: Demand) -> None:
    assert demanded(f"x = f32[] parameter(0)\nc = f32[] constant({constant})\n{lines}") == [wanted]


def test_second_moments_of_adam_are_not_negative_and_nothing_else_is_changed() -> None:
    """As hand-written code has it, `b2 * v + (1 - b2) * g * g`, with bias correction by a count."""
    lines = """v = f32[] parameter(0)
        m = f32[] parameter(1)
        g = f32[] parameter(2)
        count = s32[] parameter(3)
        b = f32[] constant(0.99)
        c = f32[] constant(0.01)
        one = s32[] constant(1)
        step = s32[] add(count, one)
        t = f32[] convert(step)
        e = f32[] power(b, t)
        f = f32[] constant(1)
        d = f32[] subtract(f, e)
        bv = f32[] multiply(b, v)
        cg = f32[] multiply(c, g)
        cgg = f32[] multiply(cg, g)
        s = f32[] add(bv, cgg)
        h = f32[] divide(s, d)
        q = f32[] sqrt(h)
        eps = f32[] constant(1e-8)
        n = f32[] add(q, eps)
        r = f32[] divide(m, n)"""
    assert demanded(lines) == [NOT_NEGATIVE, None, None, Range((0.0, 0))]


INDEX = "x = f32[10,6] parameter(0)\n"
INDEXING: list[tuple[str, Demand]] = [
    (
        "i = s32[4] parameter(1)\nr = f32[4,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}",
        closed(0, 9),
    ),
    (
        "i = s32[4,2] parameter(1)\nr = f32[4] gather(x, i), offset_dims={}, collapsed_slice_dims={0,1}, "
        "start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}",
        Columns(1, (closed(0, 9), closed(0, 5))),
    ),
    (
        "i = s32[4,1] parameter(1)\nk = s32[4,1] iota(), iota_dimension=0\nj = s32[4,2] concatenate(k, i), "
        "dimensions={1}\nr = f32[4] gather(x, j), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, "
        "index_vector_dim=1, slice_sizes={1,1}",
        closed(0, 5),
    ),
    (
        "i = s32[] parameter(1)\nz = s32[] constant(0)\nn = s32[] constant(10)\nl = pred[] compare(i, z), "
        "direction=LT\nm = s32[] add(i, n)\nj = s32[] select(l, m, i)\n"
        "r = f32[3,6] dynamic-slice(x, j, z), dynamic_slice_sizes={3,6}",
        closed(0, 7),
    ),
    (
        "i = s32[] parameter(1)\nz = s32[] constant(0)\nu = f32[1,6] slice(x), slice={[0:1], [0:6]}\n"
        "r = f32[10,6] dynamic-update-slice(x, u, i, z)",
        closed(0, 9),
    ),
    (
        "i = s32[3] parameter(1)\nu = f32[3,6] slice(x), slice={[0:3], [0:6]}\nr = f32[10,6] scatter(x, i, u), "
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=add",
        closed(0, 9),
    ),
    (
        "i = s32[3] parameter(1)\nb = s32[3,10] broadcast(i), dimensions={0}\nk = s32[3,10] iota(), "
        "iota_dimension=1\nr = pred[3,10] compare(b, k), direction=EQ",
        closed(0, 9),
    ),
    (
        "i = s32[] parameter(1)\nz = s32[] constant(0)\nn = s32[] constant(9)\nj = s32[] clamp(z, i, n)\n"
        "r = f32[1,6] dynamic-slice(x, j, z), dynamic_slice_sizes={1,6}",
        closed(0, 9),
    ),
    (
        "i = s32[] parameter(1)\nz = s32[] constant(0)\nk = s32[] constant(2)\nj = s32[] multiply(i, k)\n"
        "r = f32[2,6] dynamic-slice(x, j, z), dynamic_slice_sizes={2,6}",
        closed(0, 4),
    ),
    ("i = s32[] parameter(1)\nr = s32[] negate(i)", None),
    ("i = u64[2] parameter(1)\nr = (u64[2], u32[4]) rng-bit-generator(i), algorithm=rng_default", closed(0, 2.0**64)),
    ("i = u32[] parameter(1)\nk = u32[] constant(13)\nr = u32[] shift-left(i, k)", closed(0, 2.0**32 - 1)),
]


@pytest.mark.parametrize(("lines", "wanted"), INDEXING)
def test_indices_and_bits(lines: str, wanted: Demand) -> None:
    assert demanded(INDEX + lines, ADD) == [None, wanted]


CALLS: list[tuple[str, str]] = [
    ("f { p = f32[] parameter(0)\n ROOT q = f32[] log(p) }\n", "r = f32[] call(x), to_apply=f"),
    ("f { p = f32[] parameter(0)\n ROOT q = f32[] log(p) }\n", "r = f32[] fusion(x), kind=kLoop, calls=f"),
    (
        "f { p = f32[] parameter(0)\n ROOT q = f32[] log(p) }\n",
        "s = ((f32[]), f32[], u32[]) async-start(x), calls=f\nr = f32[] async-done(s)",
    ),
    ("", "s = ((f32[]), f32[], u32[]) log-start(x)\nr = f32[] log-done(s)"),
    ("", "t = (f32[], f32[]) tuple(x, x)\ng = f32[] get-tuple-element(t), index=1\nr = f32[] log(g)"),
    ("", "t = (f32[]) tuple(x)\nb = (f32[]) opt-barrier(t)\ng = f32[] get-tuple-element(b), index=0\nr = f32[] log(g)"),
    (
        "a { p = f32[] parameter(0)\n ROOT q = f32[] log(p) }\nb { p = f32[] parameter(0)\n ROOT q = f32[] copy(p) }\n",
        "c = pred[] constant(true)\nr = f32[] conditional(c, x, x), true_computation=a, false_computation=b",
    ),
    (
        "go { p = (s32[], f32[]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n n = s32[] constant(3)\n"
        " ROOT c = pred[] compare(i, n), direction=LT }\n"
        "body { p = (s32[], f32[]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n"
        " v = f32[] get-tuple-element(p), index=1\n l = f32[] log(v)\n e = f32[] exponential(l)\n"
        " ROOT t = (s32[], f32[]) tuple(i, e) }\n",
        "z = s32[] constant(0)\nt = (s32[], f32[]) tuple(z, x)\nr = (s32[], f32[]) while(t), condition=go, body=body",
    ),
    ("", 's = f32[] custom-call(x), custom_call_target="Sharding", sharding={replicated}\nr = f32[] log(s)'),
]


@pytest.mark.parametrize(("others", "lines"), CALLS)
def test_demands_go_through_what_calls_and_what_moves(others: str, lines: str) -> None:
    assert demanded(f"x = f32[] parameter(0)\n{lines}", others) == [POSITIVE]


def test_callers_of_one_computation_do_not_share_demands() -> None:
    others = "f { p = f32[] parameter(0)\n ROOT q = f32[] copy(p) }\n"
    lines = """x = f32[] parameter(0)
        y = f32[] parameter(1)
        a = f32[] call(x), to_apply=f
        b = f32[] call(y), to_apply=f
        l = f32[] log(a)
        r = (f32[], f32[]) tuple(l, b)"""
    assert demanded(lines, others) == [POSITIVE, None]


def test_a_constant_that_a_loop_carries_is_known_inside() -> None:
    others = """go { p = (s32[], f32[]) parameter(0)
        i = s32[] get-tuple-element(p), index=0
        n = s32[] constant(3)
        ROOT c = pred[] compare(i, n), direction=LT }
        body { p = (s32[], f32[], f32[]) parameter(0)
        i = s32[] get-tuple-element(p), index=0
        c = f32[] get-tuple-element(p), index=1
        v = f32[] get-tuple-element(p), index=2
        s = f32[] subtract(c, v)
        l = f32[] log(s)
        ROOT t = (s32[], f32[], f32[]) tuple(i, c, v) }
        """.replace("(s32[], f32[]) parameter", "(s32[], f32[], f32[]) parameter")
    lines = """x = f32[] parameter(0)
        z = s32[] constant(0)
        c = f32[] constant(5)
        t = (s32[], f32[], f32[]) tuple(z, c, x)
        r = (s32[], f32[], f32[]) while(t), condition=go, body=body"""
    assert demanded(lines, others) == [Range((-inf, 0), (5.0, -1))]


@pytest.mark.share(2)
@pytest.mark.parametrize("opcode", sorted(all_samples()))
def test_demands_of_every_op_fit_its_operands(opcode: str) -> None:
    """One per leaf, whatever is demanded of the result; and inputs can be drawn."""
    for text in few(opcode, all_samples()[opcode]):
        module = hloom.parse(text)
        leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
        assert len(input_demands(module)) == len(leaves)
        if all(leaf.element.numpy is not None or not leaf.is_array for leaf in leaves):
            made = inputs_for_module(module)
            assert [a.shape for a in made] == [leaf.dims for leaf in leaves if leaf.is_array]


def test_computations_that_call_each_other_many_times_are_not_asked_for_ever() -> None:
    """Two calls per level would be asked 2 ** 25 times."""
    text = "f0 { p = f32[] parameter(0)\n ROOT q = f32[] log(p) }\n"
    for n in range(1, 26):
        text += f"f{n} {{ p = f32[] parameter(0)\n a = f32[] call(p), to_apply=f{n - 1}\n"
        text += f" b = f32[] call(a), to_apply=f{n - 1}\n ROOT q = f32[] add(a, b) }}\n"
    assert len(demanded("x = f32[] parameter(0)\nr = f32[] call(x), to_apply=f25", text)) == 1


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.hlo")), ids=lambda p: p.name)
def test_examples_give_finite_numbers(path: Path, seed: int) -> None:
    module = hloom.load(str(path))
    for number, output in enumerate(hloom.evaluate(module, inputs_for_module(module, seed=seed))):
        wide: Any = output.astype(np.float64)
        assert np.isfinite(wide).all(), f"output {number}"


def test_tokens_of_the_examples_are_of_the_whole_vocabulary() -> None:
    module = hloom.load(str(EXAMPLES / "transformer_train.hlo"))
    names = [p.name for p in module.entry.parameters]
    tokens = inputs_for_module(module)[names.index("tokens.1")]
    assert (tokens.min(), tokens.max()) == (0, 63)


@pytest.mark.parametrize("type_", ["f32", "bf16", "f8e4m3fn"])
def test_literals_with_nan_have_no_range_and_warn_of_nothing(type_: str) -> None:
    constant = f"c = {type_}[2] constant({{1, nan}})"
    module = program(f"x = {type_}[2] parameter(0)\n{constant}\nr = {type_}[2] add(x, c)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs_for_module(module)
