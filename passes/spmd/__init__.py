"""SPMD partitioning. Importing the package registers the handlers and local forms of all ops."""

from . import rules, structure
from .partition import SpmdPartition

__all__ = ["SpmdPartition", "rules", "structure"]
