"""Runs a Module: on one device, on all devices in this process, or on the ranks of an MPI job."""

from typing import TYPE_CHECKING

from ..ir.late import late_names

if TYPE_CHECKING:
    from . import checkpoint as checkpoint
    from .evaluator import evaluate as evaluate
    from .mpi import run as run
    from .plan.kernels import KernelProvider as KernelProvider
    from .plan.kernels import NumpyKernels as NumpyKernels
    from .ranks.failed import RankFailed as RankFailed
    from .simulator import simulate as simulate

_PLACES = {
    "checkpoint": "runtime.checkpoint",
    "evaluate": "runtime.evaluator:evaluate",
    "run": "runtime.mpi:run",
    "KernelProvider": "runtime.plan.kernels:KernelProvider",
    "NumpyKernels": "runtime.plan.kernels:NumpyKernels",
    "RankFailed": "runtime.ranks.failed:RankFailed",
    "simulate": "runtime.simulator:simulate",
}

__all__ = [*_PLACES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = late_names(__name__, _PLACES)
