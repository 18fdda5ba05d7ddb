"""Estimates the memory that a plan needs before it runs."""

from __future__ import annotations

from .interpreter import StepPlan


def peak_bytes(plan: StepPlan) -> int:
    """Estimates the peak bytes that a run of the plan holds on one device, besides its arguments.

    An upper bound, except for memory that kernels allocate internally: views count as copies.
    """
    sizes: dict[int, int] = {}
    for step in plan.steps:
        leaves = [leaf.byte_size for leaf in step.instruction.shape.leaves()]
        sizes.update(zip(step.writes, leaves) if len(leaves) == len(step.writes) else dict.fromkeys(step.writes, 0))
    live = sum(getattr(value, "nbytes", 0) for value in plan.template)
    peak = live
    for step in plan.steps:
        live += sum(sizes[i] for i in step.writes)
        peak = max(peak, live + max((peak_bytes(p) for p in step.plans()), default=0))
        live -= sum(sizes.get(i, 0) for i in step.dead)
    return peak
