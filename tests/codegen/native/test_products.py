"""Products against einsum: terms of every kind, arrays in every order, broadcast, reversed, empty."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np
import pytest
from hloom.codegen.native.products.blas import blas
from hloom.codegen.native.products.plan import plan
from hloom.codegen.native.products.product import step_of
from hloom.codegen.native.products.stages import CopyStage, Method, Multiply, ProductPlan, flat
from hloom.codegen.native.products.terms import Term, TermRole, merged
from hloom.codegen.native.step import NativeStep
from hloom.ir.types.element_type import from_numpy
from support.loop_kernels import needs_llvm

Array = np.ndarray[Any, Any]
pytestmark = [needs_llvm, pytest.mark.skipif(blas() is None, reason="needs a BLAS library")]
ROLES = {"batch": "xyz", "row": "xz", "column": "yz", "inner": "xy"}


def run(found: ProductPlan, x: Array, y: Array, z: Array) -> None:
    """Runs a plan of arrays whose index 0 is at their address. Scratch holds NaN before."""
    run_step(step_of(found, from_numpy(z.dtype)), x, y, z)


def run_step(step: NativeStep, x: Array, y: Array, z: Array, before: int = 0xFF) -> None:
    """Runs a product whose scratch holds these bytes before."""
    scratch = [np.full(n, before, np.uint8) for n in step.scratch]
    words = (*(a.ctypes.data for a in (x, y, z, *scratch)), *step.words)
    block = (ctypes.c_int64 * len(words))(*words)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(step.function)(ctypes.addressof(block))


def array(rng: random.Random, sizes: dict[str, int], names: str, dtype: Any, is_result: bool) -> Array:
    """Returns an array whose dimensions lie in any order; an operand's may be broadcast or reversed."""
    order = rng.sample(range(len(names)), len(names))
    wide = [not is_result and rng.random() < 0.1 for _ in names]
    given = np.random.default_rng(rng.randrange(99))
    x: Array = given.standard_normal([1 if wide[n] else sizes[names[n]] for n in order]).astype(dtype)
    x = x.transpose(np.argsort(order))
    x = x if is_result else np.broadcast_to(x, [sizes[name] for name in names])
    return np.asarray(x[(..., *(slice(None, None, rng.choice((1, 1, 1, 1, -1))) for _ in names))])


def one_product(seed: int) -> ProductPlan:
    """Checks one random product and returns its plan."""
    rng = random.Random(seed)
    names = "abcdef"[: rng.randint(1, 6)]
    kinds = {name: rng.choice(list(ROLES)) for name in names}
    most = {1: 200, 2: 60, 3: 24}.get(len(names), 6)
    sizes = {name: rng.choice([1, 2, 3, rng.randint(1, most), rng.randint(0, most)]) for name in names}
    dtype = rng.choice((np.float32, np.float64))
    own = {a: "".join(n for n in names if a in ROLES[kinds[n]]) for a in "xyz"}
    x, y, z = (array(rng, sizes, own[a], dtype, a == "z") for a in "xyz")
    z[...] = np.nan

    def stride(a: Array, of: str, name: str) -> int:
        return a.strides[own[of].index(name)] // a.itemsize if name in own[of] else 0

    terms = tuple(Term(sizes[n], stride(x, "x", n), stride(y, "y", n), stride(z, "z", n)) for n in names)
    found = plan(terms)
    run(found, x, y, z)
    want = np.einsum(f"{own['x']},{own['y']}->{own['z']}", x.astype(np.float64), y.astype(np.float64))
    bound = np.einsum(f"{own['x']},{own['y']}->{own['z']}", abs(x).astype(np.float64), abs(y).astype(np.float64))
    assert z.shape == want.shape
    assert np.all(abs(z - want) <= 20 * np.finfo(dtype).eps * bound), (seed, terms, found)
    return found


def test_random_products_agree_with_einsum() -> None:
    seen = {type(s).__name__ for seed in range(300) for s in flat(one_product(seed).stages)}
    assert seen >= {"CopyStage", "Multiply"}


@pytest.mark.slow
def test_many_random_products_agree_with_einsum() -> None:
    for seed in range(300, 20000):
        one_product(seed)


def multiplies(found: ProductPlan) -> list[Multiply]:
    return [s for s in flat(found.stages) if isinstance(s, Multiply)]


def test_transposed_operands_and_heads_are_read_in_place() -> None:
    """Queries [b, q, h, d] and keys [b, k, h, d] give scores [b, h, q, k] without a copy."""
    b, h = Term(8, 16384, 16384, 65536 // 4), Term(4, 32, 32, 4096)
    q, k, d = Term(64, 128, 0, 64), Term(64, 0, 128, 1), Term(32, 1, 1, 0)
    (only,) = plan((b, h, q, k, d)).stages
    assert isinstance(only, Multiply)
    assert (only.row.size, only.column.size, only.inner.size, len(only.loops)) == (64, 64, 32, 2)
    assert only.matrices is not None
    assert [m.is_transposed for m in only.matrices] == [False, True, False]


def tiled(rng: random.Random, dtype: Any) -> tuple[ProductPlan, list[Array]]:
    """Returns the plan of a product of matrices by tiles, and its arrays, z in the middle of more rows and columns."""
    m, n, k = rng.randint(2, 60), rng.randint(1, 140), rng.choice((1, 3, 16, 33, 511, 513, 1100))
    x, y = (np.random.default_rng(rng.randrange(99)).standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
    x, y = (np.asfortranarray(a) if rng.random() < 0.4 else a for a in (x, y))
    if rng.random() < 0.2:
        y = np.repeat(y, 2, 1)[:, ::2]  # neighbours in neither dimension
    z = np.full((m, n + 5), np.nan, dtype)[:, :n]
    (x0, x1), (y0, y1), (z0, z1) = ([s // a.itemsize for s in a.strides] for a in (x, y, z))
    return plan((Term(m, x0, 0, z0), Term(n, 0, y1, z1), Term(k, x1, y0, 0))), [x, y, z]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiles_give_the_same_bits_on_processors_with_other_vectors(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    methods: set[Method] = set()
    for seed in range(60):
        found, (x, y, z) = tiled(random.Random(seed), dtype)
        methods |= {s.method for s in flat(found.stages) if isinstance(s, Multiply)}
        run(found, x, y, z)
        wide = x.astype(np.float64), y.astype(np.float64)
        bound = 20 * np.finfo(dtype).eps * (abs(wide[0]) @ abs(wide[1]))
        assert np.all(abs(z - wide[0] @ wide[1]) <= bound), seed
        assert z.base is not None
        assert np.isnan(z.base[:, z.shape[1] :]).all()
        with monkeypatch.context() as patch:
            patch.setenv("HLOOM_CPU", "-avx512f")
            other = np.full_like(z.base, np.nan)[:, : z.shape[1]]
            run(found, x, y, other)
        assert z.tobytes() == other.tobytes()
    assert Method.TILES in methods


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize(
    ("m", "n", "k", "lead"), [(250, 130, 1030, 512), (17, 65, 60, 1024), (512, 70, 100, 512), (700, 66, 600, 1024)]
)
def test_rows_are_copied_where_columns_crowd_each_other_out(
    m: int, n: int, k: int, lead: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A left matrix that lies by columns at a distance of a power of two gives the bits of one that lies by rows."""
    random = np.random.default_rng(m)
    x = (8 * random.standard_normal((k, lead))).astype(dtype)[:, :m].T
    y = (8 * random.standard_normal((k, n))).astype(dtype)

    def given(x: Array) -> tuple[ProductPlan, Array]:
        x0, x1 = (s // x.itemsize for s in x.strides)
        found = plan((Term(m, x0, 0, n), Term(n, 0, 1, 1), Term(k, x1, n, 0)), by_blas=False)
        z = np.empty((m, n), dtype)
        run(found, x, y, z)
        return found, z

    (by_columns, z), (by_rows, wanted) = given(x), given(np.ascontiguousarray(x))
    assert [[s.rows is None for s in multiplies(p)] for p in (by_columns, by_rows)] == [[False], [True]]
    assert z.tobytes() == wanted.tobytes()
    monkeypatch.setenv("HLOOM_CPU", "-avx512f")
    assert given(x)[1].tobytes() == wanted.tobytes()


def test_a_broadcast_batch_becomes_rows() -> None:
    batch, row, column, inner = Term(8, 64 * 32, 0, 64 * 16), Term(64, 32, 0, 16), Term(16, 0, 1, 1), Term(32, 1, 16, 0)
    (only,) = plan((batch, row, column, inner)).stages
    assert isinstance(only, Multiply)
    assert (only.row.size, only.loops) == (512, ())


def test_terms_merge_only_where_all_strides_nest() -> None:
    assert merged([Term(2, 12, 0, 15), Term(1, 9, 9, 9), Term(3, 4, 0, 5)]) == [Term(6, 4, 0, 5)]
    assert len(merged([Term(2, 12, 0, 16), Term(3, 4, 0, 5)])) == 2


def test_a_batch_in_the_last_dimension_needs_no_copy() -> None:
    batch, size = 32, 64
    row, column = Term(size, size * batch, 0, size), Term(size, 0, batch, 1)
    inner, many = Term(size, batch, size * batch, 0), Term(batch, 1, 1, size * size)
    found = plan((row, column, inner, many))
    assert not any(isinstance(s, CopyStage) for s in flat(found.stages))
    assert [m.method for m in multiplies(found)] == [Method.TILES]


def test_an_empty_sum_is_zero_and_an_empty_result_nothing() -> None:
    row, column = Term(5, 3, 0, 4), Term(4, 0, 1, 1)
    z = np.full((5, 4), np.nan)
    run(plan((row, column, Term(0, 1, 4, 0))), z, z, z)
    assert np.array_equal(z, np.zeros((5, 4)))
    assert plan((row, Term(0, 0, 1, 1), Term(0, 1, 4, 0))).stages == ()


def test_kinds_follow_from_strides() -> None:
    kinds = [Term(2, *strides).kind for strides in ((1, 1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0), (0, 0, 1), (1, 0, 0))]
    assert kinds == [TermRole.BATCH, TermRole.ROW, TermRole.COLUMN, TermRole.INNER, TermRole.BATCH, TermRole.INNER]


def test_results_do_not_depend_on_what_was_there() -> None:
    x, y = np.ones((3, 4)), np.ones((4, 2))
    x[1, 1] = np.inf
    y[2, 1] = np.nan
    z = np.full((3, 2), np.nan)
    run(plan((Term(3, 4, 0, 2), Term(2, 0, 1, 1), Term(4, 1, 2, 0))), x, y, z)
    np.testing.assert_array_equal(z, x @ y)
