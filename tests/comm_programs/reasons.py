"""Why Hloom sends more than XLA in some program; an entry has to go when it no longer does."""

from __future__ import annotations

_FREE = (
    "only parameters are annotated: the division of the norms' scales spreads to channels of activations, in Shardy "
    "as here, and dots bring them back to the batch; XLA, measured with its own propagation, keeps the batch"
)
_ADDED_UP = (
    "the loop adds up a gradient, so the sum over the batch stays partial for a schedule that reduces the total once; "
    "without a schedule each trip reduces 1 KB, where gathering the operand takes 0.5 KB"
)
REASONS: dict[str, str] = {
    "jax_recurrent_scan_step": _ADDED_UP,
    "jax_transformer_fsdp_free": _FREE,
}
