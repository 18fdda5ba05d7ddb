"""Passes, pipelines of them, and the context that they share."""

from .context import AsRun, PassContext, PassRecord, Rules, Verify
from .passes import FixedPoint, Pass, Pipeline, refuse_starts, run_pass, run_pipeline

__all__ = [
    "AsRun", "FixedPoint", "Pass", "PassContext", "PassRecord", "Pipeline", "Rules", "Verify", "refuse_starts",
    "run_pass", "run_pipeline",
]  # fmt: skip
