"""Reads programs from JAX. `hloom.jax` is the public face.

`lower` asks JAX for HLO, `user_lines` lets places in the program be lines of the user's own source.
"""

from .lower import from_jax, read_lowered

__all__ = ["from_jax", "read_lowered"]
