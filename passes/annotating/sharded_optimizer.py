"""Sharded optimizer: divides optimizer states among the devices that see different data (ZeRO-1; Xu et al., "Automatic
Cross-Replica Sharding of Weight Update in Data-Parallel Training", 2020).

In a plain data-parallel step every device holds all states and computes the whole update. This pass annotates each
state and its new value with the axes that divide the batch. The partitioner then finds the rest, because it reduces a
gradient to the tiles that its users need: a reduce-scatter in place of the all-reduce, the update on tiles, and an
all-gather of the new weights, which stay whole. The bytes sent are the same, memory and work of the update are divided;
a norm of all gradients becomes local sums and an all-reduce of a scalar. Loops over stacked layers need nothing else:
the accumulated gradient has the tiles of its states, and the reduce-scatter runs in the loop. Sizes that do not divide
are padded as any tile is.

A state is a parameter whose new value is a result, computed element by element (and perhaps from norms), and which
nothing else reads: no contraction, no look-up. A weight is read by the model as well. With `weights`, one that the
model reads in a shorter type only is divided like the states: each device converts its part, and the parts are gathered
where they are used, in place of the new weights in their longer type.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...ir.diagnostics import fail
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, Stage
from ...ir.graph.op import Role
from ...ir.ops.calls.custom_call import is_annotation
from ...ir.ops.conversion import Copy
from ...ir.ops.reduce import ReduceAttributes
from ...ir.ops.shaping import Reshape
from ...ir.ops.structure import OptimizationBarrier
from ...ir.reached import reached
from ...ir.sharding.digit import Digits, disjoint, merge, product
from ...ir.sharding.mesh import AxisRef, Mesh
from ...ir.sharding.sharding import REPLICATED, AnySharding, Sharding, TupleSharding, leaf_shardings
from ...ir.sharding.tiling import Tiling
from ...ir.tools.aliases import aliases
from ..base import Pass, PassContext


@dataclass(frozen=True)
class ShardedOptimizer(Pass):
    """Annotates optimizer states to be divided. `axes` are the mesh axes, joined by `+`; by default those that divide
    inputs which are neither states nor weights. States below `least_bytes` stay whole. By `weights`, weights are
    divided that the model reads in a shorter type only, and gathered in that type.
    """

    name: ClassVar[str] = "sharded-optimizer"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.GLOBAL})
    axes: str = ""
    least_bytes: int = 0
    weights: bool = False

    def run(self, module: Module, context: PassContext) -> bool:
        root = module.entry.root
        if any(i.op.role is Role.CALL for i in module.entry):
            fail(f"pass {self.name} does not look into calls", help="run call-inliner before it")
        if root.op.role is not Role.TUPLE:
            context.diagnostics.remark(f"{self.name}: a single result has no optimizer states", root.location)
            return False
        pairs = new_values(module)
        live = module.entry.reachable()
        states = {p: n for p, n in pairs.items() if _is_state(p, root, live)}
        weights = {p: s for p in pairs if self.weights and p not in states and (s := _shortened(p, root, live))}
        states |= {p: pairs[p] for p in weights}
        mesh, digits = self._data(module, [p for p in module.entry.parameters if p not in pairs])
        if mesh is None or not digits:
            context.diagnostics.remark(f"{self.name}: no axis divides the inputs of the program", root.location)
            return False
        if not states:
            context.diagnostics.remark(f"{self.name}: no parameter is an optimizer state", root.location)
        before = after = 0
        shardings = [s or REPLICATED for s in leaf_shardings(root.annotation, root.shape.num_leaves)]
        divided: list[Instruction] = []
        for state, place in states.items():
            if state.shape.byte_size < self.least_bytes:
                continue
            found = _divided(state, mesh, digits)
            if isinstance(found, str):
                context.diagnostics.remark(f"{self.name}: {state.name} stays whole: {found}", state.location)
                continue
            tiling = state.annotation.tiling(state.shape.rank) if isinstance(state.annotation, Sharding) else None
            before += (tiling.local_shape(state.shape) if tiling else state.shape).byte_size
            after += found.tiling(state.shape.rank).local_shape(state.shape).byte_size
            for short in weights.get(state, ()):
                _gather_behind(short, found, state.annotation)
            _annotate(state, found)
            _annotate_result(root.operands[place], state, found)
            shardings[place] = found
            divided.append(state)
        if divided:
            root.shardy, root.sharding = None, TupleSharding(tuple(shardings))
            names = "+".join(ref.text("") for ref in mesh.refs(digits) or ()) if mesh.named else str(product(digits))
            context.diagnostics.remark(
                f"{self.name}: {_counted(divided, weights)} are divided over {names}: {after:,} of {before:,} bytes on "
                "each device", divided[0].location,
            )  # fmt: skip
        return bool(divided)

    def _data(self, module: Module, inputs: Iterable[Instruction]) -> tuple[Mesh | None, Digits]:
        """Returns the mesh, and the digits over which devices see different data."""
        annotated = [(p, p.annotation) for p in module.entry.parameters if isinstance(p.annotation, Sharding)]
        meshes = [s.mesh for _, s in annotated if s.mesh is not None and s.mesh.named]
        if self.axes:
            return _named(self.axes, meshes)
        given = set(inputs)
        for p, sharding in annotated:
            if p in given and sharding.mesh is not None and not sharding.is_replicated:
                used = sharding.tiling(p.shape.rank).used()
                return sharding.mesh, merge(sorted(used, key=lambda d: -d.stride))
        return None, ()


def _named(axes: str, meshes: list[Mesh]) -> tuple[Mesh, Digits]:
    names = axes.split("+")
    mesh = next((m for m in meshes if set(names) <= set(dict(m.axes))), None)
    if mesh is None:
        known = sorted({name for m in meshes for name, _ in m.axes})
        fail(f"no mesh of the parameters has the axes {axes}", help="axes: " + (", ".join(known) or "none"))
    return mesh, merge(d for name in names for d in mesh.digits(AxisRef(name)))


def new_values(module: Module) -> dict[Instruction, int]:
    """Returns for each parameter the number of the result that is its new value, where that can be told: by aliasing,
    as the only result that it can be, or as the result of the same number.
    """
    entry, root = module.entry, module.entry.root
    found: dict[Instruction, int] = {}
    number_of = {p: n for n, p in enumerate(entry.parameters)}
    parameters = [p for p in number_of if p.shape.is_array and p.shape.rank]
    reached = {p: _results(p, root) for p in parameters}
    for alias in aliases(module.input_output_alias):
        number = alias.result.strip()
        aliased = next((p for p in parameters if number_of[p] == alias.operand), None)
        if aliased is not None and number.isdigit() and int(number) in reached[aliased]:
            found[aliased] = int(number)
    while True:
        _settle(reached, found)
        taken = set(found.values())
        same = next((p for p in parameters if p not in found and number_of[p] in reached[p] - taken), None)
        if same is None:
            return found
        found[same] = number_of[same]


def _settle(reached: Mapping[Instruction, set[int]], found: dict[Instruction, int]) -> None:
    """Adds the parameters of which only one result can be the new value, as long as there are any."""
    while True:
        taken = set(found.values())
        left = {p: numbers - taken for p, numbers in reached.items() if p not in found}
        single = next(((p, numbers) for p, numbers in left.items() if len(numbers) == 1), None)
        if single is None:
            return
        found[single[0]] = next(iter(single[1]))


def _results(parameter: Instruction, root: Instruction) -> set[int]:
    """Returns the results of the parameter's shape that are computed from it element by element."""
    closure = _elementwise_closure(parameter)
    same = [n for n, o in enumerate(root.operands) if o in closure and o is not parameter]
    return {n for n in same if root.operands[n].shape.compatible(parameter.shape)}


def _elementwise_closure(value: Instruction, shortens: bool = True) -> dict[Instruction, None]:
    """Returns the values that element-wise ops compute from a value, in any order of discovery, itself included; unless
    it `shortens`, without those computed from its conversions to a shorter type.
    """
    dims = value.shape.dims
    return reached([value], lambda v: (u for u in v.users if u.shape.dims == dims and _keeps_places(u)
                                       and (shortens or not _is_shortened(u))))


def _keeps_places(user: Instruction) -> bool:
    plain = user.op.is_elementwise or isinstance(user.op, Copy | OptimizationBarrier | Reshape) or is_annotation(user)
    return plain and user.shape.is_array


def _is_shortened(value: Instruction) -> bool:
    """Whether a value is a float converted to a shorter type."""
    if len(value.operands) != 1 or not value.op.is_elementwise:
        return False
    old, new = value.operands[0].shape.element, value.shape.element
    return old.is_float and new.is_float and new.bits < old.bits


def _is_state(parameter: Instruction, root: Instruction, live: Container[Instruction]) -> bool:
    """Whether only updates, results and norms read a parameter, as far as any result needs that."""
    closure = _elementwise_closure(parameter)
    others = {u for value in closure for u in value.users if u not in closure and u in live}
    return all(_is_update(u, root) for u in others)


def _is_update(user: Instruction, root: Instruction) -> bool:
    return user is root or isinstance(user.attributes, ReduceAttributes) or user.shape.is_scalar


def _shortened(parameter: Instruction, root: Instruction, live: Container[Instruction]) -> list[Instruction]:
    """Returns the conversions of a weight to a shorter type, if only they, updates, results and norms read it."""
    closure = _elementwise_closure(parameter, shortens=False)
    others = {u: None for value in closure for u in value.users if u not in closure and u in live}
    short = [u for u in others if _is_shortened(u) and u.operands[0] is parameter]
    ends = (_is_update(u, root) or u in short for u in others)
    return short if all(ends) and isinstance(parameter.annotation, Sharding) else []


def _gather_behind(short: Instruction, divided: Sharding, given: AnySharding | None) -> None:
    """Lets devices convert their parts of a weight, and gather the whole for all that reads it."""
    computation = short.parent
    assert computation is not None
    readers = list(short.users)
    with computation.at(after=short):
        whole = computation.build("custom-call", short, shape=short.shape, like=short, custom_call_target="Sharding")
    whole.sharding = given
    for reader in readers:
        for index in [n for n, operand in enumerate(reader.operands) if operand is short]:
            computation.set_operand(reader, index, whole)
    _annotate(short, divided)


def _counted(divided: Sequence[Instruction], weights: Container[Instruction]) -> str:
    count = sum(state in weights for state in divided)
    return f"{len(divided) - count} optimizer states" + (f" and {count} weight{'s' * (count > 1)}" if count else "")


def _divided(state: Instruction, mesh: Mesh, digits: Digits) -> Sharding | str:
    """Returns the sharding of a state with its tiles cut once more by `digits`, or why there is none."""
    rank, given = state.shape.rank, state.annotation
    tiling = given.tiling(rank) if isinstance(given, Sharding) else Tiling.replicated(rank)
    if tiling.device is not None or tiling.manual or (tiling.order != mesh.order_key and tiling.used()):
        return "it lies on one device, or on devices in another order"
    if not disjoint(digits, tiling.used()):
        return "it is divided over these axes already"
    local, count = tiling.local_dims(state.shape.dims), product(digits)
    dim = max(range(rank), key=lambda d: (local[d] % count == 0, not tiling.dims[d], local[d]))
    if local[dim] < count:
        return f"no dimension of {list(local)} has {count} elements"
    wanted = replace(tiling.with_dim(dim, merge(tiling.dims[dim] + digits)), order=mesh.order_key)
    found = Sharding.from_tiling(wanted, mesh)
    if found is None:
        return "the mesh has no such axes"
    if given is None:  # propagation may divide other dimensions
        dims = tuple(d if n == dim else replace(d, is_open=True) for n, d in enumerate(found.dims))
        found = replace(found, dims=dims)
    return found


def _annotate(value: Instruction, sharding: Sharding) -> None:
    value.sharding, value.shardy = sharding, None
    attributes: dict[str, Any] = {k: v for k, v in value.frontend_attributes.items() if k != "xla.sdy.sharding"}
    value.frontend_attributes = attributes


def _annotate_result(value: Instruction, state: Instruction, sharding: Sharding) -> None:
    """Replaces the annotations of a new value and of the copies and annotations that forward it."""
    while value.annotation is not None and value is not state:
        _annotate(value, sharding)
        if not (is_annotation(value) or isinstance(value.op, Copy)):
            return
        value = value.operands[0]
