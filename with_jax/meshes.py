"""Spells tilings as shardings of JAX.

A tiling divides dimensions by digits of the device number; a mesh of JAX has axes. The axes here are the digits that
occur, so every tiling has a spelling; where the user's own mesh has the axes, its names are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..frontends.extras import imported
from ..ir.diagnostics import fail
from ..ir.sharding.digit import Digit, Digits, complement, cut, refine
from ..ir.sharding.mesh import AxisRef, Mesh
from ..ir.sharding.tiling import Tiling
from . import PURPOSE


def spell(tilings: Sequence[Tiling], devices: int, known: Iterable[Mesh] = ()) -> tuple[Any, list[Any]]:
    """Returns an abstract mesh of JAX that has all digits of the tilings as axes, and each tiling as a specification
    on it. Axes are named as the same axes of the first of the `known` meshes that has all devices. Raises CompileError
    for tilings that no mesh has.
    """
    jax = imported("jax", PURPOSE)
    orders = {tiling.order for tiling in tilings if any(tiling.dims)}
    if len(orders) > 1 or any(tiling.unreduced or tiling.manual for tiling in tilings):
        fail("arguments and results lie on devices in several orders, for which JAX has no shardings")
    if orders - {None}:
        fail("the program is for devices in an irregular order, which abstract meshes do not have")
    own = next((mesh for mesh in known if mesh.size == devices), None)
    names = {} if own is None or own.order_key else {n: own.digits(AxisRef(n)) for n, _ in own.axes}
    axes = _axes(tilings, devices, names)
    auto = (jax.sharding.AxisType.Auto,) * len(axes)
    mesh = jax.sharding.AbstractMesh(tuple(d.size for d in axes), tuple(axes.values()), axis_types=auto)
    cuts = refine([tuple(axes)])
    return mesh, [_spec(jax, ([axes[d] for d in cut(digits, cuts)] for digits in t.dims)) for t in tilings]


def placed(sharding: Any, devices: Sequence[Any]) -> Any:
    """Returns a sharding on an abstract mesh as one on these devices; any other as it is."""
    shardings = imported("jax", PURPOSE).sharding
    abstract = isinstance(sharding, shardings.NamedSharding) and isinstance(sharding.mesh, shardings.AbstractMesh)
    if not abstract or len(devices) != sharding.mesh.size:
        return sharding
    mesh = sharding.mesh
    places = np.array(devices, dtype=object).reshape(mesh.axis_sizes)
    return shardings.NamedSharding(shardings.Mesh(places, mesh.axis_names, axis_types=mesh.axis_types), sharding.spec)


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
