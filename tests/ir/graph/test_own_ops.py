"""Ops of an embedder: proved by their algebra, and told where their sharding rules are wrong."""

from __future__ import annotations

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


class Center(hloom.Op[Any]):
    """Subtracts the mean of each row."""

    opcode = "center"
    algebra = hloom.Algebra.OPAQUE

    def sharding_rule(self, call: hloom.OpCall[Any]) -> Any:
        return call.parse_rule("([i j]) -> [i j] replicate={j}")

    def kernel(self, call: hloom.OpCall[Any], compile: Any) -> Any:
        return lambda x: x - x.mean(1, keepdims=True)  # pyright: ignore


def _registered(monkeypatch: pytest.MonkeyPatch, op: type[hloom.Op[Any]]) -> hloom.Module:
    monkeypatch.setitem(OPS, op.opcode, op())
    return hloom.parse(PROGRAM)


def test_programs_with_them_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _registered(monkeypatch, Center)
    local = hloom.partition(module)
    x = np.arange(32, dtype=np.float32).reshape(8, 4) ** 2
    np.testing.assert_array_equal(hloom.simulate(local, [x])[0], hloom.evaluate(module, [x])[0])
    assert hloom.prove(module, local).outcome == "equal"
    monkeypatch.setattr(Center, "algebra", None)
    assert hloom.prove(module, hloom.partition(module)).outcome == "unproved"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda call: call.parse_rule("([i j]) -> [i j"), r"sharding rule:1:16: error: expected the name(.|\n)*4:8: note: "),
        (lambda call: call.parse_rule("([i j]) -> [i]"), r"4:8: error: the sharding rule of center: result 0 is f32"),
        (lambda call: OPS["negate"].sharding_rule(call.__class__((call.shape, call.shape), call.attributes, call.shape)),
         "4:8: error: the sharding rule of center does not fit: rule has 2 operands, op has 1"),
        (lambda call: None, "4:8: error: the sharding rule of center is None"),
        (lambda call: "([i j]) -> [i j]", "4:8: error: the sharding rule of center is a str, not a ShardingRule"),
        (lambda call: call.nothing, "4:8: error: the sharding rule of center raised AttributeError"),
    ],
)  # fmt: skip
def test_wrong_rules_are_errors_with_a_place(monkeypatch: pytest.MonkeyPatch, rule: Any, message: str) -> None:
    module = _registered(monkeypatch, Center)
    sharded = hloom.propagate(module)
    monkeypatch.setattr(Center, "sharding_rule", lambda self, call: rule(call))  # pyright: ignore
    with pytest.raises(hloom.CompileError, match=message):
        hloom.partition(module)
    with pytest.raises(hloom.CompileError, match=message.split("error:")[1].split("(")[0].strip()):
        hloom.partition(sharded)
