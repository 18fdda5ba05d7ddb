"""Templates of the ops that compute with numbers, but for the element-wise ones (see `typed_programs`)."""

from __future__ import annotations

from ops.template import one, whole

_ADD = "add { a = E[] parameter(0) b = E[] parameter(1) ROOT c = add(a, b) }\n"
_LARGER = "larger { a = E[] parameter(0) b = E[] parameter(1) ROOT c = maximum(a, b) }\n"
_GE = "ge { a = E[] parameter(0) b = E[] parameter(1) ROOT c = compare(a, b), direction=GE }\n"
_GT = "gt { a = E[] parameter(0) b = E[] parameter(1) ROOT c = compare(a, b), direction=GT }\n"
_TAGGED = (
    "lt { a = E[] parameter(0) b = E[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) "
    "ROOT r = compare(a, b), direction=LT }\n"
)
_SCATTERED = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
_ROWS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_BATCH = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
_EXPERTS = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
_SCALED = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
_SCANNED = """f {
  x = E[3] parameter(0)
  c = E[3] parameter(1)
  s = add(c, x)
  ROOT t = tuple(x, s)
}
"""
_CHOSEN = """f {
  x = E[] parameter(0)
  p = pred[] parameter(1)
  c = E[] parameter(2)
  s = select(p, x, c)
  ROOT t = tuple(c, s)
}
"""
# A matrix with a large diagonal, so that either triangle is that of a positive definite matrix.
_MATRICES = (
    "x = E[3,3] parameter(0)",
    "i = s32[3,3] iota(), iota_dimension=0",
    "j = s32[3,3] iota(), iota_dimension=1",
    "p = compare(i, j), direction=EQ",
    "c = s32[] constant(8)",
    "f = E[] convert(c)",
    "g = E[3,3] broadcast(f), dimensions={}",
    "a = select(p, g, x)",
)


def _norm(opcode: str, dims: str, feature: int) -> str:
    """One batch normalisation of positive numbers."""
    vector, arrays = f"E[{dims.split(',')[feature]}]", f"E[{dims}]"
    operands = {
        "training": [arrays, *[vector] * 2],
        "inference": [arrays, *[vector] * 4],
        "grad": [arrays, *[vector] * 3, arrays],
    }[opcode]
    attributes = f"epsilon=0.001, feature_index={feature}"
    return one(f"batch-norm-{opcode}", " ".join(operands), attributes, inputs="positive")


def _bits(state: str, numbers: str, algorithm: str) -> str:
    """Random bits, as unsigned numbers: XLA forgets that they are signed where they leave the program."""
    made = f"r = ({state}, E[{numbers}]) rng-bit-generator(s), algorithm={algorithm}"
    return whole(
        "",
        f"s = {state} parameter(0)",
        made,
        "t = get-tuple-element(r), index=0",
        "n = get-tuple-element(r), index=1",
        f"b = B[{numbers}] bitcast-convert(n)",
        "ROOT u = tuple(t, b)",
        inputs="special",
    )


TEMPLATES: dict[str, tuple[str, ...]] = {
    "dot": (one("dot", "E[3,5] E[5,4]", _ROWS), one("dot", "E[2,3,4] E[2,4,5]", _BATCH)),
    "convolution": (
        one("convolution", "E[1,6,2] E[3,2,4]", "window={size=3}, dim_labels=b0f_0io->b0f"),
        one("convolution", "E[2,5,4,2] E[2,2,2,3]", "window={size=2x2 pad=0_1x1_0}, dim_labels=b01f_01io->b01f"),
    ),
    "ragged-dot": (
        whole(
            "",
            "x = E[8,4] parameter(0)",
            "y = E[3,4,5] parameter(1)",
            "s = s32[3] constant({2, 0, 6})",
            f"ROOT r = ragged-dot(x, y, s), {_EXPERTS}",
        ),
        whole(
            "",
            "x = E[6,4] parameter(0)",
            "y = E[3,2] parameter(1)",
            "s = s32[2] constant({1, 3})",
            f"ROOT r = ragged-dot(x, y, s), {_EXPERTS}",
        ),
    ),
    "scaled-dot": (
        one("scaled-dot", "E[6,8] E[5,8] f8e8m0fnu[6,2] f8e8m0fnu[5,2]", _SCALED, inputs="positive"),
        one("scaled-dot", "E[6,8] E[5,8] E[6,1] E[1,1]", _SCALED, inputs="positive"),
    ),
    "reduce": (
        whole(
            _ADD,
            "x = E[3,5] parameter(0)",
            "z = E[] parameter(1)",
            "ROOT r = reduce(x, z), dimensions={1}, to_apply=add",
        ),
        whole(
            _LARGER,
            "x = E[3,5] parameter(0)",
            "z = E[] parameter(1)",
            "ROOT r = reduce(x, z), dimensions={0}, to_apply=larger",
        ),
    ),
    "reduce-window": (
        whole(
            _ADD,
            "x = E[7] parameter(0)",
            "z = E[] constant(ZERO)",
            "ROOT r = reduce-window(x, z), window={size=3 stride=2 pad=1_1}, to_apply=add",
        ),
        whole(
            _LARGER,
            "x = E[4,5] parameter(0)",
            "z = E[] constant(ZERO)",
            "ROOT r = reduce-window(x, z), window={size=2x2 pad=0_1x1_0}, to_apply=larger",
        ),
    ),
    "scatter": tuple(
        whole(
            body,
            "x = E[6,3] parameter(0)",
            "i = s32[4,1] constant({{1}, {5}, {1}, {9}})",
            "u = E[4,3] parameter(1)",
            f"ROOT r = scatter(x, i, u), {_SCATTERED}, to_apply={name}",
        )
        for body, name in ((_ADD, "add"), (_LARGER, "larger"))
    ),
    "select-and-scatter": (
        whole(
            _ADD + _GE,
            "x = E[6] parameter(0)",
            "s = E[3] parameter(1)",
            "z = E[] constant(ZERO)",
            "ROOT r = select-and-scatter(x, s, z), window={size=2 stride=2}, select=ge, scatter=add",
        ),
        whole(
            _LARGER + _GE,
            "x = E[4,6] parameter(0)",
            "s = E[2,3] parameter(1)",
            "z = E[] constant(ZERO)",
            "ROOT r = select-and-scatter(x, s, z), window={size=2x2 stride=2x2}, select=ge, scatter=larger",
        ),
    ),
    "sort": (
        whole(
            _TAGGED,
            "x = E[9] parameter(0)",
            "n = s32[9] iota(), iota_dimension=0",
            "ROOT r = sort(x, n), dimensions={0}, is_stable=true, to_apply=lt",
        ),
        whole(_GT, "x = E[4,6] parameter(0)", "ROOT r = sort(x), dimensions={1}, is_stable=true, to_apply=gt"),
    ),
    "topk": (
        one("topk", "E[3,8]", "k=2", inputs="special"),
        one("topk", "E[9]", "k=4, largest=false", inputs="special"),
    ),
    "scan": (
        whole(
            _SCANNED,
            "x = E[3,5] parameter(0)",
            "c = E[3] parameter(1)",
            "ROOT r = (E[3,5], E[3]) scan(x, c), dimensions={1}, num_carries=1, to_apply=f",
        ),
        whole(
            _CHOSEN,
            "x = E[6] parameter(0)",
            "p = pred[6] parameter(1)",
            "c = E[] parameter(2)",
            "ROOT r = (E[6], E[]) scan(x, p, c), dimensions={0}, num_carries=1, is_reverse=true, to_apply=f",
        ),
    ),
    "reduce-precision": tuple(
        one("reduce-precision", "E[40]", f"exponent_bits={e}, mantissa_bits={m}", inputs="special")
        for e, m in ((5, 2), (8, 7), (2, 1))
    ),
    "stochastic-convert": tuple(
        one("stochastic-convert", "E[40] B[40]", "", f"{t}[40]", "special") for t in ("s8", "s32")
    ),
    "fft": (
        one("fft", "E[3,8]", "fft_type=FFT, fft_length={8}"),
        one("fft", "E[2,3,4]", "fft_type=IFFT, fft_length={3,4}"),
        one("fft", "E[3,8]", "fft_type=RFFT, fft_length={8}"),
        one("fft", "E[4,7]", "fft_type=RFFT, fft_length={4,7}"),
        one("fft", "E[3,5]", "fft_type=IRFFT, fft_length={8}"),
    ),
    "cholesky": (
        whole("", *_MATRICES, "ROOT r = cholesky(a), lower=true"),
        whole("", *_MATRICES, "ROOT r = cholesky(a)"),
    ),
    "triangular-solve": (
        whole(
            "",
            *_MATRICES,
            "b = E[3,2] parameter(1)",
            "ROOT r = triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
        ),
        whole("", *_MATRICES, "b = E[2,3] parameter(1)", "ROOT r = triangular-solve(a, b), transpose_a=ADJOINT"),
    ),
    "rng-bit-generator": (_bits("u64[2]", "7", "rng_three_fry"), _bits("u64[3]", "15", "rng_philox")),
    "batch-norm-training": (_norm("training", "4,3,5", 2), _norm("training", "4,7", 0)),
    "batch-norm-inference": (_norm("inference", "4,3,5", 2), _norm("inference", "4,3", 0)),
    "batch-norm-grad": (_norm("grad", "4,3,5", 2), _norm("grad", "4,3", 0)),
}
