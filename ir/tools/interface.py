"""Exchanges the parameters and results of a per-device program, with everything in its header that counts them.

`unflattened` gives a program that keeps arrays inside of others (`ir/graph/flat_layout`) the parameters and results
that it had before: it takes each array by itself, joins them, and cuts the results apart. So whatever compares programs
or makes inputs for them need not know of layouts.

`flat_layout_problems` checks that the layout of joined arrays fits the program: every array once, members side by side,
tiles of their global shapes.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from ..graph.attributes import ParameterAttributes, SliceDim
from ..graph.computation import Computation
from ..graph.flat_layout import FlatMember, Member
from ..graph.instruction import Instruction, Metadata
from ..graph.module import EntryLayout, Module, Stage, clone_module
from ..graph.op import Role
from ..ops.shaping import ConcatenateAttributes
from ..ops.slicing import SliceAttributes
from ..sharding.sharding import REPLICATED, Sharding, TupleSharding, leaf_shardings
from ..types.shape import Shape, tuple_shape
from .aliases import donors
from .sharding_checks import sharding_problem

_ENTRY = re.compile(
    r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*(?:,\s*\{([\d,\s]*)\})?\s*(?:,\s*((?:may|must)-alias))?\s*\)"
)


class Port(NamedTuple):
    """A parameter or result of a program: the instruction, its global shape, its sharding, and the shape with a layout
    that the header asks for.
    """

    value: Instruction
    whole: Shape
    sharding: Sharding | None
    laid_out: Shape

    @property
    def member(self) -> Member:
        """Describes the array as a member of another one; `start` is left to the caller."""
        metadata = self.value.metadata if self.value.op.role is Role.PARAMETER else None
        path = metadata.op_name if metadata is not None else ""
        return Member(self.value.name, 0, self.value.shape.without_layout(), self.whole, self.sharding, path)


class ParameterAlias(NamedTuple):
    """A result that lies in the memory of a parameter."""

    result: int
    parameter: int
    kind: str


@dataclass(slots=True)
class Interface:
    """The parameters and results of a program, and which of them share memory. A root that is no tuple is one result.
    """

    parameters: list[Port]
    results: list[Port]
    aliases: list[ParameterAlias]
    donors: list[int]

    @staticmethod
    def of(module: Module) -> Interface | None:
        """Returns the interface of a LOCAL program; None if a parameter or result is not an array."""
        entry, root = module.entry, module.entry.root
        values = list(root.operands) if root.op.role is Role.TUPLE else [root]
        if not all(v.shape.is_array for v in (*entry.parameters, *values)):
            return None
        given, made = module.global_layout, module.entry_layout

        def port(value: Instruction, whole: Shape | None, sharding: Sharding | None, laid_out: Shape | None) -> Port:
            return Port(value, whole or _whole(value.shape, sharding), sharding, laid_out or value.shape)

        shardings = leaf_shardings(root.annotation, len(values))
        return Interface(
            [port(p, given.parameters[n] if given else None, leaf_shardings(p.annotation, 1)[0],
                  made.parameters[n] if made else None) for n, p in enumerate(entry.parameters)],
            [port(v, _leaf(given.result, n) if given else None, shardings[n], _leaf(made.result, n) if made else None)
             for n, v in enumerate(values)],
            [ParameterAlias(int(result.strip() or "0"), int(number), kind)
             for result, number, _, kind in _ENTRY.findall(module.input_output_alias)],
            [number for number, _ in donors(module.buffer_donor)],
        )  # fmt: skip

    def install(self, module: Module) -> None:
        """Makes this the interface of a program, whose instructions the values are. New ones may stand anywhere."""
        entry, root = module.entry, module.entry.root
        for number, port in enumerate(self.parameters):
            port.value.attributes = replace(port.value.attributes_as(ParameterAttributes), number=number)
        if root.op.role is Role.TUPLE:
            new = entry.add(root.op, [r.value for r in self.results], root.attributes, name=root.name, like=root)
            new.sharding = TupleSharding(tuple(r.sharding or REPLICATED for r in self.results))
            entry.root = new
            entry.remove(root)
            entry.rename(new, root.name)
        entry.sort()
        result = tuple_shape if root.op.role is Role.TUPLE else _single
        wholes = tuple(p.whole for p in self.parameters)
        module.global_layout = EntryLayout(wholes, result(tuple(r.whole for r in self.results)))
        if module.entry_layout is not None:
            shapes = tuple(p.laid_out for p in self.parameters)
            module.entry_layout = EntryLayout(shapes, result(tuple(r.laid_out for r in self.results)))
        index = "{%d}" if root.op.role is Role.TUPLE else "{}"
        shared = [f"{index.replace('%d', str(a.result))}: ({a.parameter}, {{}}, {a.kind or 'may-alias'})"
                  for a in self.aliases]
        module.input_output_alias = "{ " + ", ".join(shared) + " }" if shared else ""
        module.buffer_donor = "{ " + ", ".join(f"({n}, {{}})" for n in self.donors) + " }" if self.donors else ""
        module.allow_propagation_to_parameters = module.allow_propagation_to_output = None


def _whole(shape: Shape, sharding: Sharding | None) -> Shape:
    """Returns the global shape of even tiles."""
    if sharding is None:
        return shape
    tiling = sharding.tiling(shape.rank)
    return shape.with_dims(tuple(n * tiling.tiles(d) for d, n in enumerate(shape.dims)))


def _leaf(shape: Shape, number: int) -> Shape:
    return shape.elements[number] if shape.is_tuple else shape


def _single(shapes: tuple[Shape, ...]) -> Shape:
    return shapes[0]


def joined(computation: Computation, values: Sequence[Instruction]) -> Instruction:
    """Appends the array `[1,n]` of the elements of all values, one after the other."""
    rows = [reshaped(computation, v, (1, math.prod(v.shape.dims))) for v in values]
    return computation.add("concatenate", rows, ConcatenateAttributes((1,)), like=values[0])


def cut(computation: Computation, flat: Instruction, member: Member) -> Instruction:
    """Appends the array that lies inside of `[1,n]`."""
    dims = member.shape.dims
    bounds = SliceAttributes((SliceDim(0, 1), SliceDim(member.start, member.start + math.prod(dims))))
    return reshaped(computation, computation.add("slice", [flat], bounds), dims)


def reshaped(computation: Computation, value: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Appends a reshape, where the dimensions differ."""
    if value.shape.dims == dims:
        return value
    return computation.add("reshape", [value], shape=value.shape.with_dims(dims), like=value)


def unflattened(module: Module) -> Module:
    """Returns a copy whose parameters and results are those of before its arrays were joined; the module itself if none
    are. Raises CompileError if one of its parameters or results is no array.
    """
    layout = module.flat_layout
    if layout is None:
        return module
    copy = clone_module(module)
    entry, old = copy.entry, Interface.of(copy)
    assert old is not None, "the verifier has checked it"
    parameters: list[Port] = []
    members, parts = _inside(layout.parameters), _inside(layout.results)
    for number, place in enumerate(layout.parameters):
        if place.member is None:
            parameters.append(old.parameters[place.number])
            continue
        parameters.append(_parameter(entry, number, place.member))
    results: list[Port] = []
    for place in layout.results:
        port = old.results[place.number]
        if place.member is not None:
            m = place.member
            port = Port(cut(entry, port.value, m), m.whole, m.sharding, m.shape)
            entry.rename(port.value, m.name)
        results.append(port)
    places = {place.number: n for n, place in enumerate(layout.parameters) if place.member is None}
    ends = {place.number: n for n, place in enumerate(layout.results) if place.member is None}
    shared = [ParameterAlias(r, p, a.kind) for a in old.aliases
              for r, p in zip(parts.get(a.result) or [ends[a.result]],
                              members.get(a.parameter) or [places[a.parameter]], strict=True)]  # fmt: skip
    given = [n for d in old.donors for n in members.get(d) or [places[d]]]
    for flat, numbers in members.items():
        whole = joined(entry, [parameters[n].value for n in numbers])
        entry.replace_all_uses(old.parameters[flat].value, whole)
        entry.remove(old.parameters[flat].value)
    copy.flat_layout = None
    Interface(parameters, results, shared, given).install(copy)
    return copy


def _inside(places: Sequence[FlatMember]) -> dict[int, list[int]]:
    """Returns per joined array the numbers of its members, in the order in which they lie there."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, place in enumerate(places):
        if place.member is not None:
            found[place.number].append((place.member.start, number))
    return {number: [n for _, n in sorted(members)] for number, members in found.items()}


def _parameter(entry: Computation, number: int, member: Member) -> Port:
    made = entry.add("parameter", (), ParameterAttributes(number), member.shape, member.name)
    made.sharding = member.sharding
    if member.op_name:
        made.metadata = Metadata.named(member.op_name)
    return Port(made, member.whole, member.sharding, member.shape)


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
