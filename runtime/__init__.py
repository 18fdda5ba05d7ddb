"""Runs a Module: on one device, on all devices in this process, or on the ranks of an MPI job."""

from .evaluator import evaluate
from .mpi import run
from .plan.kernels import KernelProvider, NumpyKernels
from .ranks.failed import RankFailed
from .simulator import simulate

__all__ = ["KernelProvider", "NumpyKernels", "RankFailed", "evaluate", "run", "simulate"]
