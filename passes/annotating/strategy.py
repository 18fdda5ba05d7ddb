"""Strategies: annotations kept apart from the program.

A strategy says by pattern which values are sharded how, so that one program is tried with many. A file:

    [mesh]
    x = 2
    y = 4

    [shardings]
    "w*" = ",y"                # dimension 0 whole, dimension 1 by y
    "params['emb']" = "x+y,"   # dimension 0 by x, then y
    "*/dot_general" = "x,?"    # `?`: propagation may add axes to the dimension
    "bias" = "-"               # one dimension without axes

A pattern (`*` stands for any characters) means the entry's parameters whose name or `op_name` it fits. Where none
does, it means the other instructions of the program whose name or `op_name` it fits and which have as many dimensions
as the sharding. Later patterns override earlier ones, and all override what the program says. With `alone = true`
before the tables, the annotations of the program itself are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from ...ir.checked_call import checked
from ...ir.diagnostics import Location, SourceFile, fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import DimSharding, Sharding, ShardingKind, Spelling
from ...ir.tools.names import fits, name_pattern, names_of, suggestions
from ...ir.tools.spmd import parts
from ...ir.user_files import cannot_read, read_text, read_toml
from .remesh import check_size, remesh
from .strip import strip_annotations

_AXIS = re.compile(r"([A-Za-z_]\w*)(?::\(([1-9]\d*)\)([1-9]\d*))?$")


@dataclass(frozen=True, slots=True)
class Setting:
    """One pattern and the sharding of the values it fits: per dimension axes and sub-axes, and whether it is open.

    `location` is where the file says so.
    """

    pattern: str
    dims: tuple[DimSharding, ...]
    location: Location | None = None

    @staticmethod
    def parse(text: str, location: Location | None = None) -> Setting:
        """`PATTERN=SPEC`, as `w*=,y`. Raises CompileError."""
        pattern, equals, spec = text.rpartition("=")
        if not equals or not pattern:
            fail(f"'{text}' is not of the form PATTERN=AXES,AXES,..", location, help="such as 'w*=,y'")
        return Setting(pattern, _dims(spec, location), location)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A mesh (axis names and sizes; None: the one that the program names) and settings, weakest first. If they stand
    `alone`, the program's own annotations are removed.
    """

    mesh: Mapping[str, int] | None = None
    settings: Sequence[Setting] = field(default_factory=tuple[Setting, ...])
    alone: bool = False

    @staticmethod
    def of(shardings: Mapping[str, str], mesh: Mapping[str, int] | None = None) -> Strategy:
        """Returns the strategy that the tables of a file would give: `{"w*": ",y"}`. Raises CompileError."""
        for axis, size in (mesh or {}).items():
            check_size(axis, size, None)
        for pattern, spec in shardings.items():
            _checked_spec(pattern, spec, None)
        return Strategy(mesh, tuple(Setting(pattern, _dims(spec, None)) for pattern, spec in shardings.items()))


@checked
def load_strategy(path: str | Path) -> Strategy:
    """Reads the strategy in a TOML file. Raises CompileError with the place in the file."""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        cannot_read(path, error)
    return parse_strategy(text, str(path))


def strategy_of(path: str | Path | None, settings: Sequence[str] = ()) -> Strategy | None:
    """Returns the strategy of a file with further settings such as `w*=,y`, which are stronger; None without either.
    Raises CompileError.
    """
    if path is None and not settings:
        return None
    strategy = load_strategy(path) if path is not None else Strategy()
    return replace(strategy, settings=(*strategy.settings, *map(Setting.parse, settings)))


def parse_strategy(text: str, name: str = "<strategy>") -> Strategy:
    """Reads the strategy in the text of a TOML file called `name` in messages. Raises CompileError."""
    source = SourceFile(name, text)
    content = read_toml(source, help="""such as 'w*' = ',y' in a line below [shardings]""")
    unknown = sorted(set(content) - {"mesh", "shardings", "alone"})
    if unknown:
        fail(f"there is no table '{unknown[0]}' in a strategy", _find(source, unknown[0]), help="mesh, shardings")
    alone: Any = content.get("alone", False)
    if not isinstance(alone, bool):
        fail("'alone' must be true or false", _find(source, "alone"))
    mesh, shardings = _table(content, "mesh", source), _table(content, "shardings", source)
    for axis, size in mesh.items():
        check_size(axis, size, _find(source, axis))
    settings: list[Setting] = []
    for pattern, spec in shardings.items():
        place = _find(source, pattern)
        _checked_spec(pattern, spec, place)
        settings.append(Setting(pattern, _dims(spec, place), place))
    return Strategy(mesh or None, tuple(settings), alone)


def _checked_spec(pattern: str, spec: object, location: Location | None) -> None:
    if not isinstance(spec, str):
        fail(f"the sharding of '{pattern}' must be a text", location, help='such as ",y"')


def _table(content: dict[str, Any], name: str, source: SourceFile) -> dict[str, Any]:
    table: Any = content.get(name, {})
    if not isinstance(table, dict):
        fail(f"'{name}' must be a table", _find(source, name))
    return cast(dict[str, Any], table)


def annotate(module: Module, strategy: Strategy | None, sizes: Mapping[str, int] | None) -> None:
    """Annotates a GLOBAL module by a strategy, and gives named meshes other sizes, in place.

    The sizes also give the mesh where neither the strategy nor the program names one. Raises CompileError.
    """
    if strategy is not None and sizes and not named_meshes(module):
        strategy, sizes = replace(strategy, mesh=sizes), None
    if strategy is not None and strategy.mesh is not None:
        apply_strategy(module, strategy)
        strategy = None
    if sizes:
        remesh(module, sizes)  # the strategy's mesh too, which by default is the program's
    if strategy is not None:
        apply_strategy(module, strategy)


@checked
def apply_strategy(
    module: Module, strategy: Strategy | Mapping[str, str], mesh: Mapping[str, int] | None = None
) -> None:
    """Annotates a GLOBAL module, in place.

    A strategy may be a dict from patterns to shardings, as in a file. `mesh` gives the sizes of the axes, in place of
    those of the strategy. Raises CompileError for patterns that fit nothing, unknown axes, and parameters of another
    rank.
    """
    if not isinstance(strategy, Strategy):
        strategy = Strategy.of(strategy, mesh)
    elif mesh is not None:
        strategy = replace(strategy, mesh=mesh)
    if strategy.alone:
        strip_annotations(module)
    devices = _mesh(module, strategy)
    for setting in strategy.settings:
        for instruction in _fitting(module, setting):
            sharding = Sharding(ShardingKind.TILED, devices, _checked(setting, devices), spelling=Spelling.NAMED)
            try:
                sharding.tiling(len(setting.dims))
            except ValueError as error:
                fail(f"bad sharding for {setting.pattern}: {error}", setting.location)
            instruction.sharding, instruction.shardy = sharding, None
            instruction.frontend_attributes = {
                k: v for k, v in instruction.frontend_attributes.items() if k != "xla.sdy.sharding"
            }


def named_meshes(module: Module) -> list[Mesh]:
    """Returns the different meshes with axes that a module names, by a symbol or in a sharding."""
    annotations = (i.annotation for computation in module for i in computation)
    used = (sharding.mesh for annotation in annotations for sharding in parts(annotation))
    named = (mesh for mesh in (*module.meshes.values(), *used) if mesh is not None and mesh.named and mesh.axes)
    return list({str(mesh): mesh for mesh in reversed(list(named))}.values())[::-1]


def _mesh(module: Module, strategy: Strategy) -> Mesh:
    if strategy.mesh is None:
        return _only_mesh(module, strategy)
    known = list(module.meshes.values())
    axes = tuple(strategy.mesh.items())
    found = next((mesh for mesh in known if mesh.axes == axes), None)
    if found is None:
        symbol = next(s for n in range(len(known) + 1) if (s := f"mesh_{n}" if n else "mesh") not in module.meshes)
        found = module.meshes[symbol] = Mesh(axes, symbol=symbol)
    return found


def _only_mesh(module: Module, strategy: Strategy) -> Mesh:
    """Returns the one mesh of the program that has the axes of all settings, or any mesh if none has them."""
    known = named_meshes(module)
    if not known:
        fail("the program names no mesh, so the strategy has to", help="[mesh] in the file, or --mesh x=2,y=4")
    wanted = {axis.name for setting in strategy.settings for dim in setting.dims for axis in dim.axes}
    fitting = [mesh for mesh in known if wanted <= dict(mesh.axes).keys()]
    if len(fitting) > 1:
        fail("the program names several meshes: " + ", ".join(map(str, fitting)),
             help="say which one is meant: [mesh] in a strategy file, or --mesh x=2,y=4 for all of them")
    return (fitting or known)[0]


def _checked(setting: Setting, mesh: Mesh) -> tuple[DimSharding, ...]:
    """Returns the dimensions, after checking that the mesh has all their axes."""
    sizes = dict(mesh.axes)
    for ref in (axis for dim in setting.dims for axis in dim.axes):
        if ref.name not in sizes:
            fail(f"the mesh has no axis '{ref.name}'", setting.location, help="axes: " + ", ".join(sizes))
        if ref.size and sizes[ref.name] % (ref.pre * ref.size):
            fail(f"axis '{ref.name}' of size {sizes[ref.name]} has no part ({ref.pre}){ref.size}", setting.location)
    return setting.dims


def _fitting(module: Module, setting: Setting) -> list[Instruction]:
    pattern = name_pattern(setting.pattern)
    parameters = [p for p in module.entry.parameters if fits(pattern, names_of(p))]
    rank = len(setting.dims)
    for parameter in parameters:
        if not parameter.shape.is_array or parameter.shape.rank != rank:
            fail(f"'{setting.pattern}' has {rank} dimensions, parameter {parameter.name} is {parameter.shape}",
                 setting.location or parameter.location)
    if parameters:
        return parameters
    others = [i for c in module for i in c if i.op.role is not Role.PARAMETER and fits(pattern, names_of(i))]
    found = [i for i in others if i.shape.is_array and i.shape.rank == rank]
    if not found:
        close = suggestions(setting.pattern, (name for p in module.entry.parameters for name in names_of(p)))
        what = f"no value of {rank} dimensions" if others else "no value"
        fail(f"'{setting.pattern}' fits {what}", setting.location, help=f"parameters: {close}")
    return found


def _dims(spec: str, location: Location | None) -> tuple[DimSharding, ...]:
    """Reads `x+y,?,` as the shardings of three dimensions (`-` is one without axes); nothing at all is a scalar's."""
    return tuple(_dim(part.strip(), location) for part in spec.split(",")) if spec.strip() else ()


def _dim(text: str, location: Location | None) -> DimSharding:
    axes: list[AxisRef] = []
    names = (n.strip() for n in text.removesuffix("?").split("+")) if text != "-" else ()
    for name in filter(None, names):
        match = _AXIS.match(name)
        if match is None:
            fail(f"'{name}' is no axis", location, help="axes of a dimension are joined by +, such as x+y or x:(1)2")
        axes.append(AxisRef(match[1], int(match[2] or 1), int(match[3] or 0)) if match[2] else AxisRef(match[1]))
    return DimSharding(tuple(axes), text.endswith("?"))


def _find(source: SourceFile, key: str) -> Location | None:
    """Returns the location of a key in the file."""
    match = re.search(rf"""^[ \t\["']*({re.escape(key)})["'\] \t]*(?==|$)""", source.text, re.MULTILINE)
    return Location(source, match.start(1), match.end(1)) if match else None
