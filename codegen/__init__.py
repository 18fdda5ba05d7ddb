"""Converts LOCAL modules to HLO that XLA compiles for all devices."""

from typing import Literal

from ..ir.checked_call import checked
from ..ir.graph.module import Module
from .xla import body_module, manual_module, replica_module

__all__ = ["body_module", "export", "manual_module", "replica_module"]


@checked
def export(module: Module, form: Literal["manual", "replica"] = "manual") -> Module:
    """The program as XLA compiles it for all devices, to be written by `to_text` or `to_proto`.

    `manual` is one program over N partitions that takes and gives global arrays. `replica` is N replicas of the program
    of one device, which take and give tiles. Raises CompileError for a module that is not LOCAL.
    """
    return manual_module(module) if form == "manual" else replica_module(module)
