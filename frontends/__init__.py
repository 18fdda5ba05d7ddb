"""From the outside world to a `Module`."""

from .hlo_text import load, parse, parse_replica_groups, parse_shape, parse_sharding

__all__ = ["load", "parse", "parse_replica_groups", "parse_shape", "parse_sharding"]
