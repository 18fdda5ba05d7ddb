"""Samples of LAPACK's custom-calls, as JAX writes them: matrices by columns, options as letters in ASCII.

Only what is unique is a result: no eigenvectors or singular vectors, which are tested in test_lapack.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.samples_linear_algebra import cholesky_text, solve_text

Parts = Sequence[str]  # shapes of one matrix, as in `f32 4,3`


def _shape(part: str, batch: str) -> str:
    """One array of the batch, the last dimension but one being minor."""
    element, _, own = part.partition(" ")
    dims = [d for d in (*batch.split(","), *own.split(",")) if d]
    order = [str(n) for n in reversed(range(len(dims)))]
    if "," in own:
        order[:2] = order[1::-1]
    layout = f"{{{','.join(order)}}}" if order else ""
    return f"{element}[{','.join(dims)}]{layout}"


def attributes(routine: str, operands: Sequence[str], config: str) -> str:
    """What stands behind the operands."""
    return (
        f'custom_call_target="{routine}", operand_layout_constraints={{{", ".join(operands)}}}, '
        f"api_version=API_VERSION_TYPED_FFI, backend_config={{{config}}}"
    )


def call(routine: str, operands: Parts, results: Parts, config: str = "", batch: str = "", keep: str = "") -> str:
    """A module of one call; of its results those at the places in `keep` (or all)."""
    given, made = ([_shape(part, batch) for part in parts] for parts in (operands, results))
    lines = [f"x{n} = {shape} parameter({n})" for n, shape in enumerate(given)]
    names = ", ".join(f"x{n}" for n in range(len(given)))
    places = [int(n) for n in keep] if keep else list(range(len(made)))
    if len(made) == 1:
        lines.append(f"ROOT r = {made[0]} custom-call({names}), {attributes(routine, given, config)}")
    else:
        lines.append(f"r = ({', '.join(made)}) custom-call({names}), {attributes(routine, given, config)}")
        lines += [f"y{n} = {made[n]} get-tuple-element(r), index={n}" for n in places]
        kept = ", ".join(f"y{n}" for n in places)
        lines.append(f"ROOT t = ({', '.join(made[n] for n in places)}) tuple({kept})")
    body = "\n".join(f"  {line}" for line in lines)
    return f"// as: cholesky\nHloModule m\nENTRY e {{\n{body}\n}}\n"


def _potrf(routine: str, element: str, batch: str, uplo: int) -> str:
    """The factor of a positive matrix, which the program makes."""
    text = cholesky_text(element, batch, 4, "")
    matrix, info = _shape(f"{element} 4,4", batch), _shape("s32 ", batch)
    root = f"ROOT r = {element}[{batch}4,4] cholesky(s)"
    assert root in text
    return "// as: cholesky" + text.replace(
        root, f"ROOT r = ({matrix}, {info}) custom-call(s), {attributes(routine, [matrix], f'uplo = {uplo} : ui8')}"
    )


def _trsm(routine: str, element: str, batch: str, b: str, options: str) -> str:
    """The solution of a well-conditioned system, which the program makes; `options` are side, uplo, diag, trans_x."""
    text = solve_text(element, batch, 4, b, "")
    given = [_shape(f"{element} 4,4", batch), _shape(f"{element} {b}", batch)]
    names = ("side", "uplo", "diag", "trans_x")
    config = ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in zip(names, options, strict=True))
    root = f"ROOT r = {element}[{batch}{b}] triangular-solve(a, b)"
    assert root in text
    called = f"ROOT r = {given[1]} custom-call(a, b), {attributes(routine, given, config)}"
    return "// as: cholesky" + text.replace(root, called)


_BOTH = "compute_left = 86 : ui8, compute_right = 86 : ui8"
_EIG = "mode = 86 : ui8, uplo = 76 : ui8"
_EIG_UPPER = "mode = 78 : ui8, uplo = 85 : ui8"

# With these every routine runs with all of its types.
_OTHER_TYPES = [
    _potrf("lapack_zpotrf_ffi", "c128", "", 76),
    call("lapack_cgetrf_ffi", ["c64 3,3"], ["c64 3,3", "s32 3", "s32 "]),
    *(
        call(f"lapack_{letter}geqrf_ffi", [f"{e} 4,3"], [f"{e} 4,3", f"{e} 3"])
        for letter, e in (("d", "f64"), ("c", "c64"))
    ),
    call("lapack_dorgqr_ffi", ["f64 4,3", "f64 3"], ["f64 4,3"]),
    call("lapack_zungqr_ffi", ["c128 4,3", "c128 3"], ["c128 4,3"]),
    call("lapack_sormqr_ffi", ["f32 4,3", "f32 3", "f32 4,2"], ["f32 4,2"], "left = true, transpose = false"),
    call("lapack_zunmqr_ffi", ["c128 4,3", "c128 3", "c128 4,2"], ["c128 4,2"], "left = true, transpose = true"),
    call("lapack_dsyevd_ffi", ["f64 4,4"], ["f64 4,4", "f64 4", "s32 "], _EIG, "", "12"),
    call("lapack_cheevd_ffi", ["c64 4,4"], ["c64 4,4", "f32 4", "s32 "], _EIG, "", "12"),
    *(
        call(
            f"lapack_{letter}gesdd_ffi",
            [f"{e} 4,3"],
            [f"{e} 4,3", f"{part} 3", f"{e} 4,4", f"{e} 3,3", "s32 "],
            "mode = 65 : ui8",
            "",
            "14",
        )
        for letter, e, part in (("d", "f64", "f64"), ("c", "c64", "f32"), ("z", "c128", "f64"))
    ),
    *(
        call(
            f"lapack_{letter}gesvd_ffi",
            [f"{e} 4,3"],
            [f"{e} 4,3", f"{part} 3", f"{e} 4,4", f"{e} 3,3", "s32 "],
            "mode = 65 : ui8",
            "",
            "14",
        )
        for letter, e, part in (("s", "f32", "f32"), ("d", "f64", "f64"), ("z", "c128", "f64"))
    ),
    call("lapack_sgeev_ffi", ["f32 3,3"], ["f32 3", "f32 3", "c64 3,3", "c64 3,3", "s32 "], _BOTH, "", "014"),
    call("lapack_zgeev_ffi", ["c128 3,3"], ["c128 3", "c128 3,3", "c128 3,3", "s32 "], _BOTH, "", "03"),
    call("lapack_sgehrd_ffi", ["f32 4,4"], ["f32 4,4", "f32 3", "s32 "], "low = 1 : i32, high = 4 : i32"),
    call("lapack_cgehrd_ffi", ["c64 4,4"], ["c64 4,4", "c64 3", "s32 "], "low = 1 : i32, high = 4 : i32"),
    call("lapack_dsytrd_ffi", ["f64 4,4"], ["f64 4,4", "f64 4", "f64 3", "f64 3", "s32 "], "uplo = 85 : ui8"),
    call("lapack_chetrd_ffi", ["c64 4,4"], ["c64 4,4", "f32 4", "f32 3", "c64 3", "s32 "], "uplo = 76 : ui8"),
    *(
        call(
            f"lapack_{letter}gtsv_ffi",
            [f"{e} 4"] * 3 + [f"{e} 4,2"],
            [f"{e} 4"] * 3 + [f"{e} 4,2", "s32 "],
            "",
            "",
            "34",
        )
        for letter, e in (("s", "f32"), ("c", "c64"), ("z", "c128"))
    ),
    call("tridiagonal_solve_perturbed_ffi", ["f32 4"] * 3 + ["f32 4,2"], ["f32 4,2"]),
]

SAMPLES: dict[str, list[str]] = {
    "custom-call": [
        _potrf("lapack_spotrf_ffi", "f32", "3,", 76),
        _potrf("lapack_dpotrf_ffi", "f64", "", 85),
        _potrf("lapack_cpotrf_ffi", "c64", "2,", 85),
        _trsm("lapack_strsm_ffi", "f32", "3,", "4,2", "LLNN"),
        _trsm("lapack_dtrsm_ffi", "f64", "", "3,4", "RUUT"),
        _trsm("lapack_ctrsm_ffi", "c64", "2,", "4,5", "LUNC"),
        _trsm("lapack_ztrsm_ffi", "c128", "2,", "2,4", "RLNC"),
        call("lapack_sgetrf_ffi", ["f32 4,4"], ["f32 4,4", "s32 4", "s32 "], batch="3"),
        call("lapack_dgetrf_ffi", ["f64 5,3"], ["f64 5,3", "s32 3", "s32 "]),
        call("lapack_zgetrf_ffi", ["c128 3,5"], ["c128 3,5", "s32 3", "s32 "], batch="2"),
        call("lapack_sgeqrf_ffi", ["f32 5,3"], ["f32 5,3", "f32 3"], batch="2,2"),
        call("lapack_zgeqrf_ffi", ["c128 3,4"], ["c128 3,4", "c128 3"]),
        call("lapack_sorgqr_ffi", ["f32 5,4", "f32 3"], ["f32 5,4"], batch="3"),
        call("lapack_cungqr_ffi", ["c64 4,4", "c64 3"], ["c64 4,4"]),
        call("lapack_dormqr_ffi", ["f64 5,3", "f64 3", "f64 5,2"], ["f64 5,2"], "left = true, transpose = true", "2"),
        call("lapack_cunmqr_ffi", ["c64 5,3", "c64 3", "c64 2,5"], ["c64 2,5"], "left = false, transpose = false"),
        call("lapack_ssyevd_ffi", ["f32 4,4"], ["f32 4,4", "f32 4", "s32 "], _EIG, "3", "12"),
        call("lapack_zheevd_ffi", ["c128 4,4"], ["c128 4,4", "f64 4", "s32 "], _EIG_UPPER, "", "12"),
        call("lapack_sgesdd_ffi", ["f32 5,3"], ["f32 5,3", "f32 3", "f32 5,5", "f32 3,3", "s32 "],
             "mode = 65 : ui8", "3", "14"),
        call("lapack_cgesvd_ffi", ["c64 2,3"], ["c64 2,3", "f32 2", "c64 2,2", "c64 2,3", "s32 "],
             "mode = 83 : ui8", "", "14"),
        call("lapack_dgeev_ffi", ["f64 4,4"], ["f64 4", "f64 4", "c128 4,4", "c128 4,4", "s32 "], _BOTH, "2", "014"),
        call("lapack_cgeev_ffi", ["c64 3,3"], ["c64 3", "c64 3,3", "c64 3,3", "s32 "], _BOTH, "", "03"),
        call("lapack_dgehrd_ffi", ["f64 5,5"], ["f64 5,5", "f64 4", "s32 "], "low = 1 : i32, high = 5 : i32", "2"),
        call("lapack_zgehrd_ffi", ["c128 4,4"], ["c128 4,4", "c128 3", "s32 "], "low = 1 : i32, high = 4 : i32"),
        call("lapack_ssytrd_ffi", ["f32 4,4"], ["f32 4,4", "f32 4", "f32 3", "f32 3", "s32 "], "uplo = 76 : ui8", "2"),
        call("lapack_zhetrd_ffi", ["c128 4,4"], ["c128 4,4", "f64 4", "f64 3", "c128 3", "s32 "], "uplo = 85 : ui8"),
        call("lapack_dgtsv_ffi", ["f64 4", "f64 4", "f64 4", "f64 4,2"], ["f64 4", "f64 4", "f64 4", "f64 4,2", "s32 "],
             "", "3", "34"),
        call("tridiagonal_solve_perturbed_ffi", ["f64 4", "f64 4", "f64 4", "f64 4,2"], ["f64 4,2"], "", "2"),
        *_OTHER_TYPES,
    ]
}  # fmt: skip
