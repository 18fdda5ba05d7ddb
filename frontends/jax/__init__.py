"""Reads programs from JAX. `hloom.jax` is the public face.

`lower` asks JAX for HLO; places in the program are lines of the user's own source (`..user_lines`).
"""

from .lower import from_jax, read_lowered

__all__ = ["from_jax", "read_lowered"]
