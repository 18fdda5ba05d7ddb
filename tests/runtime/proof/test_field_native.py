"""The field's operations in machine code give what those of numpy give, to the bit."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.op import Kernel
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.proof import field, sums
from hloom.runtime.proof.field import GREATEST, LEAST, NAN_ABOVE, NAN_BELOW, PRIME, UNDEFINED
from hloom.runtime.proof.field_native import NativeField, native_field
from hloom.runtime.proof.kernels import FieldKernels
from hloom.runtime.proof.memo import ElementSet
from hloom.runtime.proof.oracle import Oracle
from hloom.runtime.proof.relations.symbolic import SymbolicKernels
from support.loop_kernels import needs_llvm

Array = np.ndarray[Any, Any]
SPECIAL = np.array(
    [0, 1, 2, 16, 1 << 20, PRIME - 1, PRIME - 2, PRIME - (1 << 19), *field.SPECIAL, 12345], np.uint64
)


@pytest.fixture
def native() -> NativeField:
    found = native_field()
    assert found is not None
    return found


def with_numpy(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("HLOOM_CPU", "-fma")
    assert native_field() is None


def random(*dims: int) -> Array:
    return np.random.default_rng(0).integers(0, PRIME, dims, np.uint64)


PAIRS = [(SPECIAL[:, None], SPECIAL[None, :]), (random(500), random(500)[::-1]), (random(3, 1, 5), random(4, 1))]


@needs_llvm
@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_operations_of_two_elements(name: str, native: NativeField, monkeypatch: pytest.MonkeyPatch) -> None:
    with_numpy(monkeypatch)
    for a, b in PAIRS:
        np.testing.assert_array_equal(getattr(native, name)(a, b), getattr(field, name)(a, b))


@needs_llvm
@pytest.mark.parametrize("name", ["negate", "inverse"])
def test_operations_of_one_element(name: str, native: NativeField, monkeypatch: pytest.MonkeyPatch) -> None:
    with_numpy(monkeypatch)
    for x in (SPECIAL, random(500), np.array(5, np.uint64)):
        np.testing.assert_array_equal(getattr(native, name)(x), getattr(field, name)(x))


def _of_oracle(x: Array) -> list[Array]:
    """All that an oracle computes by machine code, of each kind."""
    found: list[Array] = []
    for made in (Oracle(np.random.SeedSequence(1)), Oracle(np.random.SeedSequence(2), zero="greatest")):
        keys = made.keys(x)
        found += [made.value("f", x), made.value("f", x, x[::-1]), made.value("f", x, x[::-1], x), made.reciprocal(x)]
        found += [keys, made.elements(keys), np.array(list(made.made.hashed.values()))]
    return found


@needs_llvm
def test_random_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    for x in (SPECIAL, random(500)):
        by_machine = _of_oracle(x)
        with monkeypatch.context() as patch:
            with_numpy(patch)
            by_numpy = _of_oracle(x)
        for have, want in zip(by_machine, by_numpy, strict=True):
            np.testing.assert_array_equal(have, want)


@needs_llvm
@pytest.mark.parametrize("axes", [(-1,), (0, 2), (0, 1, 2)])
def test_sums(axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(4, 5, 6)
    x[0, 1, 2], x[1, 1, 1], x[1, 1, 2], x[2, 0, 0] = LEAST, LEAST, GREATEST, UNDEFINED
    x[2, 1, 1], x[3, 3, 3], x[3, 3, 4] = NAN_BELOW, NAN_ABOVE, NAN_BELOW
    by_machine = sums.total(x, axes)
    with_numpy(monkeypatch)
    with np.errstate(over="ignore"):  # of a single number
        np.testing.assert_array_equal(by_machine, sums.total(x, axes))


@needs_llvm
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (3, 33, 7), (5, 100, 4), (2, 0, 3), (0, 3, 2)])
def test_products_of_matrices(rows: int, depth: int, columns: int, native: NativeField) -> None:
    a, b = random(2, rows, depth), random(depth, columns)
    exact: Any = (a[..., None].astype(object) * b[None, None].astype(object)).sum(2) % PRIME
    np.testing.assert_array_equal(native.matmul(a, b).astype(object), exact)
    np.testing.assert_array_equal(native.matmul(a, b.T.copy().T).astype(object), exact)
    if depth * rows:
        a[0, 0, 0] = LEAST
        assert (native.matmul(a, b)[0, 0] == UNDEFINED).all()
        assert (native.matmul(a, b)[1] == exact[1]).all()


BILINEAR = [
    "ROOT y = f32[4,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "ROOT y = f32[5,5] dot(a, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    """c = f32[1,4,5,1] reshape(a)  k = f32[3,2,1,5] reshape(b)
  ROOT y = f32[1,4,4,5] convolution(c, k), window={size=3x2 pad=1_1x0_0}, dim_labels=b01f_01io->b01f""",
]


@needs_llvm
@pytest.mark.parametrize("text", BILINEAR, ids=["dot", "transposed", "convolution"])
def test_contractions(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hloom.parse(f"""HloModule m
ENTRY e {{ a = f32[4,5] parameter(0)  b = f32[5,6] parameter(1)
  {text} }}""")

    def run() -> Array:
        kernels = FieldKernels(module, Oracle(np.random.SeedSequence(0)))
        root = module.entry.root
        found = kernels.kernel(root, lambda _: _never)
        assert found is not None
        operands = [random(*o.shape.dims) for o in root.operands]
        operands[0].reshape(-1)[3] = UNDEFINED
        return found(*operands)

    by_machine = run()
    with_numpy(monkeypatch)
    np.testing.assert_array_equal(by_machine, run())


def _never(*_: Instruction) -> Kernel:
    raise AssertionError


@needs_llvm
def test_verdicts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    module = hloom.parse("""HloModule m
ENTRY e { x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}  w = f32[4,4] parameter(1)
  y = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}  t = f32[8,4] tanh(y)
  ROOT z = f32[8,4] divide(t, y) }""")
    local = hloom.partition(module)
    by_machine = hloom.prove(module, local)
    with_numpy(monkeypatch)
    assert hloom.prove(module, local) == by_machine


def test_a_set_of_elements() -> None:
    some, others = random(1000), random(3000)[1000:]
    made = ElementSet()
    assert not made.has(some).any()
    for part in np.split(some, 10):
        made.add(part.reshape(4, 25))
    assert made.has(some).all()
    assert not made.has(others).any()
    assert not made.has(SPECIAL).any()
    made.add(SPECIAL)
    assert made.has(SPECIAL.reshape(2, -1)).all()


SCATTERS = {
    "rows": ("f32[9,4]", "s32[5,1]", "f32[5,4]", "update_window_dims={1}, inserted_window_dims={0}, "
             "scatter_dims_to_operand_dims={0}, index_vector_dim=1"),
    "windows": ("f32[9,4]", "s32[5,1]", "f32[3,5,2]", "update_window_dims={0,2}, inserted_window_dims={}, "
                "scatter_dims_to_operand_dims={0}, index_vector_dim=1"),
    "columns of batches": ("f32[3,9]", "s32[3,5,1]", "f32[3,5]", "update_window_dims={}, inserted_window_dims={1}, "
                           "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
                           "scatter_indices_batching_dims={0}, index_vector_dim=2"),
    "batches behind": ("f32[9,3,2]", "s32[5,3]", "f32[5,2,3]", "update_window_dims={1}, inserted_window_dims={0}, "
                       "scatter_dims_to_operand_dims={0}, input_batching_dims={1}, "
                       "scatter_indices_batching_dims={1}, index_vector_dim=2"),
}  # fmt: skip


@needs_llvm
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_on_terms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operand, indices, update, attributes = SCATTERS[name]
    module = hloom.parse(f"""HloModule m
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = {operand} parameter(0)  i = {indices} parameter(1)  u = {update} parameter(2)
  ROOT y = {operand} scatter(x, i, u), {attributes}, to_apply=add }}""")
    inputs = [random(*p.shape.dims) for p in module.entry.parameters]
    inputs[1].reshape(-1)[:2] = 0, 7  # exact, one of them twice

    def run() -> Array:
        made = SymbolicKernels(module, Oracle(np.random.SeedSequence(0)))
        return UnpartitionedProgram(module, made).run(inputs)[0]

    by_products = run()
    with_numpy(monkeypatch)
    np.testing.assert_array_equal(by_products, run())
    assert (by_products != inputs[0]).any()
