"""Kernels over the field beside Python's integers: products by limbs, stacks of uses, repeated elements."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import Kernel
from hloom.ir.ops import sort
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.plan.kernels import StackedKernel
from hloom.runtime.proof import field
from hloom.runtime.proof.field import PRIME, UNDEFINED
from hloom.runtime.proof.kernels import FieldKernels
from hloom.runtime.proof.oracle import Oracle
from support.calls import calls

Array = np.ndarray[Any, Any]

PROGRAM = """
HloModule m

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY e {
  x = f32[6,DEPTH] parameter(0)
  y = f32[DEPTH,4] parameter(1)
  start = f32[] parameter(2)
  product = f32[6,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[6] reduce(x, start), dimensions={1}, to_apply=add
  quotient = f32[6,DEPTH] divide(x, x)
  ROOT r = (f32[6,4], f32[6], f32[6,DEPTH]) tuple(product, sum, quotient)
}
"""


def kernels(depth: int) -> dict[str, Kernel]:
    """The kernels of the program's ops by name."""
    module = hloom.parse(PROGRAM.replace("DEPTH", str(depth)))
    provider = FieldKernels(module, Oracle(np.random.SeedSequence(1)))

    def no_computation(callee: Any) -> Kernel:
        raise AssertionError(callee)

    def kernel(name: str) -> Kernel:
        instruction = module.entry.find(name)
        assert isinstance(instruction, Instruction)
        found = provider.kernel(instruction, no_computation)
        assert found is not None
        return found

    return {name: kernel(name) for name in ("product", "sum", "quotient")}


def drawn(*dims: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, PRIME, dims, np.uint64)


# Sums of so many products fit with three, four and five limbs, which numpy needs where there is no machine code.
@pytest.mark.parametrize("hidden", ["", "-fma"])
@pytest.mark.parametrize("depth", [1, 255, 256, 511, 512, 2047, 2048, 8192, 40_000])
def test_products_of_the_largest_elements_are_exact(depth: int, hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CPU", hidden)
    x, y = np.full((6, depth), PRIME - 1, np.uint64), np.full((depth, 4), PRIME - 2, np.uint64)
    assert (kernels(depth)["product"](x, y) == 2 * depth).all()  # -1 times -2


@pytest.mark.parametrize("depth", [3, 700])
def test_products_are_those_of_integers(depth: int) -> None:
    x, y = drawn(6, depth, seed=1), drawn(depth, 4, seed=2)
    wanted = x.astype(object) @ y.astype(object) % PRIME
    found = kernels(depth)["product"](x, y)
    np.testing.assert_array_equal(found.astype(object), wanted)
    x[2, 1] = UNDEFINED
    marked = kernels(depth)["product"](x, y)
    assert (marked[2] == UNDEFINED).all()
    np.testing.assert_array_equal(np.delete(marked, 2, 0), np.delete(found, 2, 0))


def test_a_stack_of_uses_has_the_results_of_each() -> None:
    depth, count = 5, 3
    operands = {
        "product": [drawn(count, 6, depth, seed=1), drawn(count, depth, 4, seed=2)],
        "sum": [drawn(count, 6, depth, seed=3), drawn(count, seed=4)],
        "quotient": [drawn(count, 6, depth, seed=5), drawn(count, 6, depth, seed=6)],
    }
    operands["sum"][0][1, 2, 3] = UNDEFINED
    for name, kernel in kernels(depth).items():
        assert isinstance(kernel, StackedKernel)
        together = kernel(*operands[name])
        for n in range(count):
            np.testing.assert_array_equal(together[n], kernel(*(x[n] for x in operands[name])))


def test_repeated_elements_are_computed_once() -> None:
    depth = 5
    x, rows = drawn(6, depth, seed=1), drawn(6, 1, seed=2)
    rows[2] = 7  # a count, whose inverse is exact
    repeated, divide = np.broadcast_to(rows, x.shape), kernels(depth)["quotient"]
    np.testing.assert_array_equal(divide(x, repeated), divide(x, repeated.copy()))
    both = divide(repeated, np.broadcast_to(drawn(1, depth, seed=3), x.shape))
    assert both.shape == x.shape
    assert (field.multiply(divide(x, repeated)[2], np.array(7, np.uint64)) == x[2]).all()
    assert divide(repeated, repeated).strides[1] == 0


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("kind", ["", ", type=TOTALORDER"])
def test_sorts_go_by_keys_in_the_random_order(direction: str, kind: str) -> None:
    module = hloom.parse(f"""HloModule m
less {{ a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] parameter(2)  j = s32[] parameter(3)
  na = f32[] negate(a)  nb = f32[] negate(b)  ROOT r = pred[] compare(na, nb), direction={direction}{kind} }}
ENTRY e {{ x = f32[4,500] parameter(0)  i = s32[4,500] iota(), iota_dimension=1
  s = (f32[4,500], s32[4,500]) sort(x, i), dimensions={{1}}, to_apply=less
  ROOT y = s32[4,500] get-tuple-element(s), index=1 }}""")
    oracle = Oracle(np.random.SeedSequence(0))
    x = np.random.default_rng(0).integers(0, PRIME, (4, 500), np.uint64)
    with calls(sort.merged_order) as merged:
        (found,) = UnpartitionedProgram(module, FieldKernels(module, oracle)).run([x])
    assert merged == [], "it calls the comparator again and again"
    keys = oracle.keys(field.negate(x))
    np.testing.assert_array_equal(found, np.argsort(keys if direction == "LT" else ~keys, 1, kind="stable"))
