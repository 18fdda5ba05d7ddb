"""Hloom as part of a JAX program. The package is `hloom.jax`; the folder has another name, so that `import jax` in a
checkout finds JAX.

    import hloom.jax

    module = hloom.jax.from_jax(step, params, batch)       # the program before partitioning

Needs the extra `xla`. JAX itself is imported when the first of these is called.
"""

from typing import TYPE_CHECKING

from ..ir.late import late_names

if TYPE_CHECKING:
    from ..frontends.jax import from_jax as from_jax

_PLACES = {
    "from_jax": "frontends.jax:from_jax",
}

__all__ = [*_PLACES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = late_names(__name__, _PLACES)
