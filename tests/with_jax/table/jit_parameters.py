"""The parameters of `jax.jit`."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from support.jax_rows import row


@row("static arguments by number")
def static_numbers(jit: Any) -> Any:
    return jit(lambda n, x: x[:n], static_argnums=0)(3, jnp.arange(8.0))


@row("static arguments by name")
def static_names(jit: Any) -> Any:
    return jit(lambda n, x: x[:n], static_argnames="n")(3, x=jnp.arange(8.0))


@row("a static argument without a hash")
def static_without_hash(jit: Any) -> Any:
    return jit(lambda n, x: x, static_argnums=0)([3], jnp.arange(8.0))
