"""Local forms, by op family. Importing this package registers them all."""

from . import bitcast, indexed, iota, reduce

__all__ = ["bitcast", "indexed", "iota", "reduce"]
