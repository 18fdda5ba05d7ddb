"""Constraints: shardings of parameters that a plan must keep, those of the program or given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.diagnostics import Location, fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import Sharding
from ...ir.tools.names import fits, name_pattern, names_of, suggestions
from ..annotating.strategy import Setting, Strategy, apply_strategy
from ..resharding.table import WHOLE, Division


@dataclass(frozen=True, slots=True)
class Kept:
    """A sharding that a parameter, by its number, must have, and the text that says so."""

    parameter: int
    division: Division
    said: str
    location: Location | None = None


def kept_in(module: Module, keep: Sequence[str], mesh: Mesh, even: bool = False) -> list[Kept]:
    """Reads constraints: `PATTERN=AXES,..` as in a strategy, or `PATTERN` for the sharding that the program says.

    Raises CompileError for one that fits no parameter, for one that the mesh cannot have, and for uneven tiles if they
    must be `even`.
    """
    found: dict[int, Kept] = {}
    for said in keep:
        own = clone_module(module)
        if "=" in said:
            setting = Setting.parse(said)
            for instruction in (i for c in own for i in c):
                instruction.sharding = instruction.shardy = None
            apply_strategy(own, Strategy(dict(mesh.axes), (setting,)))
            fitting = [p for p in own.entry.parameters if p.sharding is not None]
        else:
            pattern = name_pattern(said)
            fitting = [p for p in own.entry.parameters if fits(pattern, names_of(p)) and p.annotation is not None]
        if not fitting:
            close = suggestions(said.partition("=")[0], (n for p in own.entry.parameters for n in names_of(p)))
            what = "no parameter" if "=" in said else "no annotated parameter"
            fail(f"--keep '{said}' fits {what}", help=f"parameters: {close}")
        numbers = {p: n for n, p in enumerate(own.entry.parameters)}
        for parameter in fitting:
            division = _division(parameter, mesh, said, even)
            found[numbers[parameter]] = Kept(numbers[parameter], division, said, parameter.location)
    return list(found.values())


def _division(parameter: Instruction, mesh: Mesh, said: str, even: bool) -> Division:
    sharding = parameter.annotation
    if not isinstance(sharding, Sharding):
        fail(f"--keep '{said}': {parameter.name} is a tuple", parameter.location)
    tiling = sharding.tiling(parameter.shape.rank)
    found = [WHOLE] * len(mesh.axes)
    for dim, digits in enumerate(tiling.dims):
        refs = mesh.refs(digits) if tiling.order is None else None
        names = [name for name, _ in mesh.axes]
        if refs is None or any(ref.size for ref in refs) or [r.name for r in refs] != _sorted(refs, names):
            fail(f"--keep '{said}': {parameter.name} is {sharding}, which is no division by the axes of {mesh}",
                 parameter.location, help="a plan divides by whole axes, in the order of the mesh")
        for ref in refs:
            found[names.index(ref.name)] = dim
    if even and not tiling.is_even(parameter.shape.dims):
        fail(f"--keep '{said}': {parameter.name} is {parameter.shape.without_layout()}, which {sharding} divides "
             "unevenly", parameter.location, help="jax.jit takes even tiles alone of arguments")
    return tuple(found)


def _sorted(refs: tuple[AxisRef, ...], names: Sequence[str]) -> list[str]:
    return sorted((ref.name for ref in refs), key=names.index)
