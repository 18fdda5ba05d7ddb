"""Ops of an embedder: proved by their algebra, and told where their sharding rules are wrong."""

from __future__ import annotations

import re
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.op import OPS

PROGRAM = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  ROOT y = f32[8,4] center(x)
}"""


def centered(x: Any) -> Any:
    return x - x.mean(1, keepdims=True)


class Center(hloom.Op[Any]):
    """Subtracts the mean of each row."""

    opcode = "center"
    algebra = hloom.Algebra.OPAQUE

    def sharding_rule(self, call: hloom.OpCall[Any]) -> Any:
        return call.parse_rule("([i j]) -> [i j] replicate={j}")

    def kernel(self, call: hloom.OpCall[Any], compile: Any) -> Any:
        return centered


def _registered(monkeypatch: pytest.MonkeyPatch, op: type[hloom.Op[Any]]) -> hloom.Module:
    monkeypatch.setitem(OPS, op.opcode, op())
    return hloom.parse(PROGRAM)


def test_programs_with_them_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _registered(monkeypatch, Center)
    local = hloom.partition(module)
    x = np.arange(32, dtype=np.float32).reshape(8, 4) ** 2
    np.testing.assert_array_equal(hloom.simulate(local, [x])[0], hloom.evaluate(module, [x])[0])
    assert hloom.prove(module, local).outcome == "equal"

    class Unknown(Center):
        algebra = None

    module = _registered(monkeypatch, Unknown)
    assert hloom.prove(module, hloom.partition(module)).outcome == "unproved"


Call = hloom.OpCall[Any]


def _unfinished(call: Call) -> Any:
    return call.parse_rule("([i j]) -> [i j")


def _of_another_rank(call: Call) -> Any:
    return call.parse_rule("([i j]) -> [i]")


def _of_another_op(call: Call) -> Any:
    return OPS["negate"].sharding_rule(hloom.OpCall((call.shape,) * 2, call.attributes, call.shape))


def _nothing(call: Call) -> Any:
    return None


def _text(call: Call) -> Any:
    return "([i j]) -> [i j]"


def _mistake(call: Call) -> Any:
    return call.shape.dims[7]


OF = "4:8: error: the sharding rule of center"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (_unfinished, r"sharding rule:1:16: error: expected the(.|\n)*4:8: note: the sharding rule of center is"),
        (_of_another_rank, f"{OF}: result 0 is f32"),
        (_of_another_op, f"{OF} does not fit: rule has 2 operands, op has 1"),
        (_nothing, f"{OF} is None"),
        (_text, f"{OF} is a str, not a ShardingRule"),
        (_mistake, f"{OF} raised IndexError"),
    ],
)
def test_wrong_rules_are_errors_with_a_place(monkeypatch: pytest.MonkeyPatch, rule: Any, message: str) -> None:
    class Wrong(Center):
        def sharding_rule(self, call: Call) -> Any:
            return rule(call)

    sharded = hloom.propagate(_registered(monkeypatch, Center))
    module = _registered(monkeypatch, Wrong)
    sharded.entry.root.op = module.entry.root.op
    with pytest.raises(hloom.CompileError, match=message):
        hloom.partition(module)
    with pytest.raises(hloom.CompileError, match=message.split("error:")[1].split("(")[0].strip()):
        hloom.partition(sharded)


def test_an_opaque_op_on_elements_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Center):
        is_elementwise = True

        def sharding_rule(self, call: Call) -> Any:
            return call.parse_rule("([i j]) -> [i j]")

    module = _registered(monkeypatch, Twice)
    assert hloom.prove(module, hloom.partition(module)).is_equal


@pytest.mark.parametrize(
    ("algebra", "operands", "message"),
    [
        ("MADE", 1, r"Algebra\.MADE is for ops without operands"),
        ("FOLD", 1, r"Algebra\.FOLD is for ops that apply a computation"),
        ("BITS", 2, r"Algebra\.BITS is for ops of one operand"),
        ("TRANSFORM", 1, r"Algebra\.TRANSFORM is for ops with the attributes of fft"),
        ("BILINEAR", 1, "products of other than two arrays of floats are not covered"),
        ("BILINEAR", 2, "its kernel calls divide, which is no sum of products"),
    ],
)
def test_an_algebra_that_does_not_fit_the_op_leaves_it_unproved(
    monkeypatch: pytest.MonkeyPatch, algebra: str, operands: int, message: str
) -> None:
    class Misfit(Center):
        opcode, arity = "misfit", (operands, operands)

        def sharding_rule(self, call: Call) -> Any:
            return call.parse_rule("([i j]) -> [i j]" if operands == 1 else "([i j], [i j]) -> [i j]")

        def kernel(self, call: Call, compile: Any) -> Any:
            return _doubled if operands == 1 else np.divide

    Misfit.algebra = hloom.Algebra[algebra]
    monkeypatch.setitem(OPS, "misfit", Misfit())
    module = hloom.parse(PROGRAM.replace("center(x)", f"misfit({', '.join(['x'] * operands)})"))
    verdict = hloom.prove(module, hloom.partition(module))
    assert verdict.outcome == "unproved"
    assert re.search(message, str(verdict))


def test_an_own_product_of_elements_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    class Product(Center):
        opcode, arity, algebra = "own-product", (2, 2), hloom.Algebra.BILINEAR

        def sharding_rule(self, call: Call) -> Any:
            return call.parse_rule("([i j], [i j]) -> [i j]")

        def kernel(self, call: Call, compile: Any) -> Any:
            return np.multiply

    monkeypatch.setitem(OPS, "own-product", Product())
    module = hloom.parse(PROGRAM.replace("center(x)", "own-product(x, x)"))
    assert hloom.prove(module, hloom.partition(module)).is_equal


def _first_row(x: Any) -> Any:
    return x[:1]


def _doubled(x: Any) -> Any:
    return x + x


def _integers(x: Any) -> Any:
    return x.astype(int)


def _no_array(x: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_first_row, r"the kernel of center returned float32\[1,4\], the program declares float32\[8,4\]"),
        (_integers, r"the kernel of center returned int64\[8,4\], the program declares float32\[8,4\]"),
        (_no_array, r"the kernel of center returned nothing, the program declares f32\[8,4\]"),
        (None, "the kernel of center is a NoneType, not a function"),
    ],
)
def test_results_of_kernels_are_as_declared(monkeypatch: pytest.MonkeyPatch, kernel: Any, message: str) -> None:
    class Wrong(Center):
        def kernel(self, call: Call, compile: Any) -> Any:
            return kernel

    module = _registered(monkeypatch, Wrong)
    with pytest.raises(hloom.CompileError, match=f"4:8: error: center y: {message}"):
        hloom.evaluate(module, [np.ones((8, 4), np.float32)])


def test_a_shape_is_inferred_as_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    class Worded(Center):
        def infer_shape(self, operands: Any, attributes: Any, declared: Any) -> Any:
            return "f32[8,4]"

    with pytest.raises(hloom.CompileError, match=r"4:8: error: center: infer_shape gives 'f32\[8,4\]', not a Shape"):
        _registered(monkeypatch, Worded)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("opcode", "row norm", "register: Odd.opcode must be str, found str 'row norm'"),
        ("opcode", 3, "register: Odd.opcode must be str, found int 3"),
        ("arity", 1, "register: Odd.arity must be tuple, found int 1; the least and the most operands"),
        ("arity", (3, 1), "register: Odd.arity must be tuple, found tuple"),
        ("attributes", int, "register: Odd.attributes must be type, found type <class 'int'>; a class derived"),
        ("algebra", "opaque", "register: Odd.algebra must be Algebra or None, found str 'opaque'; write hloom.Algebra"),
    ],
)
def test_registering_refuses_what_describes_no_op(field: str, value: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        hloom.register(type("Odd", (Center,), {"opcode": "odd", field: value}))
