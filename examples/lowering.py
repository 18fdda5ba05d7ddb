"""Parses command-line options of the example scripts, and lowers JAX functions to HLO text for any mesh.

No devices are needed: an abstract mesh has axes and sizes only, so a laptop can write the program for 2,048 chips. JAX
requires the dimensions of annotated arguments and results to divide evenly; where a mesh does not divide them, the
annotation moves to a sharding constraint just inside the function, which may be uneven.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import argparse
import functools
import importlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Tree = Any  # nested dicts, lists and tuples of leaves

MADE_WITH = "0.10.2"  # the JAX version that wrote the files in this folder; others word the same program differently


def options(description: str, mesh: str, **sizes: int) -> argparse.ArgumentParser:
    """A parser with `--out`, `--mesh` and one integer option per size."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", default="-", help="file to write, or - for standard output")
    parser.add_argument("--mesh", default=mesh, type=parse_mesh, help="axis names and sizes, such as data=2,model=4")
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size, help=" ")
    return parser


def parse_mesh(text: str) -> dict[str, int]:
    """Parses `data=2,model=4` into a dict. Raises ArgumentTypeError, which argparse reports, for any other form."""
    try:
        axes = {name.strip(): int(size) for name, size in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form data=2,model=4") from None
    if any(size < 1 for size in axes.values()):
        raise argparse.ArgumentTypeError(f"{text!r} has an axis without devices")
    return axes


class Lowering:
    """Lowers JAX functions to HLO text for one mesh, given as axis names and sizes."""

    def __init__(self, axes: dict[str, int]) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # only text is made: do not start an accelerator for it
        import jax

        # The text tells the source file of every op; keep the name, drop the folder.
        jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
        self.axes = axes
        self.mesh = jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes))

    def constrain(self, x: Any, spec: Any) -> Any:
        """Returns `x` with the constraint that it be sharded by `spec`."""
        import jax

        return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(self.mesh, spec))

    def text(self, step: Callable[..., Any], arguments: Tree, argument_specs: Tree, result_specs: Tree) -> str:
        """Returns the HLO of `step`. `arguments` is a tuple of trees of shapes, the specs have the same structure."""
        import jax

        results: Tree = jax.eval_shape(step, *arguments)

        @functools.wraps(step)
        def placed(*values: Tree) -> Tree:
            values = jax.tree.map(self._constrain_uneven, values, argument_specs)
            return jax.tree.map(self._constrain_uneven, step(*values), result_specs)

        jitted: Any = jax.jit(
            placed,
            in_shardings=jax.tree.map(self._even_sharding, arguments, argument_specs),
            out_shardings=jax.tree.map(self._even_sharding, results, result_specs),
        )
        lowered = jitted.trace(*arguments).lower(lowering_platforms=("cpu",))
        return hlo_text(lowered)

    def _is_even(self, dims: tuple[int, ...], spec: Any) -> bool:
        parts = [() if axes is None else (axes,) if isinstance(axes, str) else axes for axes in spec]
        return all(n % math.prod(self.axes[a] for a in axes) == 0 for n, axes in zip(dims, parts))

    def _even_sharding(self, shape: Any, spec: Any) -> Any:
        import jax

        return jax.sharding.NamedSharding(self.mesh, spec) if self._is_even(shape.shape, spec) else None

    def _constrain_uneven(self, x: Any, spec: Any) -> Any:
        return x if self._is_even(x.shape, spec) else self.constrain(x, spec)


def hlo_text(lowered: Any) -> str:
    """Returns the HLO text of a lowered function, with all constants in full."""
    print_options: Any = importlib.import_module("jaxlib._hlo").HloPrintOptions()
    print_options.print_large_constants = True
    return lowered.compiler_ir("hlo").as_hlo_module().to_string(print_options)


def write(text: str, out: str) -> None:
    """Writes to a file, or to standard output if `out` is `-`."""
    if out == "-":
        sys.stdout.write(text)
    else:
        Path(out).write_text(text, encoding="utf-8")
