"""Converts windows, convolution dimension numbers and sparsity between HLO text and HloInstructionProto."""

from __future__ import annotations

import re

from ..hlo_text.shapes import LARGEST_RANK
from .codecs import Codec
from .wire import ProtoError, Record

_WINDOW = (
    ("size", ("size",)), ("stride", ("stride",)), ("pad", ("padding_low", "padding_high")),
    ("lhs_dilate", ("base_dilation",)), ("rhs_dilate", ("window_dilation",)), ("rhs_reversal", ("window_reversal",)),
)  # fmt: skip


def _window(record: Record) -> str | None:
    dims = list(record.sub("window").subs("dimensions"))
    if not dims:
        return "{}" if "window" in record.values else None
    parts = [f"{key}=" + "x".join("_".join(str(int(d.int(f))) for f in fields) for d in dims)
             for key, fields in _WINDOW]  # fmt: skip
    return "{" + " ".join(parts) + "}"


def _set_window(record: Record, text: str) -> None:
    window = record.new("window")
    values: dict[str, str] = dict(re.findall(r"(\w+)=(\S+)", text[1:-1]))
    sizes = values.get("size", "").split("x") if values else []
    dims = [window.new("dimensions") for _ in sizes]
    for key, fields in _WINDOW:
        default = "0_0" if key == "pad" else "0" if key == "rhs_reversal" else "1"
        parts = values[key].split("x") if key in values else [default] * len(dims)
        for dim, part in zip(dims, parts, strict=True):
            for field, value in zip(fields, part.split("_"), strict=True):
                dim.set(field, int(value))


_LABELS = (  # letters of input, kernel and output, and the fields with their dimensions
    (("b", "input_batch_dimension"), ("f", "input_feature_dimension"), "input_spatial_dimensions"),
    (("i", "kernel_input_feature_dimension"), ("o", "kernel_output_feature_dimension"), "kernel_spatial_dimensions"),
    (("b", "output_batch_dimension"), ("f", "output_feature_dimension"), "output_spatial_dimensions"),
)


def _labels(record: Record) -> str | None:
    if "convolution_dimension_numbers" not in record.values:
        return None
    found = record.sub("convolution_dimension_numbers")
    parts: list[str] = []
    for first, second, spatial in _LABELS:
        roles = {found.int(first[1]): first[0], found.int(second[1]): second[0]}
        roles |= {d: str(n) for n, d in enumerate(found.ints(spatial))}
        if len(roles) != len(found.ints(spatial)) + 2 or min(roles) < 0 or max(roles) > LARGEST_RANK:
            raise ProtoError("the dimension numbers of a convolution do not name each dimension once")
        parts.append("".join(roles.get(d, "?") for d in range(max(roles) + 1)))
    return f"{parts[0]}_{parts[1]}->{parts[2]}"


def _set_labels(record: Record, text: str) -> None:
    made = record.new("convolution_dimension_numbers")
    for part, (first, second, spatial) in zip(re.split(r"_|->", text), _LABELS, strict=True):
        made.set(first[1], part.index(first[0]))
        made.set(second[1], part.index(second[0]))
        made.set(spatial, [part.index(str(n)) for n in range(len(part) - part.count("?") - 2)])


def _sparsity(record: Record) -> str | None:
    """Returns `{lhs={sparsity=2x4 dimension=1 stride=1} rhs={..}}`: 2 of 4 elements along the dimension are nonzero."""
    config, parts = record.sub("sparsity_config"), list[str]()
    for side in ("lhs", "rhs"):
        if side in config.values:
            one = config.sub(side)
            sizes = f"{one.int('num_non_zero')}x{one.int('block_size')}"
            parts.append(f"{side}={{sparsity={sizes} dimension={one.int('dimension')} stride={one.int('stride')}}}")
    return "{" + " ".join(parts) + "}" if parts else None


def _set_sparsity(record: Record, text: str) -> None:
    for side, inner in re.findall(r"(lhs|rhs)=\{([^{}]*)\}", text):
        made = record.new("sparsity_config").new(side)
        for name, value in re.findall(r"(\w+)=([\dx]+)", inner):
            fields = ("num_non_zero", "block_size") if name == "sparsity" else (name,)
            for field, number in zip(fields, value.split("x"), strict=True):
                made.set(field, int(number))


WINDOW = Codec(("window",), _window, _set_window)
LABELS = Codec(("convolution_dimension_numbers",), _labels, _set_labels, "")
SPARSITY = Codec(("sparsity_config",), _sparsity, _set_sparsity)
