"""Which ops and types cannot be compared with XLA on CPU, and why (see `test_type_coverage`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ops.typed_programs import accepted


class How(Enum):
    """What XLA does."""

    REFUSES = "does not compile it"
    DIES = "ends the process"
    ERRS = "computes something else"


ALL = ""


@dataclass(frozen=True)
class Gap:
    """Ops and types (`ALL`: whatever the op takes) that cannot be compared."""

    opcodes: str
    elements: str
    how: How
    why: str

    def cases(self) -> Iterator[tuple[str, str]]:
        for opcode in self.opcodes.split():
            yield from ((opcode, element) for element in self.elements.split() or accepted(opcode))


_CPU = "the CPU back end has no code for it"
_TRANSPORT = "StableHLO, in which programs come to XLA, has no such op"
_SIGNS = "StableHLO has it for signed numbers only"
_PACKED = "XLA confuses packed and unpacked numbers of less than a byte"

GAPS = (
    Gap("acos acosh asin asinh atanh cosh sinh", "f16 f32 f64 c64 c128", How.REFUSES, _CPU),
    Gap("ragged-dot copy-start copy-done collective-broadcast", ALL, How.REFUSES, _CPU),
    Gap("mulhi scaled-dot", ALL, How.REFUSES, _TRANSPORT),
    Gap("abs sign", "u2 u4 u8 u16 u32 u64", How.REFUSES, _SIGNS),
    Gap("bitcast async-start async-update async-done", ALL, How.REFUSES, "StableHLO changes its shapes"),
    Gap("dot convolution all-reduce all-reduce-start all-reduce-done reduce-scatter", "s2 u2", How.REFUSES, _CPU),
    Gap("sort", "s2 u2", How.REFUSES, _PACKED),
    Gap("topk", "s2 s4 u2 u4 f4e2m1fn", How.REFUSES, "XLA sorts them together with their places, which are wider"),
    Gap("concatenate all-to-all", "s2 u2", How.DIES, _PACKED),
    Gap("ragged-all-to-all", ALL, How.DIES, "so does its way into StableHLO"),
    Gap("all-gather", "s2 u2", How.ERRS, _PACKED),
    Gap("all-gather-start all-gather-done", "s2 s4 u2 u4 f4e2m1fn", How.ERRS, _PACKED),
    Gap("popcnt", "s4", How.ERRS, "XLA counts the bits of a byte"),
    Gap(
        "cholesky triangular-solve "
        "collective-permute collective-permute-start collective-permute-done",
        "f8e8m0fnu",
        How.ERRS,
        "there is no zero: XLA puts NaN where another type has it",
    ),
    Gap(
        "stochastic-convert",
        "f4e2m1fn f8e3m4 f8e4m3 f8e4m3b11fnuz f8e4m3fnuz f8e8m0fnu",
        How.ERRS,
        "XLA multiplies by 256, which these types do not have",
    ),
)

# Ops without templates, for they have one type; their samples run beside XLA.
UNTYPED = {"after-all", "partition-id", "replica-id"}

# Types that cannot be compared, whatever the op.
UNCOMPARED_TYPES = dict.fromkeys(("f6e2m3fn", "f6e3m2fn"), "XLA has no buffers of them")

# Ops that cannot be compared, whatever the type.
UNCOMPARED: dict[str, str] = {
    **dict.fromkeys(
        ("infeed", "outfeed", "send", "send-done", "recv", "recv-done"),
        "it exchanges data with the outside and has no meaning here",
    ),
    **dict.fromkeys(("rng", "rng-get-and-update-state"), "it draws from a hidden state"),
}
