"""Keeps parameters that are always gathered together in one buffer, so that packing them is free.

    before:  all = (f32[8,4], f32[16]) all-gather(w, u), dimensions={0}       w, u parameters
    after:   all = f32[2,24] all-gather(flat), dimensions={0}                 flat = f32[1,24] parameter
             w and u of all devices are slices of its columns

Parameters are members of one buffer if the same buckets gather them, they have one type, and either all or none of them
alias a result. If they do, these results are joined, too: the weights that a step computes are the parameters of the
next one. Other readers of a member read a slice. `Module.flat_layout` records the offsets of the arrays, so that
callers pass and receive them one by one.

The buffer also replaces the concatenation of a flat bucket (`bucket{form=flat}`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from ...ir.brief import brief
from ...ir.graph.attributes import ParameterAttributes, SliceDim
from ...ir.graph.flat_layout import FlatLayout, FlatMember
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.graph.op import Role
from ...ir.ops.collectives import AllGather, AllGatherAttributes
from ...ir.ops.shaping import Concatenate, Reshape, TransposeAttributes
from ...ir.ops.slicing import SliceAttributes
from ...ir.ops.structure import GetTupleElementAttributes
from ...ir.sharding.digit import Digit
from ...ir.sharding.sharding import Sharding
from ...ir.sharding.tiling import Tiling
from ...ir.tools.interface import Interface, ParameterAlias, Port, cut, joined, reshaped
from ...ir.types.shape import Shape, array, tuple_shape
from ..base import Pass, PassContext, refuse_starts
from .rewrites.base import Edits, amount, only_user


@dataclass(frozen=True)
class FlatParameters(Pass):
    """Joins the parameters of each bucket of all-gathers in one buffer."""

    name: ClassVar[str] = "flat-parameters"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.LOCAL, Stage.SCHEDULED})

    def run(self, module: Module, context: PassContext) -> bool:
        refuse_starts(module, self.name)
        interface = Interface.of(module)
        said = partial(context.diagnostics.remark, cost=math.inf)  # these answer an option
        if module.flat_layout is not None:
            said(f"{self.name}: {module.name} has flat parameters already", module.entry.location)
        elif interface is None:
            said(f"{self.name}: a parameter or result of {module.name} is no array", module.entry.location)
        elif module.entry.has_control_dependencies:
            said(f"{self.name}: {module.entry.name} has control dependencies", module.entry.location)
        else:
            groups = _groups(module, interface)
            if not groups:
                said(f"{self.name}: no all-gather has several parameters as operands", module.entry.location,
                     help="a schedule, or the pass bucket, combines all-gathers")
                return False
            _Work(module, interface, groups).run()
            for group in groups:
                number, size = len(group.members), group.shape.byte_size
                said(f"{self.name}: {number} parameters in {group.port.value.name}, {amount(size)} on each device, "
                     f"are gathered by {', '.join(g.name for g in group.made)} without packing", module.entry.location)
            return True
        return False


@brief
@dataclass(slots=True, eq=False)
class _Group:
    """Parameters that are joined, by number, with their offsets; and the results that alias them, if any."""

    gathers: tuple[Instruction, ...]
    members: list[int]
    starts: list[int]
    shape: Shape
    results: list[int]
    made: list[Instruction] = field(default_factory=list[Instruction])
    _port: Port | None = None

    @property
    def port(self) -> Port:
        assert self._port is not None
        return self._port

    def add_to(self, module: Module) -> None:
        """Appends the parameter."""
        value = module.entry.add("parameter", (), ParameterAttributes(0), self.shape, "flat")
        value.sharding = sharding = _one_row_each(module.num_partitions)
        self._port = Port(value, self.whole(module), sharding, self.shape)

    def whole(self, module: Module) -> Shape:
        return self.shape.with_dims((module.num_partitions, self.shape.dims[1]))


def _one_row_each(devices: int) -> Sharding:
    """Returns the sharding of a two-dimensional array that gives each device one row."""
    return Sharding.on_own_mesh(Tiling(((Digit(devices, 1),), ())), devices)


def _source(value: Instruction) -> Instruction:
    """Returns the value whose elements these are, in the same order."""
    while isinstance(value.op, Reshape) and not value.shape.is_dynamic:
        value = value.operands[0]
    return value


def _packed(gather: Instruction) -> Sequence[Instruction]:
    """Returns the values that a bucket gathers, as operands or in a concatenation with no other user; none if the
    gather is no bucket.
    """
    if not isinstance(gather.op, AllGather) or gather.annotation is not None:
        return ()
    first = gather.operands[0]
    if len(gather.operands) > 1:
        return gather.operands
    is_row = isinstance(first.op, Concatenate) and first.shape.rank == 2 and first.shape.dims[0] == 1
    return first.operands if is_row and only_user(first) is gather else ()


def _groups(module: Module, interface: Interface) -> list[_Group]:
    """Returns the parameters that can be joined, in the order in which they are gathered."""
    number_of = {port.value: n for n, port in enumerate(interface.parameters)}
    by: dict[int, dict[Instruction, None]] = defaultdict(dict)
    for gather in module.entry:
        for operand in _packed(gather):
            number = number_of.get(_source(operand))
            if number is not None:
                by[number][gather] = None
    results: dict[int, list[int]] = defaultdict(list)
    for alias in interface.aliases if module.entry.root.op.role is Role.TUPLE else ():
        results[alias.parameter].append(alias.result)
    held = {alias.parameter for alias in interface.aliases}
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for number, gathers in by.items():
        shape = interface.parameters[number].value.shape
        if shape.num_elements and not shape.is_dynamic and (number in held) == (len(results[number]) == 1):
            key = (tuple(gathers), shape.element, number in held, number in interface.donors)
            alike[key].append(number)
    found: list[_Group] = []
    for members in alike.values():
        values = [interface.parameters[n].value for n in members]
        flat = [g for g in by[members[0]] if len(g.operands) == 1]
        if len(members) > 1 and all(list(map(_source, _packed(g))) == values for g in flat):
            sizes = [value.shape.num_elements for value in values]
            starts = [sum(sizes[:n]) for n in range(len(sizes))]
            shape = array(values[0].shape.element, (1, sum(sizes)))
            joint = [r for n in members for r in results[n]]
            found.append(_Group(tuple(by[members[0]]), members, starts, shape, joint))
    return found


@brief
@dataclass
class _Work:
    """Joins groups of parameters of a program."""

    module: Module
    old: Interface
    groups: Sequence[_Group]

    def run(self) -> None:
        entry = self.module.entry
        self.edits = Edits(entry)
        with entry.at():  # the root stays
            for group in self.groups:
                group.add_to(self.module)
        for gather in dict.fromkeys(g for group in self.groups for g in group.gathers):
            self._gather_flat(gather)
        self.edits.finish()
        flat = {number: (n, start) for n, group in enumerate(self.groups)
                for number, start in zip(group.members, group.starts, strict=True)}  # fmt: skip
        for number, (n, start) in flat.items():
            value = self.old.parameters[number].value
            if value.users or value is entry.root:
                member = replace(self.old.parameters[number].member, start=start)
                entry.replace_all_uses(value, cut(entry, self.groups[n].port.value, member))
        self._install(flat)

    def _install(self, flat: dict[int, tuple[int, int]]) -> None:
        old, entry = self.old, self.module.entry
        values = entry.root.operands if entry.root.op.role is Role.TUPLE else [entry.root]
        results = [port._replace(value=value) for port, value in zip(old.results, values, strict=True)]
        own = [n for n in range(len(old.parameters)) if n not in flat]
        joint = {r: (n, start) for n, group in enumerate(self.groups)
                 for r, start in zip(group.results, group.starts, strict=False)}  # fmt: skip
        left = [r for r in range(len(old.results)) if r not in joint]
        with_results = [n for n, group in enumerate(self.groups) if group.results]
        flat_results = [self._joined_results(self.groups[n], results) for n in with_results]
        number = {p: n for n, p in enumerate(own)}
        place = {r: n for n, r in enumerate(left)}
        end = {n: len(left) + k for k, n in enumerate(with_results)}
        aliases = [
            ParameterAlias(place[a.result], number[a.parameter], a.kind) for a in old.aliases if a.result in place
        ]
        aliases += [ParameterAlias(end[n], len(own) + n, "may-alias") for n in with_results]
        donors = [number[d] for d in old.donors if d in number]
        donors += [len(own) + n for n, group in enumerate(self.groups) if group.members[0] in old.donors]
        self.module.flat_layout = FlatLayout(
            tuple(FlatMember(number[p]) if p in number else
                  FlatMember(len(own) + flat[p][0], replace(port.member, start=flat[p][1]))
                  for p, port in enumerate(old.parameters)),
            tuple(FlatMember(place[r]) if r in place else
                  FlatMember(end[joint[r][0]], replace(port.member, start=joint[r][1]))
                  for r, port in enumerate(results)))  # fmt: skip
        entry.remove_all(old.parameters[p].value for p in flat)
        parameters = [old.parameters[p] for p in own] + [group.port for group in self.groups]
        Interface(parameters, [results[r] for r in left] + flat_results, aliases, donors).install(self.module)

    def _joined_results(self, group: _Group, results: Sequence[Port]) -> Port:
        """Appends the joined array of a group's results, after the last of them."""
        entry = self.module.entry
        values = [results[r].value for r in group.results]
        order = {i: n for n, i in enumerate(entry)}
        with entry.at(after=max(values, key=order.__getitem__)):
            value = joined(entry, values)
        return Port(value, group.whole(self.module), group.port.sharding, group.shape)

    def _gather_flat(self, gather: Instruction) -> None:
        """Replaces the operands of a bucket that are members, by their groups."""
        sources = [_source(operand) for operand in gather.operands]
        joint = {self.old.parameters[p].value: (group, start) for group in self.groups if gather in group.gathers
                 for p, start in zip(group.members, group.starts, strict=True)}  # fmt: skip
        groups = list(dict.fromkeys(group for group, _ in joint.values()))
        if len(gather.operands) == 1:
            self.edits.replace(gather.operands[0], groups[0].port.value)
            groups[0].made.append(gather)
            return
        rest = [n for n, source in enumerate(sources) if source not in joint]
        attributes = gather.attributes_as(AllGatherAttributes)
        dim = attributes.dimensions[0]
        count = gather.shape.elements[0].dims[dim] // gather.operands[0].shape.dims[dim]
        lead = (1,) * dim if rest else ()
        entry = self.module.entry
        with entry.at(after=gather):
            operands = [reshaped(entry, group.port.value, (*lead, *group.shape.dims)) for group in groups]
            operands += [gather.operands[n] for n in rest]
            shapes = [array(g.shape.element, (*lead, count, g.shape.dims[1])) for g in groups]
            shapes += [gather.shape.elements[n].without_layout() for n in rest]
            single = len(operands) == 1
            made = entry.add(
                gather.op, operands, attributes if rest else replace(attributes, dimensions=(0,)),
                shapes[0] if single else tuple_shape(tuple(shapes)), gather.name, gather,
            )  # fmt: skip
            made.frontend_attributes = gather.frontend_attributes
            parts = [made] if single else [
                entry.add("get-tuple-element", [made], GetTupleElementAttributes(n), shape, like=gather)
                for n, shape in enumerate(shapes)
            ]  # fmt: skip
            rows = {group: reshaped(entry, part, (count, group.shape.dims[1]))
                    for group, part in zip(groups, parts, strict=False)}  # fmt: skip
            others = dict(zip(rest, parts[len(groups) :], strict=True))
            for element in list(gather.users):
                n = element.attributes_as(GetTupleElementAttributes).index
                if n in others:
                    self.edits.replace(element, others[n])
                    continue
                group, start = joint[sources[n]]
                part = self._unpacked(rows[group], start, gather.operands[n].shape, dim, element)
                self.edits.replace(element, part)
        for group in groups:
            group.made.append(made)
        self.edits.unused([gather])

    def _unpacked(self, rows: Instruction, start: int, tile: Shape, dim: int, element: Instruction) -> Instruction:
        """Appends the whole array of a member, given the rows of all devices and the tile that was gathered."""
        entry, size = self.module.entry, math.prod(tile.dims)
        count = rows.shape.dims[0]
        bounds = SliceAttributes((SliceDim(0, count), SliceDim(start, start + size)))
        part = entry.add("slice", [rows], bounds, name=element.name, like=element)
        before, behind = math.prod(tile.dims[:dim]), math.prod(tile.dims[dim:])
        if before > 1:
            part = reshaped(entry, part, (count, before, behind))
            part = entry.add("transpose", [part], TransposeAttributes((1, 0, 2)), like=element)
        return reshaped(entry, part, element.shape.dims)
