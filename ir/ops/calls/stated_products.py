"""The arithmetic of custom-calls that say it, in their backend_config.

    __cudnn$fmha..                attention of cuDNN, as XLA for GPUs prints it: the shape of its scores
    tpu_custom_call and others    kernels of Pallas: `cost_estimate` counts operations

The backward pass of attention computes five products where the forward pass computes two (Dao, FlashAttention-2, 2023,
section 3.1), and a causal mask halves them. All that a `cost_estimate` counts is taken to be products. Calls of cuBLAS,
and convolutions of cuDNN, become ops (`ir.tools.library_calls`).
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

from ...types.products import Products, ProductSizes
from .behaviour import Call

_ESTIMATE = '"cost_estimate"'
_TILE = 256  # side of the largest tile of a unit


@lru_cache(maxsize=4096)
def stated_products(call: Call) -> Products | None:
    """Returns the arithmetic of a custom-call; None if nothing says what it is."""
    target = call.attributes.custom_call_target
    try:
        if target.startswith("__cudnn$fmha"):
            return _attention(call, "Backward" in target)
        return _estimated(call) if _ESTIMATE in call.config else None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None  # a config of another version


def _attention(call: Call, is_backward: bool) -> Products:
    config = json.loads(call.config)["cudnn_fmha_backend_config"]
    *batch, queries, keys = map(int, config["intermediate_tensor_shape"]["dimensions"])
    sizes = ProductSizes(math.prod(batch), queries, keys, call.operands[0].dims[-1])
    seen = 0.5 if "CAUSAL" in config.get("mask_type", "") else 1.0
    return Products(sizes, seen * (5 if is_backward else 2), by_hand=True)


def _estimated(call: Call) -> Products:
    """Returns a cube of whole tiles, as many times as it takes these operations. Raises LookupError."""
    config: Any = json.loads(call.config)
    count = int(config.get("custom_call_config", config)["cost_estimate"]["flops"]) / 2
    side = max(math.ceil(count ** (1 / 3) / _TILE), 1) * _TILE
    return Products(ProductSizes(1, side, side, side), count / side**3, by_hand=True)
