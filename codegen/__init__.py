"""From LOCAL modules to HLO that XLA compiles for all devices."""

from .xla import manual_module, replica_module

__all__ = ["manual_module", "replica_module"]
