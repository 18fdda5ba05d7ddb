"""SPMD partitioning. Importing the package registers the local forms of all ops."""

from . import local_forms
from .partition import SpmdPartition

__all__ = ["SpmdPartition", "local_forms"]
