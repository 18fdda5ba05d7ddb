"""LAPACK's custom-calls: what is not unique fits the matrix, failures are reported as LAPACK does, mistakes are said.

That unique results are XLA's is tested with the samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.codegen import manual_module
from hloom.ir.graph.op import ShapeError
from hloom.ir.ops.calls.targets import BEHAVIOURS
from hloom.ir.types.shape import tuple_shape
from ops.build import rule, shape, shapes, use
from ops.oracle import run_xla
from ops.samples_lapack import call

Array = np.ndarray[Any, Any]
TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
REAL = {"s": "f32", "d": "f64", "c": "f32", "z": "f64"}
COMPLEX = {"s": "c64", "d": "c128", "c": "c64", "z": "c128"}
HERMITIAN = {"s": "syevd", "d": "syevd", "c": "heevd", "z": "heevd"}


def matrices(kind: str, *dims: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=dims) + (1j * rng.normal(size=dims) if kind in "cz" else 0)
    return values.astype({"s": "f4", "d": "f8", "c": "c8", "z": "c16"}[kind])


def adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def near(found: Array, expected: Array) -> None:
    tolerance = 100 * float(np.finfo(found.dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def both(text: str, *inputs: Array) -> list[list[Array]]:
    """The outputs as Hloom and as XLA compute them."""
    pytest.importorskip("jax")
    return [hloom.evaluate(hloom.parse(text), list(inputs)), run_xla(text, inputs)]


@pytest.mark.parametrize("kind", TYPES)
def test_eigenvectors_of_hermitian_matrices(kind: str) -> None:
    element = TYPES[kind]
    for uplo, triangle in ((76, np.tril), (85, np.triu)):
        config = f"mode = 86 : ui8, uplo = {uplo} : ui8"
        results = [f"{element} 4,4", f"{REAL[kind]} 4", "s32 "]
        a = matrices(kind, 3, 4, 4)
        a = a + adjoint(a)
        for vectors, values, info in both(
            call(f"lapack_{kind}{HERMITIAN[kind]}_ffi", [f"{element} 4,4"], results, config, "3"), triangle(a)
        ):
            near(vectors @ (values[..., None] * adjoint(vectors)), a)
            near(vectors @ adjoint(vectors), np.broadcast_to(np.eye(4), a.shape))
            assert not info.any()


@pytest.mark.share(3)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("routine", ["gesdd", "gesvd"])
def test_singular_vectors(kind: str, routine: str) -> None:
    element = TYPES[kind]
    for rows, columns, mode in ((5, 3, "A"), (5, 3, "S"), (3, 5, "A"), (3, 5, "S")):
        u, v = (rows, columns) if mode == "A" else (3, 3)
        given = f"{element} {rows},{columns}"
        results = [given, f"{REAL[kind]} 3", f"{element} {rows},{u}", f"{element} {v},{columns}", "s32 "]
        text = call(f"lapack_{kind}{routine}_ffi", [given], results, f"mode = {ord(mode)} : ui8", "2", "1234")
        a = matrices(kind, 2, rows, columns)
        for values, left, right, _ in both(text, a):
            near(left[..., :3] @ (values[..., None] * right[..., :3, :]), a)
            near(adjoint(left) @ left, np.broadcast_to(np.eye(u), (2, u, u)))
            near(right @ adjoint(right), np.broadcast_to(np.eye(v), (2, v, v)))


@pytest.mark.parametrize("kind", TYPES)
def test_left_and_right_eigenvectors(kind: str) -> None:
    element, vectors = TYPES[kind], f"{COMPLEX[kind]} 5,5"
    parts = [f"{element} 5"] * (2 if kind in "sd" else 1)
    config = "compute_left = 86 : ui8, compute_right = 86 : ui8"
    a = matrices(kind, 2, 5, 5)
    for *found, left, right, info in both(
        call(f"lapack_{kind}geev_ffi", [f"{element} 5,5"], [*parts, vectors, vectors, "s32 "], config, "2"), a
    ):
        values = found[0] + 1j * found[1] if len(found) > 1 else found[0]
        near(a @ right, right * values[..., None, :])
        near(adjoint(left) @ a, values[..., None] * adjoint(left))
        near(np.linalg.norm(left, axis=-2), np.ones((2, 5)))
        assert not info.any()


@pytest.mark.parametrize("kind", TYPES)
def test_schur_forms(kind: str) -> None:
    element = f"{TYPES[kind]} 6,6"
    parts = [f"{TYPES[kind]} 6"] * (2 if kind in "sd" else 1)
    config = "mode = 86 : ui8, sort = 78 : ui8"
    a = matrices(kind, 3, 6, 6, seed=2)
    text = call(f"lapack_{kind}gees_ffi", [element], [element, element, *parts, "s32 ", "s32 "], config, "3")
    for form, vectors, *found, _, info in both(text, a):
        near(vectors @ form @ adjoint(vectors), a)
        near(vectors @ adjoint(vectors), np.broadcast_to(np.eye(6), a.shape))
        beside = np.diagonal(form, -1, -2, -1)
        assert not np.tril(form, -2).any()
        assert not (beside[:, 1:] * beside[:, :-1]).any()
        assert (kind in "sd") == beside.any()
        values = found[0] + 1j * found[1] if len(found) > 1 else found[0]
        for mine, true in zip(values, np.linalg.eigvals(a), strict=True):
            assert max(np.min(np.abs(mine - value)) for value in true) < 1e-4
        np.testing.assert_allclose(np.diagonal(form, 0, -2, -1), found[0], rtol=1e-4, atol=1e-5)
        assert not info.any()


def test_schur_form_of_a_defective_matrix() -> None:
    a = np.array([[1.0, 1, 0, 2], [0, 1, 1, 0], [0, 0, 1, 3], [0, 0, 0, 1]])
    q = np.linalg.qr(matrices("d", 4, 4))[0]
    text = call("lapack_dgees_ffi", ["f64 4,4"], ["f64 4,4", "f64 4,4", "f64 4", "f64 4", "s32 ", "s32 "],
                "mode = 86 : ui8, sort = 78 : ui8")  # fmt: skip
    form, vectors, *_ = hloom.evaluate(hloom.parse(text), [q @ a @ q.T])
    near(vectors @ form @ vectors.T, q @ a @ q.T)
    near(vectors @ vectors.T, np.eye(4))


def test_what_has_no_result_is_counted_as_lapack_does() -> None:
    a = np.stack([np.diag([1.0, 2, 3]), np.diag([1.0, 2, -3]), np.diag([-1.0, 2, 3])])
    text = call("lapack_dpotrf_ffi", ["f64 3,3"], ["f64 3,3", "s32 "], "uplo = 76 : ui8", "3", "1")
    for (info,) in both(text, a):
        assert info.tolist() == [0, 3, 1]
    a = np.stack([np.eye(3), np.diag([1.0, 0, 3]), np.zeros((3, 3))])
    text = call("lapack_dgetrf_ffi", ["f64 3,3"], ["f64 3,3", "s32 3", "s32 "], "", "3")
    for factors, pivots, info in both(text, a):
        assert info.tolist() == [0, 2, 1]
        assert pivots.tolist() == [[1, 2, 3]] * 3
        near(factors, a)
    zero, one = np.zeros((2, 3)), np.ones((2, 3))
    one[1, 1] = 0
    text = call("lapack_dgtsv_ffi", ["f64 3"] * 3 + ["f64 3,1"], ["f64 3"] * 3 + ["f64 3,1", "s32 "], "", "2", "4")
    for (info,) in both(text, zero, one, zero, one[..., None]):
        assert info.tolist() == [0, 2]


def test_no_convergence_is_nan_for_that_matrix_alone() -> None:
    a = np.stack([np.full((3, 3), np.nan), np.eye(3)])
    text = call("lapack_dgesdd_ffi", ["f64 3,3"], ["f64 3,3", "f64 3", "f64 3,3", "f64 3,3", "s32 "],
                "mode = 65 : ui8", "2", "14")  # fmt: skip
    values, info = hloom.evaluate(hloom.parse(text), [a])
    assert np.isnan(values[0]).all()
    np.testing.assert_array_equal(values[1], np.ones(3))
    assert (info[0] != 0, info[1]) == (True, 0)


def test_the_matrices_of_a_stack_that_fail_are_nan_and_no_others() -> None:
    a = np.stack([np.eye(3) * (n + 1) for n in range(7)])
    a[[0, 3, 4]] = np.nan
    text = call("lapack_dsyevd_ffi", ["f64 3,3"], ["f64 3,3", "f64 3", "s32 "], "mode = 86 : ui8, uplo = 76 : ui8", "7")
    vectors, values, info = hloom.evaluate(hloom.parse(text), [a])
    bad = info != 0
    assert bad.tolist() == [True, False, False, True, True, False, False]
    assert np.isnan(vectors[bad]).all()
    assert np.isnan(values[bad]).all()
    np.testing.assert_array_equal(values[~bad], a[~bad, 0, :1] * np.ones(3))


@pytest.mark.parametrize("kind", TYPES)
def test_products_with_the_factor_q_from_each_side(kind: str) -> None:
    real, element = kind in "sd", TYPES[kind]
    a, c = matrices(kind, 2, 60, 50), matrices(kind, 2, 60, 60, seed=1)
    q = np.linalg.qr(a, mode="complete")[0]
    packed, taus = np.linalg.qr(a, mode="raw")
    for left in (True, False):
        for transpose in (True, False):
            text = call(f"lapack_{kind}{'ormqr' if real else 'unmqr'}_ffi",
                        [f"{element} 60,50", f"{element} 50", f"{element} 60,60"], [f"{element} 60,60"],
                        f"left = {str(left).lower()}, transpose = {str(transpose).lower()}", "2")  # fmt: skip
            (found,) = hloom.evaluate(hloom.parse(text), [np.swapaxes(packed, -1, -2), taus, c])
            factor = adjoint(q) if transpose else q
            near(found, factor @ c if left else c @ factor)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n", [1, 2, 30])
def test_tridiagonal_systems(kind: str, n: int) -> None:
    element, b = TYPES[kind], matrices(kind, 5, n, 2, seed=1)
    below, diagonal, above = (matrices(kind, 5, n, seed=2 + part) for part in range(3))  # most need swaps
    diagonal[3, 0] = below[3, 1 % n] = 0  # the first column
    given, results = [f"{element} {n}"] * 3 + [f"{element} {n},2"], [f"{element} {n},2", "s32 "]
    text = call(f"lapack_{kind}gtsv_ffi", given, [f"{element} {n}"] * 3 + results, "", "5", "34")
    x, info = hloom.evaluate(hloom.parse(text), [below, diagonal, above, b])
    (perturbed,) = hloom.evaluate(
        hloom.parse(call("tridiagonal_solve_perturbed_ffi", given, results[:1], "", "5")), [below, diagonal, above, b]
    )
    assert info.tolist() == [0, 0, 0, 1, 0]
    assert np.isnan(x[3]).all()
    assert np.isfinite(perturbed).all()
    for i in (0, 1, 2, 4):
        a = np.diag(diagonal[i]) + np.diag(below[i, 1:], -1) + np.diag(above[i, :-1], 1)
        for found in (x[i], perturbed[i]):
            tolerance = 50 * float(np.finfo(found.dtype).eps * np.abs(found).max())
            np.testing.assert_allclose(a @ found, b[i], rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("routine", "results", "config"),
    [
        ("getrf", ["f64 40,40", "s32 40", "s32 "], ""),
        ("potrf", ["f64 40,40", "s32 "], "uplo = 85 : ui8"),
        ("geqrf", ["f64 40,40", "f64 40"], ""),
    ],
)
def test_a_divided_batch_is_computed_as_a_whole_one(routine: str, results: list[str], config: str) -> None:
    text = call(f"lapack_d{routine}_ffi", ["f64 40,40"], results, config, "6")
    module = hloom.parse(text.replace("parameter(0)", "parameter(0), sharding={devices=[4,1,1]<=[4]}"))
    a = matrices("d", 6, 40, 40)
    a = a @ adjoint(a)
    a[4, :, 20] = a[4, 20] = 0
    wanted = hloom.evaluate(module, [a])
    for mine, yours in zip(hloom.simulate(hloom.partition(module), [a]), wanted, strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-9, atol=1e-9)
    if routine != "geqrf":
        assert wanted[-1].tolist() == [0, 0, 0, 0, 21, 0]


def test_columns_that_must_come_first() -> None:
    text = call("lapack_dgeqp3_ffi", ["f64 5,4", "s32 4"], ["f64 5,4", "s32 4", "f64 4"])
    for fixed in ([0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]):
        ours, theirs = both(text, matrices("d", 5, 4), np.array(fixed, np.int32))
        for mine, yours in zip(ours, theirs, strict=True):
            near(mine.astype(np.float64), yours)


def test_empty_matrices_and_batches() -> None:
    for batch, n in ((0, 3), (2, 0)):
        text = call("lapack_dgetrf_ffi", [f"f64 {n},{n}"], [f"f64 {n},{n}", f"s32 {n}", "s32 "], "", str(batch))
        found = hloom.evaluate(hloom.parse(text), [np.zeros((batch, n, n))])
        assert [f.shape for f in found] == [(batch, n, n), (batch, n), (batch,)]
        assert not found[2].any()


def test_every_routine_that_jax_has_is_known() -> None:
    pytest.importorskip("jax")
    from jaxlib import lapack

    names: Any = lapack.registrations()["cpu"]
    assert {name for name, *_ in names} <= set(BEHAVIOURS)
    assert len([name for name in BEHAVIOURS if name.startswith("lapack_")]) == 60


def test_rules_divide_the_batch_and_columns_of_systems() -> None:
    factors = use("custom-call", "f32[6,4,3]", _tuple("f32[6,4,3] s32[6,3] s32[6]"),
                  custom_call_target="lapack_sgetrf_ffi")  # fmt: skip
    assert rule("custom-call", factors).startswith("([i j k]) -> ([i l m], [i n], [i]) {i=6,")
    solve = use("custom-call", "f32[4,4] f32[4,8]", shape("f32[4,8]"), custom_call_target="lapack_strsm_ffi")
    config = "{diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}"
    assert rule("custom-call", replace(solve, config=config)).startswith("([i j], [i k]) -> [i k] {i=4, j=4, k=8}")


def _tuple(text: str) -> Any:
    return tuple_shape(shapes(text))


@pytest.mark.parametrize(
    ("target", "operands", "results", "message"),
    [
        ("spotrf", "f32[3,4]", "f32[3,4] s32[]", "f32[3,4] does not fit f32[m,m]"),
        ("spotrf", "f64[3,3]", "f64[3,3] s32[]", "f64[3,3] does not fit f32[m,m]"),
        ("spotrf", "f32[2,3,3]", "f32[2,3,3] s32[3]", "s32[3] does not fit s32[2]"),
        ("sgetrf", "f32[3,4]", "f32[3,4] s32[4] s32[]", "s32[4] does not fit s32[k]"),
        ("sgetrf", "f32[3,4]", "f32[3,4] s32[3]", "has other operands or results"),
        ("cheevd", "c64[3,3]", "c64[3,3] c64[3] s32[]", "c64[3] does not fit f32[m]"),
    ],
)
def test_refuses(target: str, operands: str, results: str, message: str) -> None:
    with pytest.raises(ShapeError) as error:
        use("custom-call", operands, _tuple(results), custom_call_target=f"lapack_{target}_ffi")
    assert message in error.value.message
    assert (error.value.help or "").startswith("its operands and results are T(")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", 'the backend_config of potrf has no "uplo"'),
        ("uplo = 88 : ui8", "the backend_config of potrf: uplo X is unknown"),
        ("uplo = 999 : ui8", "the backend_config of potrf: uplo 999 is unknown"),
        ("uplo = abc : ui8", 'the backend_config of potrf has no "uplo"'),
    ],
)
def test_options_that_are_missing_or_unknown(config: str, message: str) -> None:
    text = call("lapack_dpotrf_ffi", ["f64 3,3"], ["f64 3,3", "s32 "], config)
    with pytest.raises(hloom.CompileError) as error:
        hloom.evaluate(hloom.parse(text), [np.eye(3)])
    assert error.value.diagnostics[0].message == f"custom-call r: {message}"
    assert error.value.diagnostics[0].line == 5


@pytest.mark.parametrize(
    ("target", "operands", "results", "config", "message"),
    [
        ("dgehrd", ["f64 3,3"], ["f64 3,3", "f64 2", "s32 "], "low = 1 : i32, high = 5 : i32", "rows 1 to 5 of 3"),
        ("dgehrd", ["f64 3,3"], ["f64 3,3", "f64 4", "s32 "], "low = 1 : i32, high = 3 : i32", "could not broadcast"),
        ("dorgqr", ["f64 3,2", "f64 3"], ["f64 3,2"], "", "3 reflectors, 2 columns, 3 rows"),
        ("dormqr", ["f64 3,2", "f64 2", "f64 4,4"], ["f64 4,4"], "left = true, transpose = true", "matmul"),
        ("dgesdd", ["f64 3,2"], ["f64 3,2", "f64 2", "f64 3,2", "f64 2,2", "s32 "], "mode = 65 : ui8", "broadcast"),
        ("dtrsm", ["f64 3,3", "f64 2,3"], ["f64 2,3"],
         "side = 76 : ui8, uplo = 76 : ui8, diag = 78 : ui8, trans_x = 78 : ui8", "f64[2,3] must have 3 rows"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_the_options(
    target: str, operands: list[str], results: list[str], config: str, message: str
) -> None:
    module = hloom.parse(call(f"lapack_{target}_ffi", operands, results, config))
    with pytest.raises(hloom.CompileError) as error:
        hloom.evaluate(module, [np.ones(p.shape.dims) for p in module.entry.parameters])
    assert error.value.diagnostics[0].message.startswith("custom-call r: ")
    assert message in error.value.diagnostics[0].message


def test_xla_runs_what_is_partitioned_with_the_layouts_that_lapack_needs() -> None:
    pytest.importorskip("jax")
    from support.xla_runner import run_manual

    text = call("lapack_sgeqrf_ffi", ["f32 4,3"], ["f32 4,3", "f32 3"], "", "6")
    text = text.replace("parameter(0)", "parameter(0), sharding={devices=[4,1,1]<=[4]}")
    module = hloom.parse(text)
    local = hloom.partition(module)
    a = matrices("s", 6, 4, 3)
    expected = hloom.evaluate(module, [a])
    for found in (hloom.simulate(local, [a]), run_manual(manual_module(local).to_text(), [a], 4, [(6, 4, 3), (6, 3)])):
        for mine, wanted in zip(found, expected, strict=True):
            near(mine, wanted)
