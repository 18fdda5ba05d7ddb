"""Building and editing: attributes by keyword, shapes as text, order, clones, patterns, the graph."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom import P
from hloom.frontends import parse_shape
from hloom.ir.graph.attributes import PadDim, PaddingConfig, SliceDim, Window, WindowDim
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.graph.python_values import shape_of
from hloom.ir.sharding.replica_groups import ExplicitGroups


def main_of(*shapes: str) -> tuple[Module, Computation]:
    """An entry with parameters of these shapes, called a, b, .."""
    module = Module("m")
    c = module.new_computation("main", entry=True)
    for number, (name, shape) in enumerate(zip("abcdef", shapes, strict=False)):
        c.parameter(number, shape, name)
    return module, c


def test_built_program_prints_and_reads_back() -> None:
    module, c = main_of("f32[4,8]", "f32[8,6]")
    a, b = c.parameters
    dot = c.build("dot", a, b, lhs_contracting_dims=[1], rhs_contracting_dims=(0,), name="y")
    half = c.build("broadcast", c.constant(0.5), shape="f32[4,6]", dimensions=())
    c.root = c.build("select", c.build("compare", dot, half, direction="LT"), dot, half)
    hloom.verify(module)
    text = module.to_text()
    assert "%y = f32[4,6] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}" in text
    assert "%compare = pred[4,6] compare(%y, %broadcast), direction=LT" in text
    again = hloom.parse(text)
    assert again.to_text() == text
    x, w = np.ones((4, 8), np.float32), np.full((8, 6), 0.1, np.float32)
    assert np.array_equal(hloom.evaluate(again, [x, w])[0], np.full((4, 6), 0.5, np.float32))


def test_python_values_become_attributes() -> None:
    module, c = main_of("f32[4,8]")
    a = c.parameters[0]
    cut = c.build("slice", a, slice=[(0, 2), {"start": 0, "limit": 8, "stride": 2}])
    assert getattr(cut.attributes, "slice") == (SliceDim(0, 2), SliceDim(0, 8, 2))  # noqa: B009
    padded = c.build("pad", cut, c.constant(0.0), padding=[(1, 1), (0, 0, 1)])
    assert getattr(padded.attributes, "padding") == PaddingConfig((PadDim(1, 1), PadDim(0, 0, 1)))  # noqa: B009
    add = module.new_computation("add")
    add.build("add", add.parameter(0, "f32[]"), add.parameter(1, "f32[]"))
    window = [{"size": 1}, {"size": 3, "low": 1, "high": 1}]
    sums = c.build("reduce-window", padded, c.constant(0.0), window=window, to_apply=add)
    assert getattr(sums.attributes, "window") == Window((WindowDim(1), WindowDim(3, low=1, high=1)))  # noqa: B009
    total = c.build("all-reduce", sums, replica_groups=[[0, 1], [2, 3]], to_apply=add, channel_id=1)
    assert getattr(total.attributes, "replica_groups") == ExplicitGroups(((0, 1), (2, 3)))  # noqa: B009
    hloom.verify(module)
    assert hloom.parse(module.to_text()).to_text() == module.to_text()


@pytest.mark.parametrize(
    ("value", "element", "shape"),
    [
        (0.5, None, "f32[]"), (3, None, "s32[]"), (True, None, "pred[]"), ([[1, 2]], "u8", "u8[1,2]"),
        (1.5, "bf16", "bf16[]"), (np.zeros((2, 0)), None, "f64[2,0]"), (1j, None, "c64[]"), (2**40, "s64", "s64[]"),
        (np.ones(2, ml_dtypes.float8_e4m3fn), None, "f8e4m3fn[2]"), (0.5, "f8e5m2", "f8e5m2[]"),
    ],
)  # fmt: skip
def test_constants(value: Any, element: str | None, shape: str) -> None:
    constant = Module("m").new_computation("main").constant(value, element)
    assert str(constant.shape) == shape


def test_constants_are_copies() -> None:
    values = np.zeros(2, np.float32)
    constant = Module("m").new_computation("main").constant(values)
    values[0] = 1
    assert getattr(constant.attributes, "literal").array.tolist() == [0, 0]  # noqa: B009


@pytest.mark.parametrize("text", ["f32[]", "(f32[2,3], ())", "((s4[1], (token[])), pred[7])", "()", "bf16[0,5]"])
def test_shape_text(text: str) -> None:
    assert shape_of(text) == parse_shape(text)


@pytest.mark.parametrize(
    "text",
    ["", "f32", "f32[,]", "(", ")", "f32[2](", "f32[1],f32[2]", "(,f32[])", "()f32[]", "((f32[]())", "(f32[],)",
     "f32[1 2]", "g32[1]", f"f32[{2**63}]", "f32[-1]", "f32[2]{0}"],
)  # fmt: skip
def test_no_shape_text(text: str) -> None:
    with pytest.raises(hloom.CompileError):
        shape_of(text)


MISTAKES: list[tuple[Callable[[Computation, Instruction], object], str]] = [
    (lambda c, a: c.build("addd", a, a), "there is no opcode 'addd'\n  help: did you mean 'add'?"),
    (lambda c, a: c.build("add", a), "add: takes 2 operands, found 1"),
    (lambda c, a: c.build("add", a, a, shape="f32[3]"), "the shape given is f32[3] but operands give f32[4,8]"),
    (lambda c, a: c.build("add", a, Module("n").new_computation("x").constant(1)), "is not in computation main"),
    (lambda c, a: c.build("transpose", a), "transpose: attribute 'dimensions' is missing"),
    (lambda c, a: c.build("transpose", a, dimensions=(0, 0)), "transpose: "),
    (lambda c, a: c.build("transpose", a, dimensions=(0.5, 1)), "takes a sequence, each entry an integer"),
    (lambda c, a: c.build("tanh", a, axis=1), "unknown attribute 'axis'"),
    (lambda c, a: c.build("compare", a, a, direction="LESS"), "takes one of EQ, NE, GE, GT, LE, LT"),
    (lambda c, a: c.build("slice", a, slice=[(0, 1, 1, 1), (0, 1)]), "attribute 'slice' takes"),
    (lambda c, a: c.build("pad", a, c.constant(0.0), padding=[{"lo": 1}]), "attribute 'padding' takes"),
    (lambda c, a: c.build("all-reduce", a, to_apply="add"), "'to_apply' takes a computation, found 'add'"),
    (lambda c, a: c.build("iota", iota_dimension=0), "iota"),
    (lambda c, a: c.constant("one"), "HLO has no element type"),
    (lambda c, a: c.constant([[1], [2, 3]]), "nested lists"),
    (lambda c, a: c.constant(2**40), "does not fit s32"),
    (lambda c, a: c.constant(1, "token"), "1 cannot be converted to token"),
    (lambda c, a: c.parameter(-1, "f32[]"), "is negative"),
]


@pytest.mark.parametrize(("attempt", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes(attempt: Callable[[Computation, Instruction], object], message: str) -> None:
    _, c = main_of("f32[4,8]")
    with pytest.raises(hloom.CompileError) as error:
        attempt(c, c.parameters[0])
    assert message in str(error.value)
    assert len(c) <= 2  # the parameter, and a constant made on the way


def test_new_instruction_in_an_old_place() -> None:
    module, c = main_of("f32[4]")
    a = c.parameters[0]
    old = c.build("tanh", a)
    c.root = c.build("negate", old)
    new = c.build("exponential", a, before=old)
    c.replace_all_uses(old, new)
    c.remove(old)
    assert [i.opcode for i in c] == ["parameter", "exponential", "negate"]
    hloom.verify(module)


def test_sort_keeps_the_order_where_it_can() -> None:
    module, c = main_of("f32[4]")
    a = c.parameters[0]
    first = c.build("tanh", a)
    c.build("cosine", a)
    c.root = c.build("negate", first)
    late = c.build("sine", c.build("exponential", a))
    c.set_operand(first, 0, late)
    with pytest.raises(hloom.CompileError):
        hloom.verify(module)
    c.sort()
    assert [i.opcode for i in c] == ["parameter", "exponential", "sine", "tanh", "cosine", "negate"]
    assert c.root.opcode == "negate"
    hloom.verify(module)
    c.set_operand(late.operands[0], 0, first)
    with pytest.raises(ValueError, match="depends on itself"):
        c.sort()


def test_computations_print_callees_first() -> None:
    module = Module("m")
    main = module.new_computation("main", entry=True)
    outer = module.new_computation("f")
    inner = module.new_computation("f")
    assert inner.name == "f.1"
    inner.build("tanh", inner.parameter(0, "f32[4]"))
    outer.build("call", outer.parameter(0, "f32[4]"), to_apply=inner)
    main.build("call", main.parameter(0, "f32[4]"), to_apply=outer)
    assert [c.name for c in module.callees_first()] == ["f.1", "f", "main"]
    hloom.verify(module)
    assert hloom.parse(module.to_text()).entry.name == "main"


def test_cloned_computation_is_its_own() -> None:
    module, main = main_of("f32[4]")
    f = module.new_computation("f")
    f.build("tanh", f.parameter(0, "f32[4]"))
    g = module.clone_computation(f)
    assert g.name == "f.1"
    g.root = g.build("negate", g.root)
    assert len(f) == 2
    main.root = main.build("call", main.build("call", main.parameters[0], to_apply=f), to_apply=g)
    hloom.verify(module)
    (result,) = hloom.evaluate(module, [np.ones(4, np.float32)])
    assert np.allclose(result, -np.tanh(np.tanh(1)))


# -- patterns


def body() -> Computation:
    """add(bias, dot(x, w)), compare, add(x, x)."""
    _, c = main_of("f32[4,4]", "f32[4,4]", "f32[4,4]")
    x, w, bias = c.parameters
    dot = c.build("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    total = c.build("add", bias, dot, name="total")
    c.build("compare", total, x, direction="GT", name="more")
    c.build("add", x, x, name="twice")
    return c


def found(pattern: P) -> list[str]:
    return [i.name for i, _ in hloom.find_all(body(), pattern)]


def test_patterns() -> None:
    dense = P("add", P("dot").bind("d"), P.any("bias"))
    assert found(dense) == []
    assert found(dense.any_order()) == ["total"]
    c = body()
    total = c.find("total")
    assert total is not None
    bindings = hloom.match(total, dense.any_order())
    assert bindings is not None
    assert {name: i.name for name, i in bindings.items()} == {"d": "dot", "bias": "c"}
    assert hloom.match(c.parameters[0], dense) is None


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (P("add", P.any("a"), P.any("a")), ["twice"]),
        (P("add"), ["total", "twice"]),
        (P(("add", "compare")), ["total", "more", "twice"]),
        (P("add", P.any()), []),
        (P("compare", direction="GT"), ["more"]),
        (P("compare", direction="LT"), []),
        (P("dot", lhs_contracting_dims=[1]), ["dot"]),
        (P("dot", no_such_attribute=1), []),
        (P("add", P.any(), P("dot").used_once()), ["total"]),
        (P.any().used_once(), ["b", "c", "dot", "total"]),
        (P("add").where(lambda i: i.name.startswith("t")).where(lambda i: i.name != "twice"), ["total"]),
        # The first order binds a to the parameter, which the other operand then contradicts: the second one counts.
        (P("add", P.any("a"), P("dot", P.any(), P.any("w"))).any_order(), ["total"]),
    ],
)
def test_pattern_finds(pattern: P, names: list[str]) -> None:
    assert found(pattern) == names


def test_graph() -> None:
    module = hloom.parse("""HloModule m
f { p = f32[] parameter(0) ROOT n = f32[] negate(p) }
ENTRY main { a = f32[] parameter(0) t = f32[] add(a, a) ROOT r = f32[] call(a), to_apply=f, control-predecessors={t} }
""")
    graph = hloom.to_networkx(module)
    assert set(graph) == {("f", "p"), ("f", "n"), ("main", "a"), ("main", "t"), ("main", "r")}
    assert graph.nodes["main", "t"]["opcode"] == "add"
    assert graph.nodes["main", "t"]["instruction"] is module.entry.find("t")
    edges = {(a[1], b[1]): data for a, b, data in graph.edges(data=True)}
    assert edges == {
        ("p", "n"): {"kind": "operand", "operands": (0,)},
        ("a", "t"): {"kind": "operand", "operands": (0, 1)},
        ("a", "r"): {"kind": "operand", "operands": (0,)},
        ("n", "r"): {"kind": "call"},
        ("t", "r"): {"kind": "control"},
    }


def test_shardings() -> None:
    mesh = hloom.Mesh.of(x=2, y=4)
    c = Module("m").new_computation("main", entry=True)
    x = c.parameter(0, "f32[8,8]", "x", sharding=hloom.Sharding.over(mesh, ("x", "y"), None))
    y = c.build("sine", x, sharding=hloom.Sharding.over(mesh, None, "y"))
    assert str(x.sharding) == "{mesh['x'=2,'y'=4], [{'x','y'}, {}]}"
    assert y.sharding == hloom.parse_sharding("{mesh['x'=2,'y'=4], [{}, {'y'}]}")
    with pytest.raises(hloom.CompileError, match="has 1 dimensions, f32\\[8,8\\] has 2"):
        c.build("sine", x, sharding=hloom.Sharding.over(mesh, "x"))
    with pytest.raises(hloom.CompileError, match="the mesh has no axis 'z'"):
        hloom.Sharding.over(mesh, "z")
    with pytest.raises(hloom.CompileError, match="axis 'x' is used twice"):
        hloom.Sharding.over(mesh, "x", ("y", "x"))
    with pytest.raises(hloom.CompileError, match="axis 'y' needs a size of at least 1"):
        hloom.Mesh.of(x=2, y=0)
    with pytest.raises(hloom.CompileError, match="at most"):
        hloom.Mesh.of(x=1 << 20, y=1 << 20)


def test_places_are_given_for_a_block() -> None:
    c = hloom.parse("ENTRY e { x = f32[8] parameter(0) y = f32[8] negate(x) ROOT z = f32[8] add(y, y) }").entry
    x, y, z = c
    with c.at(before=y) as made:
        a = c.build("abs", x)
        with c.at(after=z):
            last = c.build("sign", z)
        b = c.build("abs", a)
    with c.at(before=b):
        between = c.build("floor", a)
    assert made == [a, b]
    assert list(c) == [x, a, between, b, y, z, last]
    assert c.root is z
    with c.at():
        end = c.build("ceil", z)
    c.move_before(end, y)
    assert (list(c)[4], c.root) == (end, z)


def test_the_order_may_be_read_within_a_block() -> None:
    """Other instructions get their places then; those of the block do when it ends."""
    c = hloom.parse("ENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] negate(x) }").entry
    x, y = c
    with c.at(before=y):
        a = c.build("abs", x)
    with c.at(before=y):
        b = c.build("ceil", x)
        assert list(c) == [x, a, y, b]
    assert list(c) == [x, a, b, y]


def test_what_is_inserted_before_a_removed_instruction_stays_there() -> None:
    c = hloom.parse("ENTRY e { x = f32[8] parameter(0) y = f32[8] negate(x) ROOT z = f32[8] add(x, x) }").entry
    x, y, z = c
    with c.at(before=y):
        a = c.build("abs", x)
        gone = c.build("sign", x)
        c.remove(gone)
    c.remove(y)
    assert list(c) == [x, a, z]
    assert [i.name for i in pickle.loads(pickle.dumps(c))] == ["x", "abs", "z"]
