"""Checks that the layout of joined arrays fits the program: every array once, members side by side, tiles of their
global shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..graph.flat_layout import FlatMember
from ..graph.module import Module, Stage
from ..types.shape import Shape
from .interface import Interface
from .sharding_checks import sharding_problem


def flat_layout_problems(module: Module) -> Iterator[str]:
    """Yields the violations of a module's flat layout; nothing if it has none."""
    layout = module.flat_layout
    if layout is None:
        return
    interface = Interface.of(module) if module.stage in (Stage.LOCAL, Stage.SCHEDULED) else None
    if interface is None:
        yield "flat layout: only programs per device whose parameters and results are arrays have one"
        return
    for what, places, ports in (("parameter", layout.parameters, interface.parameters),
                                ("result", layout.results, interface.results)):  # fmt: skip
        if sorted({p.number for p in places}) != list(range(len(ports))):
            yield f"flat layout: it names other {what}s than the {len(ports)} of the program"
            continue
        for number, group in groupby(sorted(places, key=lambda p: p.number), key=lambda p: p.number):
            yield from (f"flat layout: {what} {number}: {problem}"
                        for problem in _problems(list(group), ports[number].value.shape, module.num_partitions))
    pairs = [{p.number: p.member is not None for p in places} for places in (layout.parameters, layout.results)]
    for alias in interface.aliases if all(pairs) else ():
        if pairs[1].get(alias.result) != pairs[0].get(alias.parameter):
            yield f"flat layout: only one of result {alias.result} and its parameter {alias.parameter} is joined"


def _problems(places: Sequence[FlatMember], shape: Shape, devices: int) -> Iterator[str]:
    members = sorted((p.member for p in places if p.member is not None), key=lambda m: m.start)
    if len(members) != len(places):
        if len(places) > 1:
            yield "it is an array by itself and a member"
        return
    end = 0
    for m in members:
        if m.start != end or m.shape.element is not shape.element:
            yield f"{m.name} is not {shape.element} from {end} on"
        end += m.shape.num_elements
        problem = sharding_problem(m.sharding, m.whole, devices) if m.sharding is not None else None
        if problem:
            yield f"{m.name}: {problem}"
        elif (m.sharding.tiling(m.whole.rank).local_dims(m.whole.dims) if m.sharding else m.whole.dims) != m.shape.dims:
            yield f"{m.name}: the tiles of {m.whole.without_layout()} are not {m.shape.without_layout()}"
    if shape.dims != (1, end):
        yield f"its members are [1,{end}], it is {shape.without_layout()}"
