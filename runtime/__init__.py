"""Runs a Module: on one device, on all devices in this process, or on the ranks of an MPI job."""

from .evaluator import evaluate
from .mpi import run
from .simulator import simulate

__all__ = ["evaluate", "run", "simulate"]
