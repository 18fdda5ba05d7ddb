"""Uses of ops in which factors stand in other values than in the samples of the ops: for `test_factor_partition`."""

from __future__ import annotations

_PAIRS = """pairs { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  s = f32[] add(a, c) t = f32[] add(b, d) ROOT r = (f32[], f32[]) tuple(s, t) }
"""
_BEFORE = """before { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  e = pred[] parameter(4) f = pred[] parameter(5) ROOT r = pred[] compare(a, b), direction=LT }
"""


def _use(operands: str, result: str, call: str, computations: str = "") -> str:
    """A module of one call of `x0, x1, ..`, which have these shapes (with blanks between); `@` stands for them all."""
    shapes = operands.split()
    lines = "".join(f"  x{n} = {shape} parameter({n})\n" for n, shape in enumerate(shapes))
    call = call.replace("@", ", ".join(f"x{n}" for n in range(len(shapes))))
    return f"HloModule m\n{computations}ENTRY e {{\n{lines}  ROOT r = {result} {call}\n}}\n"


def _scaled(operands: str, result: str, batch: tuple[str, str] = ("", ""), contract: tuple[str, str] = ("", "")) -> str:
    return _use(operands, result, (
        f"scaled-dot(@), lhs_batch_dims={{{batch[0]}}}, lhs_contracting_dims={{{contract[0]}}}, "
        f"rhs_batch_dims={{{batch[1]}}}, rhs_contracting_dims={{{contract[1]}}}"
    ))  # fmt: skip


SAMPLES: dict[str, list[str]] = {
    "custom-call": [
        _use("s32[3]", "s32[3]", 'custom-call(@), custom_call_target="PinToDevice"'),
        _use("f32[4]", "f32[4]", 'custom-call(@), custom_call_target="annotate_device_placement"'),
    ],
    "concatenate": [
        _use("f32[3] f32[2] f32[0]", "f32[5]", "concatenate(@), dimensions={0}"),
        _use("f32[3] f32[0] f32[2]", "f32[5]", "concatenate(@), dimensions={0}"),
        _use("f32[0] f32[3] f32[2]", "f32[5]", "concatenate(@), dimensions={0}"),
        _use("f32[3] f32[0]", "f32[3]", "concatenate(@), dimensions={0}"),
    ],
    "convolution": [
        _use("f32[3,1,2] f32[2,3,1]", "f32[1,2,1]",
             "convolution(@), window={size=3 stride=3 pad=2_-1 lhs_dilate=2}, dim_labels=0bf_i0o->b0f"),
    ],
    "dynamic-slice": [
        _use("f32[3,3,2] s32[] s32[] s32[]", "f32[3,3,2]", "dynamic-slice(@), dynamic_slice_sizes={3,3,2}"),
        _use("f32[3,1,1] s32[] s32[] s32[]", "f32[2,1,1]", "dynamic-slice(@), dynamic_slice_sizes={2,1,1}"),
        _use("s32[2] s32[]", "s32[2]", "dynamic-slice(@), dynamic_slice_sizes={2}"),
    ],
    "dynamic-update-slice": [
        _use("f32[7,1,2] f32[3,1,2] s32[] s32[] s32[]", "f32[7,1,2]", "dynamic-update-slice(@)"),
        _use("u8[3] u8[1] s32[]", "u8[3]", "dynamic-update-slice(@)"),
    ],
    "scaled-dot": [
        _scaled("f32[5,5] f32[5,5,3] bf16[5,5] bf16[5,1,1]", "f32[5,5,3]", ("0,1", "0,1")),
        _scaled("f32[3] f32[3] f8e8m0fnu[] bf16[]", "f32[3]", ("0", "0")),
        _scaled("f32[3] f32[3] f8e8m0fnu[3] bf16[3]", "f32[3]", ("0", "0")),
        _scaled("f32[3] f32[3] f8e8m0fnu[] bf16[3]", "f32[3]", ("0", "0")),
        _scaled("f8e4m3fn[5] f8e4m3fn[5] f8e8m0fnu[5] f8e8m0fnu[1]", "f32[]", contract=("0", "0")),
        _scaled("f32[3] f32[5,3] f8e8m0fnu[3] f8e8m0fnu[1,3]", "f32[5]", contract=("0", "1")),
        _scaled("f32[12,6,1] f32[1,6,12] bf16[12,6,1] bf16[1,3,3]", "f32[12,1]", ("0,2", "2,0"), ("1", "1")),
        _scaled("f8e4m3fn[3,6] f8e4m3fn[3] f8e8m0fnu[] f8e8m0fnu[3]", "f32[6]", contract=("0", "0")),
        _scaled("f8e4m3fn[4] f8e4m3fn[6,4,4] bf16[2] f8e8m0fnu[3,2,4]", "f32[4,6,4]", ("0", "2")),
        _scaled("f8e5m2[8] f8e5m2[8,1] f8e8m0fnu[4] bf16[1,1]", "f32[8,1]", ("0", "0")),
        _scaled("f8e4m3fn[4] f8e4m3fn[] f8e8m0fnu[2] f8e8m0fnu[]", "f32[4]"),
    ],
    "scatter": [
        _use("f32[3,4] f32[3,4] s32[4,1] f32[4] f32[4]", "(f32[3,4], f32[3,4])",
             "scatter(@), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
             "input_batching_dims={1}, scatter_indices_batching_dims={0}, index_vector_dim=1, to_apply=pairs", _PAIRS),
        _use("f32[5] f32[5] s32[1] f32[2] f32[2]", "(f32[5], f32[5])",
             "scatter(@), update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
             "index_vector_dim=0, to_apply=pairs", _PAIRS),
    ],
    "select": [_use("pred[] u8[3] u8[3]", "u8[3]", "select(@)")],
    "sort": [
        _use("f32[6,2] f32[6,2] pred[6,2]", "(f32[6,2], f32[6,2], pred[6,2])",
             "sort(@), dimensions={0}, is_stable=true, to_apply=before", _BEFORE),
        _use("f32[9] f32[9] pred[9]", "(f32[9], f32[9], pred[9])",
             "sort(@), dimensions={0}, is_stable=true, to_apply=before", _BEFORE),
    ],
}  # fmt: skip
