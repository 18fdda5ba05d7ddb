"""SPMD partitioning. Importing the package registers the handlers and local forms of all ops."""

from . import local_forms
from .partition import SpmdPartition
from .structure import handlers

__all__ = ["SpmdPartition", "handlers", "local_forms"]
