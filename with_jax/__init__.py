"""Hloom as part of a JAX program. The package is `hloom.jax`; the folder has another name, so that `import jax` in a
checkout finds JAX.

    import hloom.jax

    module = hloom.jax.from_jax(step, params, batch)    # the program before partitioning
    step = hloom.jax.jit(step, mesh=mesh)               # in place of jax.jit: partitioned by Hloom

    with hloom.jax.passes("bucket{rule=auto}"):         # Hloom's passes inside of jax.jit
        step(params, batch)

Needs the extra `xla`. JAX itself is imported when the first of these is called.
"""

from typing import TYPE_CHECKING

from ..ir.late import late_names

if TYPE_CHECKING:
    from ..frontends.jax import from_jax as from_jax
    from .adapters import filter_jit as filter_jit
    from .adapters import nnx_jit as nnx_jit
    from .compiled import Compiled as Compiled
    from .compiled import Lowered as Lowered
    from .exporting import exported as exported
    from .hook import Hook as Hook
    from .hook import Transformed as Transformed
    from .hook import passes as passes
    from .jitted import jit as jit
    from .pipelining import pipeline as pipeline
    from .planning import JaxPlan as JaxPlan
    from .planning import plan as plan

PURPOSE = "to run programs with JAX"  # JAX is needed for, where it is missing

_PLACES = {
    "from_jax": "frontends.jax:from_jax",
    "filter_jit": "jax.adapters:filter_jit",
    "nnx_jit": "jax.adapters:nnx_jit",
    "Compiled": "jax.compiled:Compiled",
    "Lowered": "jax.compiled:Lowered",
    "exported": "jax.exporting:exported",
    "Hook": "jax.hook:Hook",
    "Transformed": "jax.hook:Transformed",
    "passes": "jax.hook:passes",
    "jit": "jax.jitted:jit",
    "pipeline": "jax.pipelining:pipeline",
    "JaxPlan": "jax.planning:JaxPlan",
    "plan": "jax.planning:plan",
}

__all__ = [*_PLACES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = late_names(__name__, _PLACES)
