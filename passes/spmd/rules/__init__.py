"""Local forms, by op family. Importing this package registers them all."""

from . import indexed, iota, reduce

__all__ = ["indexed", "iota", "reduce"]
