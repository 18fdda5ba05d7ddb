"""Samples of the element-wise ops: one module per opcode and type of elements."""

from __future__ import annotations

from ops.template import one

SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
NUMBERS = (*INTEGERS, *FLOATS)


def sample(opcode: str, operands: str, result: str, attributes: str = "", inputs: str = "special") -> str:
    """A module whose parameters have the space-separated shapes `operands`."""
    return one(opcode, operands, attributes, result, inputs, f"HloModule {opcode}\n\n")


def _plain(opcode: str, arity: int, elements: tuple[str, ...], xla: bool = True) -> list[str]:
    result: list[str] = []
    for element in elements:
        shapes = [f"{element}[16,32]", *([f"{element}[]"] if element in ("f32", "s32") else [])]
        result += [sample(opcode, " ".join([s] * arity), s) for s in shapes]
    return result if xla else ["// xla: no\n" + text for text in result]


UNARY: dict[str, tuple[str, ...]] = {
    "negate": (*NUMBERS, *COMPLEX),
    "sign": (*SIGNED, *FLOATS, *COMPLEX),
    "not": ("pred", *INTEGERS),
    "popcnt": INTEGERS,
    "count-leading-zeros": INTEGERS,
    "ceil": FLOATS,
    "floor": FLOATS,
    "round-nearest-afz": FLOATS,
    "round-nearest-even": FLOATS,
    "erf": FLOATS,
    "cbrt": FLOATS,
    **dict.fromkeys(
        ("cosine", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "sine", "sqrt",
         "tan", "tanh"),
        (*FLOATS, *COMPLEX),
    ),
}  # fmt: skip

BINARY: dict[str, tuple[str, ...]] = {
    "add": ("pred", *NUMBERS, "s4", "u4", "f8e4m3fn", "f8e5m2", *COMPLEX),
    "subtract": (*NUMBERS, *COMPLEX),
    "multiply": ("pred", *NUMBERS, "f8e4m3fn", "f8e5m2", *COMPLEX),
    "divide": (*NUMBERS, *COMPLEX),
    "remainder": NUMBERS,
    "power": (*NUMBERS, *COMPLEX),
    "maximum": ("pred", *NUMBERS, *COMPLEX),
    "minimum": ("pred", *NUMBERS, *COMPLEX),
    "atan2": (*FLOATS, *COMPLEX),
    **dict.fromkeys(("and", "or", "xor"), ("pred", *INTEGERS)),
    **dict.fromkeys(("shift-left", "shift-right-arithmetic", "shift-right-logical"), INTEGERS),
}

# What XLA reads but does not compile on CPU.
UNSUPPORTED: dict[str, tuple[int, tuple[str, ...]]] = {
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"), (1, ("bf16", "f32", "c64"))),
    "mulhi": (2, INTEGERS),
}

DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")


def _compare() -> list[str]:
    result: list[str] = []
    for direction in DIRECTIONS:
        for e in ("pred", "s8", "u8", "s32", "u32", "f16", "bf16", "f32", "f64"):
            result.append(sample("compare", f"{e}[16,32] {e}[16,32]", "pred[16,32]", f"direction={direction}"))
        for e in ("f16", "bf16", "f32"):
            total = f"direction={direction}, type=TOTALORDER"
            result.append(sample("compare", f"{e}[16,32] {e}[16,32]", "pred[16,32]", total))
    result.append(sample("compare", "c64[8] c64[8]", "pred[8]", "direction=NE"))
    result.append(sample("compare", "f32[] f32[]", "pred[]", "direction=LT, type=FLOAT"))
    return result


_CONVERSIONS = ("pred", "s8", "u8", "s16", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64")
_SMALL_FLOATS = ("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4")


def _convert() -> list[str]:
    pairs = [(a, b) for a in _CONVERSIONS for b in _CONVERSIONS if a != b]
    pairs += [(a, b) for f in _SMALL_FLOATS for a, b in ((f, "f32"), ("f32", f), ("bf16", f), (f, "s8"))]
    pairs += [("s4", "f32"), ("f32", "s4"), ("u4", "s32"), ("s32", "s4"), ("s32", "u4")]
    pairs += [("f32", "c64"), ("s32", "c64"), ("c64", "c128"), ("c128", "c64"), ("c64", "f32"), ("c64", "s32")]
    return [sample("convert", f"{a}[16,32]", f"{b}[16,32]") for a, b in pairs]


def _bitcast_convert() -> list[str]:
    pairs = [("f32[8]", "s32[8]"), ("f64[8]", "u64[8]"), ("bf16[8]", "u16[8]"), ("s32[3,5]", "u8[3,5,4]")]
    pairs += [("u8[3,4]", "f32[3]"), ("u32[6,2]", "u64[6]"), ("f32[]", "u16[2]"), ("s8[4]", "u8[4]")]
    return [sample("bitcast-convert", a, b) for a, b in pairs]


def _reduce_precision() -> list[str]:
    sizes = [(8, 7), (5, 10), (4, 3), (5, 2), (8, 23), (3, 0), (11, 20), (2, 23)]
    return [
        sample("reduce-precision", f"{e}[16,32]", f"{e}[16,32]", f"exponent_bits={a}, mantissa_bits={b}")
        for e in FLOATS
        for a, b in sizes
    ]


def _select() -> list[str]:
    elements = ("pred", "s32", "bf16", "f32", "c64")
    return [sample("select", f"pred[8,4] {e}[8,4] {e}[8,4]", f"{e}[8,4]") for e in elements]


def _clamp() -> list[str]:
    shapes = [f"{e}[8,4] {e}[8,4] {e}[8,4]" for e in ("s8", "s32", "u32", "bf16", "f32", "f64", "c64")]
    shapes += [f"{e}[] {e}[8,4] {e}[]" for e in ("s32", "f16", "f32", "c128")]
    return [sample("clamp", s, s.split()[1]) for s in shapes]


SAMPLES: dict[str, list[str]] = {
    **{opcode: _plain(opcode, 1, elements) for opcode, elements in UNARY.items()},
    **{opcode: _plain(opcode, 2, elements) for opcode, elements in BINARY.items()},
    **{opcode: _plain(opcode, arity, elements, xla=False) for opcode, (arity, elements) in UNSUPPORTED.items()},
    "abs": [
        *_plain("abs", 1, (*SIGNED, *FLOATS)),
        sample("abs", "c64[8]", "f32[8]"),
        sample("abs", "c128[8]", "f64[8]"),
    ],
    "real": [sample("real", "c64[8]", "f32[8]"), sample("real", "c128[]", "f64[]"), sample("real", "f32[8]", "f32[8]")],
    "imag": [sample("imag", "c64[8]", "f32[8]"), sample("imag", "c128[]", "f64[]"), sample("imag", "f32[8]", "f32[8]")],
    "is-finite": [sample("is-finite", f"{e}[16,32]", "pred[16,32]") for e in FLOATS],
    "complex": [sample("complex", f"{f}[8] {f}[8]", f"{c}[8]") for f, c in (("f32", "c64"), ("f64", "c128"))],
    "copy": [sample("copy", "f32[8,4]", "f32[8,4]"), sample("copy", "bf16[]", "bf16[]")],
    "compare": _compare(),
    "convert": _convert(),
    "bitcast-convert": _bitcast_convert(),
    "reduce-precision": _reduce_precision(),
    "select": _select(),
    "clamp": _clamp(),
}
SAMPLES["exponential"].append(sample("exponential", "f32[8]", "f32[8]", "result_accuracy={mode=highest}"))
