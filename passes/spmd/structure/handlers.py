"""Handlers of structure: parameters, tuples, control flow, annotations. These ops move values and compute nothing.

A custom-call that the program places on one device happens there, and nowhere else; JAX places its callbacks this way
(`jax.debug.print`). All devices run one program: the call is in a branch that only its device takes, with operands
brought to that device. The other devices take a branch that returns zeros.

A roll, the concatenation of the end of an array and its beginning, becomes one exchange along a ring. As two slices and
a concatenation, elements would move twice: first to the even tiles of two arrays of unlike sizes, then to their final
places. The slices become dead code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from ....ir.graph.clone import map_called
from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.ops.calls.behaviour import CustomCallAttributes
from ....ir.ops.calls.custom_call import behaviour
from ....ir.ops.comparison import CompareAttributes, ComparisonDirection
from ....ir.ops.control import ConditionalAttributes, WhileAttributes
from ....ir.ops.structure import GetTupleElementAttributes, ParameterAttributes
from ....ir.sharding.digit import product
from ....ir.sharding.tiling import Tiling
from ....ir.tools.roll import find_roll
from ....ir.tools.spmd import sole_device
from ....ir.types.element_type import S32
from ....ir.types.shape import Shape
from ...resharding.halo_plan import TiledDim
from ..emit.emitter import Emitter, LocalValue
from ..emit.halo import HaloExchange, Interval
from ..emit.local_op import elements, pack, with_leaves
from .manual import enter, leave
from .scope import Handler, Leaves, Scope


def concatenate(p: Scope, instruction: Instruction) -> Leaves:
    """Emits a roll along a divided dimension as a ring exchange; any other concatenation generically."""
    roll = find_roll(instruction)
    if roll is None:
        return p.generic(instruction)
    (value,), (wanted,) = p.values[roll.source], p.tilings(instruction)
    found = [t for t in (wanted, value.tiling) if t.dims[roll.dim] and t.order == p.order and not t.unreduced]
    if not found:
        return p.generic(instruction)
    tiling, why = found[0], f"roll {instruction.name}"
    value = p.resharder.reshard(value, tiling, f"operand of {why}")
    digits, extent = tiling.dims[roll.dim], value.shape.dims[roll.dim]
    tile = value.instruction.shape.dims[roll.dim]
    starts = tuple(roll.shift + number * tile for number in range(product(digits)))
    rounds = p.resharder.machine.collective("collective-permute", digits, tiling.order)
    ring = Interval(roll.dim, digits, TiledDim(product(digits), tile, extent, rounds), starts, tile, wrap=True)
    rolled = HaloExchange(p.emitter, p.resharder.channels, why).fetch(value.instruction, ring)
    return p.reshard([LocalValue(rolled, value.shape, tiling)], [wanted], f"result of {why}")


def on_device(shape: Shape, device: int) -> Tiling:
    """Returns the tiling of a value on this device. Values that are not arrays, such as tokens, have no device."""
    return Tiling(((),) * shape.rank, device=device if shape.is_array else None)


def run_on_device(p: Scope, instruction: Instruction, device: int) -> Instruction:
    """Returns the result of a custom-call on this device, zeros on the others."""
    view, emitter = p.calling(instruction), p.emitter
    operands = p.operands(instruction)
    tilings = [on_device(v.shape, device) for v in operands]
    placed = p.reshard(operands, tilings, f"operand of {instruction.opcode} {instruction.name}")
    leaves = iter([v.instruction for v in placed])
    argument = emitter.add("tuple", [pack(emitter, o.shape, leaves) for o in instruction.operands])
    place = device if emitter.order is None else emitter.order.index(device)
    at = (emitter.partition_id(), emitter.constant(place, S32))
    here = emitter.shared("compare", at, CompareAttributes(ComparisonDirection.EQ))
    attributes = ConditionalAttributes(
        true_computation=_call(p, view, argument.shape), false_computation=_zeros(p, view, argument.shape))
    return emitter.add("conditional", (here, argument, argument), attributes, name=instruction.name)


def _call(p: Scope, view: Instruction, argument: Shape) -> Computation:
    """Builds the branch with the call; its operands are the elements of one argument."""
    emitter, parameter = _branch(p, f"{view.name}.here", argument)
    elements = range(len(view.operands))
    operands = [emitter.add("get-tuple-element", (parameter,), GetTupleElementAttributes(n)) for n in elements]
    made = emitter.add(view.opcode, operands, view.attributes, view.shape, name=view.name)
    made.backend_config = view.backend_config
    # XLA requires a root with a value: an empty tuple is one, a call without results is not.
    emitter.computation.root = made if view.shape.num_leaves else emitter.add("tuple", ())
    return emitter.computation


def _zeros(p: Scope, view: Instruction, argument: Shape) -> Computation:
    """Builds the branch of the other devices, which returns zeros."""
    emitter, _ = _branch(p, f"{view.name}.elsewhere", argument)

    def zeros(shape: Shape) -> Instruction:
        return emitter.zeros(shape.element, shape.dims)

    leaves = [zeros(s) if s.is_array else emitter.add("after-all", ()) for s in view.shape.leaves()]
    emitter.computation.root = pack(emitter, view.shape, iter(leaves))
    return emitter.computation


def _branch(p: Scope, name: str, argument: Shape) -> tuple[Emitter, Instruction]:
    """Returns the emitter of an empty computation and its parameter."""
    emitter = Emitter(p.module.new_computation(name), None)
    emitter.like = p.emitter.like
    return emitter, emitter.add("parameter", (), ParameterAttributes(0), argument)


def local_shape(shape: Shape, tilings: list[Tiling]) -> Shape:
    """Returns the local shape of a (possibly nested) value whose leaves have these tilings."""
    return _local_shape(shape, tuple(tilings))


@lru_cache(maxsize=4096)
def _local_shape(shape: Shape, tilings: tuple[Tiling, ...]) -> Shape:
    return with_leaves(shape, (t.local_shape(leaf) for leaf, t in zip(shape.leaves(), tilings, strict=True)))


@lru_cache(maxsize=4096)
def _plain_leaves(shape: Shape) -> tuple[Shape, ...]:
    return tuple(leaf.without_layout() for leaf in shape.leaves())


def unpack(p: Scope, value: Instruction, shape: Shape, tilings: list[Tiling]) -> Leaves:
    """Returns the leaves of an emitted value of global shape `shape`."""
    parts = zip(elements(p.emitter, value, shape), _plain_leaves(shape), tilings, strict=True)
    return [LocalValue(part, leaf, tiling) for part, leaf, tiling in parts]


def parameter(p: Scope, instruction: Instruction) -> Leaves:
    """Emits a parameter of local shape; in the entry it keeps its sharding."""
    tilings = p.tilings(instruction)
    shape = local_shape(instruction.shape, tilings)
    value = p.emitter.add("parameter", (), instruction.attributes, shape, name=instruction.name)
    value.sharding = instruction.sharding
    return unpack(p, value, instruction.shape, tilings)


def make_tuple(p: Scope, instruction: Instruction) -> Leaves:
    return p.reshard(p.operands(instruction), p.tilings(instruction), f"tuple {instruction.name}")


def barrier(p: Scope, instruction: Instruction) -> Leaves:
    """Emits the barrier around the local values."""
    leaves = p.reshard(p.operands(instruction), p.tilings(instruction), f"opt-barrier {instruction.name}")
    packed = p.pack(instruction, leaves)
    return unpack(p, p.emitter.add("opt-barrier", (packed,)), instruction.shape, [v.tiling for v in leaves])


def get_tuple_element(p: Scope, instruction: Instruction) -> Leaves:
    operand = instruction.operands[0]
    start, end = operand.shape.leaf_range(instruction.attributes_as(GetTupleElementAttributes).index)
    leaves = p.values[operand][start:end]
    return p.reshard(leaves, p.tilings(instruction), f"result of {operand.opcode} {operand.name}")


def custom_call(p: Scope, instruction: Instruction) -> Leaves:
    """Reshards the operand of an annotation, which is removed; treats other targets as effects, borders or generic ops.
    """
    attributes = instruction.attributes_as(CustomCallAttributes)
    target, known = attributes.custom_call_target, behaviour(attributes)
    if known.only_annotates:
        if not instruction.shape.num_leaves:
            return []
        return p.reshard(p.operands(instruction), p.tilings(instruction), f"sharding annotation {instruction.name}")
    if known.is_manual_boundary:
        return leave(p, instruction) if known.leaves_region else enter(p, instruction)
    if (device := sole_device(instruction)) is not None and p.resharder.channels.devices > 1:
        owners = [on_device(shape, device) for shape in instruction.shape.leaves()]
        return unpack(p, run_on_device(p, instruction, device), instruction.shape, owners)
    tilings = [*p.tilings(instruction), *(v.tiling for v in p.operands(instruction))]
    if not (known.has_rule or instruction.call.rule) and not all(t.is_replicated for t in tilings):
        p.diagnostics.warning(
            f"custom-call {target} has no sharding rule: every device computes all of it "
            f"({instruction.shape.byte_size} bytes)", instruction.location, category="replication",
            help=f'give it one from Python: hloom.custom_call("{target}", rule="([i], ..) -> [i]")')
    return p.generic(instruction)


def loop(p: Scope, instruction: Instruction) -> Leaves:
    """Partitions a loop with one sharding for its state: at its start, in the condition, and around the body."""
    attributes = instruction.attributes_as(WhileAttributes)
    tilings = p.tilings(instruction)
    why = f"state of while {instruction.name}"
    start = p.pack(instruction, p.reshard(p.operands(instruction), tilings, why))
    condition = p.child(attributes.condition)
    condition.finish(condition.run(), [Tiling.replicated(0)], "condition of while")
    body = p.child(attributes.body)
    body.finish(body.run(), tilings, why)
    local = WhileAttributes(condition=condition.target, body=body.target)
    shape = local_shape(instruction.shape, tilings)
    result = p.emitter.add("while", (start,), local, shape, name=instruction.name)
    return unpack(p, result, instruction.shape, tilings)


def conditional(p: Scope, instruction: Instruction) -> Leaves:
    """Partitions a conditional with a replicated predicate.

    Each branch takes its operand with the sharding of its parameter, and returns that of the result.
    """
    attributes = instruction.attributes_as(ConditionalAttributes)
    tilings = p.tilings(instruction)
    why = f"conditional {instruction.name}"
    predicate = p.reshard(p.values[instruction.operands[0]], [Tiling.replicated(0)], f"predicate of {why}")
    operands = [predicate[0].instruction]
    targets: list[Scope] = []
    for operand, branch in zip(instruction.operands[1:], instruction.called(), strict=True):
        child = p.child(branch)
        leaves = p.reshard(p.values[operand], p.tilings(branch.parameters[0]), f"operand of {why}")
        operands.append(p.pack(operand, leaves))
        child.finish(child.run(), tilings, f"branch of {why}")
        targets.append(child)
    made = {child.source: child.target for child in targets}
    shape = local_shape(instruction.shape, tilings)
    local = map_called(attributes, made.__getitem__)
    result = p.emitter.add("conditional", operands, local, shape, name=instruction.name)
    return unpack(p, result, instruction.shape, tilings)


HANDLERS: Mapping[str, Handler] = MappingProxyType({
    "parameter": parameter,
    "tuple": make_tuple,
    "opt-barrier": barrier,
    "get-tuple-element": get_tuple_element,
    "custom-call": custom_call,
    "while": loop,
    "conditional": conditional,
    "concatenate": concatenate,
})
"""The handlers by opcode, of ops that are or may be structure. All other ops are divided."""
