"""Spells tilings as shardings of JAX.

A tiling divides dimensions by digits of the device number; a mesh of JAX has axes. The axes here are the digits that
occur, so every tiling has a spelling; where the user's own mesh has the axes, its names are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..frontends.extras import imported
from ..ir.diagnostics import fail
from ..ir.sharding.digit import Digit, Digits, complement, cut, refine
from ..ir.sharding.mesh import AxisRef, Mesh
from ..ir.sharding.tiling import Tiling

PURPOSE = "to run programs with JAX"


@dataclass(frozen=True)
class Spelled:
    """A tiling in JAX: `spec` on the mesh of all digits, and `sharding`, on the user's mesh where possible."""

    spec: Any
    sharding: Any


def spell(tilings: Sequence[Tiling], devices: Sequence[Any] | int, user_mesh: Any) -> tuple[Any, list[Spelled]]:
    """Returns a mesh of JAX over `devices` that has all digits of the tilings as axes, and each tiling in JAX.

    With a number of devices the mesh is abstract. `user_mesh` may be None. Raises CompileError for tilings that no mesh
    has.
    """
    jax = imported("jax", PURPOSE)
    orders = {tiling.order for tiling in tilings if any(tiling.dims)}
    if len(orders) > 1 or any(tiling.unreduced or tiling.manual for tiling in tilings):
        fail("arguments and results lie on devices in several orders, for which JAX has no shardings")
    order = next(iter(orders), None)
    own = None if user_mesh is None or order is not None else Mesh(tuple(user_mesh.shape.items()))
    named = {} if own is None else {name: own.digits(AxisRef(name)) for name, _ in own.axes}
    axes = _axes(tilings, devices if isinstance(devices, int) else len(devices), named)
    mesh = _mesh(jax, axes, devices, order)
    cuts = refine([tuple(axes)])
    spelled: list[Spelled] = []
    for tiling in tilings:
        spec = _spec(jax, ([axes[d] for d in cut(digits, cuts)] for digits in tiling.dims))
        users = _users_spec(jax, own, tiling)
        sharding = jax.sharding.NamedSharding(*((mesh, spec) if users is None else (user_mesh, users)))
        spelled.append(Spelled(spec, sharding))
    return mesh, spelled


def _mesh(jax: Any, axes: dict[Digit, str], devices: Sequence[Any] | int, order: tuple[int, ...] | None) -> Any:
    sizes, names = tuple(d.size for d in axes), tuple(axes.values())
    auto = (jax.sharding.AxisType.Auto,) * len(axes)
    if not isinstance(devices, int):
        places = devices if order is None else [devices[n] for n in order]
        return jax.sharding.Mesh(np.array(places, dtype=object).reshape(sizes), names, axis_types=auto)
    if order is not None:
        fail("the program is for devices in an irregular order, which abstract meshes do not have")
    return jax.sharding.AbstractMesh(sizes, names, axis_types=auto)


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


def _users_spec(jax: Any, own: Mesh | None, tiling: Tiling) -> Any:
    """Returns the tiling on the user's mesh; None if that has no such axes."""
    found = [own.refs(digits) for digits in tiling.dims] if own is not None else [None]
    if any(refs is None or any(ref.size for ref in refs) for refs in found):
        return None
    return _spec(jax, ([ref.name for ref in refs or ()] for refs in found))


def _spec(jax: Any, names: Iterable[Sequence[str]]) -> Any:
    dims = [tuple(n) if len(n) > 1 else n[0] if n else None for n in names]
    while dims and dims[-1] is None:
        dims.pop()
    return jax.sharding.PartitionSpec(*dims)
