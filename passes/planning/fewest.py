"""The fewest annotations that reproduce a plan: a strategy for the program as the user has it.

Levels are tried in turn: parameters alone, with the values of results, with the results of contractions, with all
values. Of the first whose forecast is that of the plan, settings are left out again, many at once and then one by one:
first as long as propagation completes the others to the same shardings, which takes a part of the time of a forecast,
then as long as the forecast stays, until none can be left out. A strategy names values of the user's program; what a
plan annotates beyond those (values inside of calls that were inlined, single reads) only the annotated program can say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ...cost.work import is_contraction
from ...ir.diagnostics import CompileError, Diagnostics
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, clone_module
from ...ir.graph.op import Role
from ...ir.sharding.mesh import Mesh
from ...ir.sharding.sharding import Sharding
from ..annotating.strategy import Strategy, apply_strategy
from ..annotating.strip import strip_annotations
from ..base import PassContext
from ..pipelines import propagate
from .judge import Judged
from .time_left import WITHOUT_END, TimeLeft

_CLOSE = 1e-3  # relative difference of forecasts that counts as none


@dataclass(frozen=True, slots=True)
class FewSettings:
    """A strategy, as the tables of a file would give it, and its forecast. `reproduces` says whether that is the
    plan's. It stands `alone` if the program has annotations, which plans leave out.
    """

    mesh: Mesh
    shardings: Mapping[str, str]
    judged: Judged
    reproduces: bool
    alone: bool = False

    def text(self) -> str:
        """Returns the content of a strategy file."""
        alone = ["alone = true  # without the annotations of the program", ""] if self.alone else []
        lines = [*alone, "[mesh]", *(f"{name} = {size}" for name, size in self.mesh.axes), "", "[shardings]"]
        return "\n".join([*lines, *(f"{_quoted(name)} = {_quoted(spec)}" for name, spec in self.shardings.items()), ""])


def fewest(
    module: Module, planned: Module, mesh: Mesh, wanted: Judged, judge: Callable[[Module, TimeLeft], Judged],
    context: PassContext, seconds: float, kept: Collection[int] = (),
) -> FewSettings:
    """Returns the fewest settings found in about this many seconds, for a program and its annotated copy. The `context`
    is that of `judge`, which keeps to the time that is left. Parameters with `kept` numbers have the plan's shardings,
    whatever the forecast says.
    """
    deadline = time.monotonic() + seconds
    plain = clone_module(module)
    strip_annotations(plain)
    sizes, names = dict(mesh.axes), {plain.entry.parameters[n].name for n in kept}

    def annotated(settings: Mapping[str, str]) -> Module:
        own = clone_module(plain)
        apply_strategy(own, Strategy.of(settings, sizes))
        return own

    def judged(settings: Mapping[str, str], left: TimeLeft = WITHOUT_END) -> Judged:
        return judge(annotated(settings), left)

    def completed(settings: Mapping[str, str]) -> object:
        silent = Diagnostics(remarks=False)
        own = replace(context, num_devices=mesh.size, default_devices=None, diagnostics=silent, records=[])
        try:
            return [i.sharding for c in propagate(annotated(settings), own) for i in c]
        except CompileError:
            return None

    best: tuple[dict[str, str], Judged] | None = None
    levels = list(_levels(plain, planned))
    for number, settings in enumerate(levels):
        if 0 < number < len(levels) - 1 and time.monotonic() > deadline:
            continue
        found = judged(settings)
        if best is None or found.seconds < best[1].seconds:
            best = settings, found
        if found.seconds <= wanted.seconds * (1 + _CLOSE):
            break
    assert best is not None
    settings, found = best
    limit = max(found.seconds, wanted.seconds) * (1 + _CLOSE)
    peak = max(found.peak, wanted.peak)

    def stays(some: Mapping[str, str], left: TimeLeft) -> bool:
        nonlocal found
        tried = judged(some, left)
        is_as_good = tried.seconds <= limit and tried.peak <= peak
        found = tried if is_as_good else found
        return is_as_good

    shown = completed(settings)
    fewer = _fewer(settings, lambda some: completed(some) == shown, deadline) if shown is not None else settings
    settings = fewer if len(fewer) < len(settings) and stays(fewer, WITHOUT_END) else settings
    settings = _fewer(settings, lambda some: stays(some, TimeLeft(deadline)), deadline, names)
    alone = any(i.annotation is not None for computation in module for i in computation)
    return FewSettings(mesh, settings, found, found.seconds <= wanted.seconds * (1 + _CLOSE), alone)


def _fewer(
    settings: dict[str, str], holds: Callable[[dict[str, str]], bool], deadline: float, kept: Collection[str] = (),
) -> dict[str, str]:
    """Leaves out settings, but for those of `kept` names, as long as something holds without them, until a deadline:
    many at once, then one by one.
    """
    size = len(settings)
    while size and time.monotonic() < deadline:
        count, names = len(settings), [name for name in settings if name not in kept]
        for start in range(0, len(names), size):
            fewer = {k: v for k, v in settings.items() if k not in names[start : start + size]}
            if (not fewer and size > 1) or time.monotonic() > deadline:  # none at all seldom do: tried last
                continue
            if holds(fewer):
                settings = fewer
        if size > 1 or len(settings) == count:  # a setting may be needed only beside another one
            size //= 2
    return settings


def _levels(plain: Module, planned: Module) -> Iterator[dict[str, str]]:
    """Yields ever more settings, by the names of values that both programs have."""
    given = {i.name: i for computation in planned for i in computation if isinstance(i.sharding, Sharding)}
    taken = {p.name for p in plain.entry.parameters}
    parameters = {
        ours.name: _spec(theirs)
        for ours, theirs in zip(plain.entry.parameters, planned.entry.parameters, strict=True)
        if ours.shape.is_array and ours.shape.rank and isinstance(theirs.sharding, Sharding)
    }
    others = [
        (i, given[i.name]) for computation in plain for i in computation
        if i.op.role is not Role.PARAMETER and i.shape.is_array and i.shape.rank and i.name in given
        and i.name not in taken and given[i.name].shape.dims == i.shape.dims and "*" not in i.name
    ]  # fmt: skip
    results = set(plain.entry.root.operands) if plain.entry.root.op.role is Role.TUPLE else {plain.entry.root}
    yield parameters
    yield parameters | {i.name: _spec(j) for i, j in others if i in results}
    yield parameters | {i.name: _spec(j) for i, j in others if i in results or is_contraction(i)}
    yield parameters | {i.name: _spec(j) for i, j in others}


def _spec(value: Instruction) -> str:
    assert isinstance(value.sharding, Sharding)
    dims = ["+".join(ref.name for ref in dim.axes) for dim in value.sharding.dims]
    return (dims[0] or "-") if len(dims) == 1 else ",".join(dims)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
