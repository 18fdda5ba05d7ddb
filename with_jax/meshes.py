"""Spells tilings as shardings of JAX.

A tiling divides dimensions by digits of the device number; a mesh of JAX has axes. The axes here are the digits that
occur, so every tiling has a spelling; where the user's own mesh has the axes, its names are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..frontends.extras import imported
from ..ir.diagnostics import fail
from ..ir.sharding.digit import Digit, Digits, complement, cut, refine
from ..ir.sharding.mesh import AxisRef, Mesh
from ..ir.sharding.tiling import Tiling

PURPOSE = "to run programs with JAX"


def spell(tilings: Sequence[Tiling], devices: int, named: Mesh | None = None) -> tuple[Any, list[Any]]:
    """Returns an abstract mesh of JAX that has all digits of the tilings as axes, and each tiling as a specification
    on it. Axes have the names of the axes of `named` that are the same. Raises CompileError for tilings that no mesh
    has.
    """
    jax = imported("jax", PURPOSE)
    orders = {tiling.order for tiling in tilings if any(tiling.dims)}
    if len(orders) > 1 or any(tiling.unreduced or tiling.manual for tiling in tilings):
        fail("arguments and results lie on devices in several orders, for which JAX has no shardings")
    if orders - {None}:
        fail("the program is for devices in an irregular order, which abstract meshes do not have")
    names = {} if named is None or named.order_key else {n: named.digits(AxisRef(n)) for n, _ in named.axes}
    axes = _axes(tilings, devices, names)
    auto = (jax.sharding.AxisType.Auto,) * len(axes)
    mesh = jax.sharding.AbstractMesh(tuple(d.size for d in axes), tuple(axes.values()), axis_types=auto)
    cuts = refine([tuple(axes)])
    return mesh, [_spec(jax, ([axes[d] for d in cut(digits, cuts)] for digits in t.dims)) for t in tilings]


def _axes(tilings: Sequence[Tiling], devices: int, named: dict[str, Digits]) -> dict[Digit, str]:
    """Returns the digits of a mesh, major first, with their names: those of the user's axes where they are the same."""
    used = [digits for tiling in tilings for digits in tiling.dims]
    cuts = refine([*named.values(), *used])
    pieces = {d for digits in used for d in cut(digits, cuts)}
    rest = complement(devices, pieces)
    if rest is None:
        fail("arguments and results are divided by axes that no one mesh has", help="give in_shardings, out_shardings")
    axes = sorted({*pieces, *cut(rest, cuts)}, key=lambda d: -d.stride) or [Digit(1, 1)]
    whole = {digits[0]: name for name, digits in named.items() if len(digits) == 1}
    return {digit: whole.get(digit, f"{digit.size}@{digit.stride}") for digit in axes}


def _spec(jax: Any, names: Iterable[Sequence[str]]) -> Any:
    dims = [tuple(n) if len(n) > 1 else n[0] if n else None for n in names]
    while dims and dims[-1] is None:
        dims.pop()
    return jax.sharding.PartitionSpec(*dims)
