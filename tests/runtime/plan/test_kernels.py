"""Kernel providers: who computes the ops of a plan, on every driver."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import Compile, Kernel
from hloom.runtime import KernelProvider, NumpyKernels, evaluate, simulate
from support import field_kernels
from support.field_kernels import FieldKernels

Array = np.ndarray[Any, Any]
F = np.float32


class Counted(NumpyKernels):
    """Numpy's kernels, with the number of times that those of each opcode run."""

    def __init__(self) -> None:
        self.runs = Counter[str]()

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        kernel = super().kernel(instruction, compile)
        if kernel is None:
            return None

        def run(*operands: Any) -> Any:
            self.runs[instruction.opcode] += 1
            return kernel(*operands)

        return run


class Taken(NumpyKernels):
    """Computes the instructions of one name by a function, and leaves everything else to numpy."""

    def __init__(self, name: str, function: Kernel) -> None:
        self.name, self.function = name, function

    def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
        return self.function if instruction.name == self.name else None


FUSED = """HloModule m
swish { a = f32[4] parameter(0)  b = f32[4] parameter(1)  l = f32[4] logistic(a)  m = f32[4] multiply(a, l)
  s = f32[4] subtract(m, b)  ROOT t = (f32[4], f32[4]) tuple(m, s) }
ENTRY e { x = f32[4] parameter(0)  y = f32[4] parameter(1)
  f = (f32[4], f32[4]) fusion(x, y), kind=kLoop, calls=swish
  g = f32[4] get-tuple-element(f), index=0
  h = f32[4] get-tuple-element(f), index=1
  ROOT r = f32[4] add(g, h) }"""
X, Y = np.arange(4, dtype=F), np.array([4, 5, 6, 8], F)


def swish(a: Array, b: Array) -> tuple[Array, Array]:
    m = a / (1 + np.exp(-a))
    return m, m - b


def test_every_op_is_asked_for() -> None:
    kernels = Counted()
    evaluate(parse(FUSED), [X, Y], kernels)
    assert kernels.runs == {"logistic": 1, "multiply": 1, "subtract": 1, "add": 1}


def test_ops_are_counted_where_they_run() -> None:
    """Constants run once, when the plan is made; a loop's ops with each turn; a reducer's for each element."""
    kernels = Counted()
    program = parse("""HloModule m
cond { p = (s32[], f32[3]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[3]) parameter(0)  i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)
  x = f32[3] get-tuple-element(p), index=1  y = f32[3] negate(x)  j = s32[] add(i, one)
  ROOT r = (s32[], f32[3]) tuple(j, y) }
mix { a = f32[] parameter(0)  b = f32[] parameter(1)  d = f32[] subtract(a, b)  ROOT r = f32[] cosine(d) }
ENTRY e { i = s32[] parameter(0)  x = f32[3] parameter(1)  t = (s32[], f32[3]) tuple(i, x)
  w = (s32[], f32[3]) while(t), condition=cond, body=body
  y = f32[3] get-tuple-element(w), index=1  zero = f32[] constant(0)
  ROOT r = f32[] reduce(y, zero), dimensions={0}, to_apply=mix }""")
    (found,) = evaluate(program, [np.asarray(2, np.int32), np.ones(3, F)], kernels)
    assert kernels.runs["constant"] == 3
    assert kernels.runs["compare"] == 4
    assert kernels.runs["negate"] == 3
    assert kernels.runs["reduce"] == 1
    assert kernels.runs["cosine"] == kernels.runs["subtract"] > 0
    assert found.shape == ()


def test_fusion_is_one_kernel() -> None:
    seen: list[int] = []

    def fused(a: Array, b: Array) -> tuple[Array, Array]:
        seen.append(len(seen))
        return swish(a, b)

    expected = evaluate(parse(FUSED), [X, Y])
    found = evaluate(parse(FUSED), [X, Y], Taken("f", fused))
    assert seen == [0]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)


def test_fusion_that_is_taken_need_not_have_kernels() -> None:
    text = FUSED.replace("logistic(a)", 'custom-call(a), custom_call_target="elsewhere"')
    with pytest.raises(CompileError, match="elsewhere"):
        evaluate(parse(text), [X, Y])
    assert evaluate(parse(text), [X, Y], Taken("f", swish))[0].shape == (4,)


def test_loop_is_one_kernel() -> None:
    text = """HloModule m
cond { p = s32[] parameter(0)  n = s32[] constant(5)  ROOT r = pred[] compare(p, n), direction=LT }
body { p = s32[] parameter(0)  one = s32[] constant(1)  ROOT r = s32[] add(p, one) }
ENTRY e { i = s32[] parameter(0)  ROOT w = s32[] while(i), condition=cond, body=body }"""

    def counted(i: Array) -> Array:
        return np.maximum(i, np.int32(5))

    (found,) = evaluate(parse(text), [np.asarray(2, np.int32)], Taken("w", counted))
    assert found == 5


@pytest.mark.parametrize(
    "inside", ["u32[] partition-id()", "f32[4] all-reduce(a), channel_id=1, replica_groups={{0,1}}, "
               "use_global_device_ids=true, to_apply=add"],
)  # fmt: skip
def test_groups_tied_to_devices_are_not_offered(inside: str) -> None:
    shape = inside.split()[0]
    text = f"""HloModule m, num_partitions=2
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }}
inner {{ a = f32[4] parameter(0)  i = {inside}  n = f32[4] negate(a)  ROOT t = ({shape}, f32[4]) tuple(i, n) }}
outer {{ a = f32[4] parameter(0)  c = ({shape}, f32[4]) call(a), to_apply=inner
  ROOT n = f32[4] get-tuple-element(c), index=1 }}
ENTRY e {{ x = f32[4] parameter(0)  ROOT c = f32[4] call(x), to_apply=outer }}"""

    class Groups(NumpyKernels):
        def kernel(self, instruction: Instruction, compile: Compile) -> Kernel | None:
            assert instruction.opcode != "call"
            return None

    (found,) = simulate(parse(text), [X], kernels=Groups())
    np.testing.assert_array_equal(found, [-X, -X])


def test_simulator_asks_the_provider() -> None:
    program = parse(field_kernels.PROGRAM)
    local = hloom.partition(program, 4)
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=size).astype(F) for size in ((8, 6), (6, 4))]
    kernels = Counted()
    for found, expected in zip(simulate(local, inputs, kernels=kernels), simulate(local, inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert kernels.runs["dot"] == kernels.runs["negate"] == 4

    def twice(y: Array) -> Array:
        return -2 * y

    (found, _), (expected, _) = simulate(local, inputs, kernels=Taken("z", twice)), simulate(local, inputs)
    np.testing.assert_allclose(found, 2 * expected, rtol=1e-5)


def test_values_may_be_of_other_types() -> None:
    program = parse(field_kernels.PROGRAM)
    inputs, field = field_kernels.inputs(), FieldKernels()
    expected = evaluate(program, inputs, field)
    x, w = (a.astype(object) for a in inputs)
    np.testing.assert_array_equal(expected[0], (-(x @ w)).sum(0) % field_kernels.PRIME)
    found = simulate(hloom.partition(program, 4), inputs, kernels=field)
    assert [a.dtype for a in found] == [np.uint64] * 2
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_a_provider_refuses_is_reported_before_the_run() -> None:
    with pytest.raises(CompileError, match="tanh t: tanh has no meaning in a field"):
        evaluate(parse("HloModule m\nENTRY e { x = f32[4] parameter(0)  ROOT t = f32[4] tanh(x) }"), [], FieldKernels())


def test_default_is_numpy() -> None:
    provider: KernelProvider = NumpyKernels()
    for a, b in zip(evaluate(parse(FUSED), [X, Y], provider), evaluate(parse(FUSED), [X, Y]), strict=True):
        np.testing.assert_array_equal(a, b)
