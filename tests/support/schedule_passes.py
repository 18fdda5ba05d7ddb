"""Passes that rewrite, combine and order collectives: those that keep every bit of the results, and others."""

from __future__ import annotations

EXACT = (
    "common-gathers", "hoist-gathers{growth=9}", "prefetch-gathers", "prefetch-gathers{peel=false}", "schedule",
    "carry-reduce-scatters", "carry-reduce-scatters{peel=false}", "combine-collectives", "schedule{form=flat}",
    "schedule{form=xla}", "schedule{memory=20KB}", "bucket", "bucket{rule=size,most-bytes=1KB}", "bucket{rule=layer}",
    "bucket{rule=simplefsdp}", "bucket{rule=xla}", "overlap", "overlap{ahead=1}", "memory-order", "rematerialize",
    "rematerialize{memory=1B}", "rematerialize{memory=1B,barriers=true}", "dce", "cse",
    "save-less", "accumulate-stacks",
    "accumulate-in-place", "unit-transposes", "rotate-loops{least=-1,tries=8}", "rotate-loops{least=-1,peel=false}",
)  # fmt: skip
# These add in another order, or multiply matrices of other sizes.
BOUNDED = (
    "all-reduce-to-reduce-scatter", "reassociate-all-reduces", "sink-all-reduces{least-gain=-9}", "sink-all-reduces",
    "hierarchical-collectives", "in-pieces{count=2}", "split-batch",
    "reduce-in{element=f64}",
)  # fmt: skip
_INEXACT = {p.partition("{")[0] for p in BOUNDED}
# After these comes no rewrite.
_LAST = ("schedule", "bucket", "overlap", "memory-order", "rematerialize")


def in_order(passes: list[str]) -> str:
    """A pipeline of these passes, those that make schedules behind those that rewrite."""
    return ",".join(sorted(passes, key=lambda p: p.startswith(_LAST)))


def is_exact(pipeline: str) -> bool:
    """Whether all passes of a pipeline keep every bit."""
    return not any(name in pipeline for name in _INEXACT)
