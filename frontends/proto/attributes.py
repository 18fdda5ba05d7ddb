"""Maps the names of attributes in HLO text to the fields of HloInstructionProto, in one table.

Entries do not depend on the op, except where two ops use one name for different fields. Windows, convolution dimension
numbers and sparsity are converted field by field.
"""

from __future__ import annotations

import re

from ...ir.graph.op import AnyOp
from ...ir.ops.comparison import COMPARISON_TYPES
from ...ir.types.element_type import ELEMENT_TYPES
from ..hlo_text.shapes import LARGEST_RANK
from . import codecs as c
from .codecs import Codec, choice, dims, flag, number, quoted, single, word
from .shardings import groups_text, set_groups
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
            for field, size in zip(fields, value.split("x"), strict=True):
                made.set(field, int(size))


WINDOW = Codec(("window",), _window, _set_window)
LABELS = Codec(("convolution_dimension_numbers",), _labels, _set_labels, "")
SPARSITY = Codec(("sparsity_config",), _sparsity, _set_sparsity)


_ALGORITHMS = (
    "unset", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16", "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64", "dot_bf16_bf16_f32_x9",
)  # fmt: skip
_API_VERSIONS = {
    n: f"API_VERSION_{name}"
    for n, name in enumerate(
        ("UNSPECIFIED", "ORIGINAL", "STATUS_RETURNING", "STATUS_RETURNING_UNIFIED", "TYPED_FFI")
    )
}
_DOT = "dot_dimension_numbers"
_RAGGED = "ragged_dot_dimension_numbers"
_GATHER = "gather_dimension_numbers"
_SCATTER = "scatter_dimension_numbers"

CODECS: dict[str, Codec] = {
    "number": number("parameter_number"),
    "index": number("tuple_index"),
    "dimensions": dims("dimensions"),
    "iota_dimension": single("dimensions"),
    "inferred_dimension": single("dimensions"),
    "slice": c.SLICES,
    "dynamic_slice_sizes": dims("dynamic_slice_sizes"),
    "padding": c.PADDING,
    "window": WINDOW,
    "dim_labels": LABELS,
    "feature_group_count": number("feature_group_count"),
    "batch_group_count": number("batch_group_count"),
    "convolution_kind": choice("conv_kind", {0: "unset", 1: "fprop", 2: "dgrad", 3: "wgrad"}),
    "sparsity_config": SPARSITY,
    "direction": word("comparison_direction"),
    "type": word("comparison_type"),
    "exponent_bits": number("exponent_bits"),
    "mantissa_bits": number("mantissa_bits"),
    "operand_precision": c.PRECISIONS,
    "algorithm": choice("precision_config.algorithm", dict(enumerate(_ALGORITHMS))),
    "lhs_contracting_dims": dims(f"{_DOT}.lhs_contracting_dimensions"),
    "rhs_contracting_dims": dims(f"{_DOT}.rhs_contracting_dimensions"),
    "lhs_batch_dims": dims(f"{_DOT}.lhs_batch_dimensions"),
    "rhs_batch_dims": dims(f"{_DOT}.rhs_batch_dimensions"),
    "offset_dims": dims(f"{_GATHER}.offset_dims"),
    "collapsed_slice_dims": dims(f"{_GATHER}.collapsed_slice_dims"),
    "start_index_map": dims(f"{_GATHER}.start_index_map"),
    "operand_batching_dims": dims(f"{_GATHER}.operand_batching_dims"),
    "start_indices_batching_dims": dims(f"{_GATHER}.start_indices_batching_dims"),
    "slice_sizes": dims("gather_slice_sizes"),
    "collective-permute slice_sizes": c.PERMUTED_SLICES,
    "collective-permute-start slice_sizes": c.PERMUTED_SLICES,
    "index_vector_dim": number(f"{_GATHER}.index_vector_dim"),
    "update_window_dims": dims(f"{_SCATTER}.update_window_dims"),
    "inserted_window_dims": dims(f"{_SCATTER}.inserted_window_dims"),
    "scatter_dims_to_operand_dims": dims(f"{_SCATTER}.scatter_dims_to_operand_dims"),
    "input_batching_dims": dims(f"{_SCATTER}.input_batching_dims"),
    "scatter_indices_batching_dims": dims(f"{_SCATTER}.scatter_indices_batching_dims"),
    "scatter index_vector_dim": number(f"{_SCATTER}.index_vector_dim"),
    "indices_are_sorted": flag("indices_are_sorted"),
    "unique_indices": flag("unique_indices"),
    "is_stable": flag("is_stable"),
    "k": number("k"),
    "largest": c.always(flag("largest")),
    "num_carries": number("num_carries"),
    "is_reverse": flag("is_reverse"),
    "is_associative": choice("is_associative", {0: "", 1: "true", 2: "false"}),
    "fft_type": choice("fft_type", {0: "FFT", 1: "IFFT", 2: "RFFT", 3: "IRFFT"}),
    "fft_length": dims("fft_length"),
    "cholesky lower": flag("cholesky_options.lower"),
    "left_side": flag("triangular_solve_options.left_side"),
    "lower": flag("triangular_solve_options.lower"),
    "unit_diagonal": flag("triangular_solve_options.unit_diagonal"),
    "transpose_a": choice("triangular_solve_options.transpose_a",
                          {0: "TRANSPOSE_INVALID", 1: "NO_TRANSPOSE", 2: "TRANSPOSE", 3: "ADJOINT"}),
    "distribution": choice("distribution", {0: "rng_invalid", 1: "rng_uniform", 2: "rng_normal"}),
    "delta": number("delta"),
    "epsilon": c.real("epsilon"),
    "feature_index": number("feature_index"),
    "kind": word("fusion_kind"),
    "is_composite": flag("is_composite"),
    "output_to_operand_aliasing": c.ALIASING,
    "result_accuracy": c.ACCURACY,
    "channel_id": c.optional_number("channel_id"),
    "replica_groups": Codec(
        ("collective_device_list", "iota_collective_device_list", "mesh_axes_replica_group_list", "replica_groups"),
        groups_text, set_groups,
    ),
    "use_global_device_ids": flag("use_global_device_ids"),
    "constrain_layout": flag("constrain_layout"),
    "mode": c.IGNORED,
    "source_target_pairs": c.PAIRS,
    "cross_program_prefetch_index": c.PREFETCH,
    "async_execution_thread": quoted("async_execution_thread"),
    "custom_call_target": quoted("custom_call_target"),
    "custom_call_has_side_effect": flag("custom_call_has_side_effect"),
    "operand_layout_constraints": c.CONSTRAINTS,
    "padding_type": choice("padding_type", {0: "PADDING_INVALID", 1: "PADDING_VALID", 2: "PADDING_SAME"}),
    "schedule": choice("custom_call_schedule", {0: "SCHEDULE_NONE", 1: "SCHEDULE_LATEST", 2: "SCHEDULE_EARLIEST"}),
    "api_version": c.always(choice("custom_call_api_version", _API_VERSIONS)),
    "domain": c.DOMAIN,
    "is_host_transfer": flag("is_host_transfer"),
    "infeed_config": quoted("infeed_config"),
    "outfeed_config": quoted("outfeed_config"),
    "outfeed_shape": c.shape("outfeed_shape"),
    "rng-bit-generator algorithm": choice(
        "rng_algorithm", {0: "rng_default", 1: "rng_three_fry", 2: "rng_philox"}
    ),
    **{f"ragged-dot {name}_{what}_dims": dims(f"{_RAGGED}.dot_dimension_numbers.{name}_{what}_dimensions")
       for name in ("lhs", "rhs") for what in ("contracting", "batch")},
    "lhs_ragged_dims": dims(f"{_RAGGED}.lhs_ragged_dimensions"),
    "rhs_group_dims": dims(f"{_RAGGED}.rhs_group_dimensions"),
}  # fmt: skip

# Values that XLA's printer omits because they are the defaults.
DEFAULTS = {
    "feature_group_count": ("1", "0"),
    "batch_group_count": ("1", "0"),
    "api_version": ("API_VERSION_ORIGINAL",),
    "convolution_kind": ("unset",),
    "algorithm": ("unset",),
}

# Ops whose called computations are serialized in another order than their attributes.
CALLED_ORDER = {"while": ("body", "condition")}


def codec(op: AnyOp, name: str) -> Codec:
    """Returns the codec of an attribute of an op. Raises ProtoError if it has none."""
    found = CODECS.get(f"{op.opcode} {name}") or CODECS.get(name)
    if found is None:
        raise ProtoError(f"{op.opcode}: attribute '{name}' has no serialized form")
    return found


def is_default_type(name: str, text: str, element: str) -> bool:
    """Returns whether `text` is the default comparison type for operands of this element type."""
    if name != "type" or element not in ELEMENT_TYPES:
        return False
    kinds = COMPARISON_TYPES.get(ELEMENT_TYPES[element].kind)
    return kinds is not None and text == kinds[0].value
