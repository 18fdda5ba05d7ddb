"""Passes, pipelines of them, and the context that they share."""

from .context import PassContext, PassRecord, Rules, Verify
from .passes import FixedPoint, Pass, Pipeline, refuse_starts, run_pass, run_pipeline

__all__ = [
    "FixedPoint", "Pass", "PassContext", "PassRecord", "Pipeline", "Rules", "Verify", "refuse_starts", "run_pass",
    "run_pipeline",
]  # fmt: skip
