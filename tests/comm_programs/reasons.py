"""Why Hloom sends more than XLA in some program; an entry has to go when it no longer does."""

from __future__ import annotations

_FREE = (
    "only parameters are annotated: the division of the norms' scales spreads to channels of activations, in Shardy "
    "as here, and dots bring them back to the batch; XLA, measured with its own propagation, keeps the batch"
)
REASONS: dict[str, str] = {
    "jax_transformer_fsdp_free": _FREE,
}
