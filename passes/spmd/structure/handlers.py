"""Handlers of structure: parameters, tuples, control flow, annotations. These ops move values and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ....ir.graph.clone import map_called
from ....ir.graph.instruction import Instruction
from ....ir.ops.calls.behaviour import CustomCallAttributes
from ....ir.ops.calls.custom_call import behaviour
from ....ir.ops.control import ConditionalAttributes, WhileAttributes
from ....ir.ops.structure import GetTupleElementAttributes, ParameterAttributes
from ....ir.sharding.tiling import Tiling
from ....ir.types.shape import Shape
from ..checks.unsupported import sole_device
from ..emit.emitter import LocalValue
from ..emit.local_op import elements, with_leaves
from .effects import on_device, run_on_device
from .manual import enter, leave
from .roll import concatenate
from .scope import Handler, Leaves, Scope


def local_shape(shape: Shape, tilings: list[Tiling]) -> Shape:
    """Returns the local shape of a (possibly nested) value whose leaves have these tilings."""
    return with_leaves(shape, (t.local_shape(leaf) for leaf, t in zip(shape.leaves(), tilings, strict=True)))


def unpack(p: Scope, value: Instruction, shape: Shape, tilings: list[Tiling]) -> Leaves:
    """Returns the leaves of an emitted value of global shape `shape`."""
    parts = zip(elements(p.emitter, value, shape), shape.leaves(), tilings, strict=True)
    return [LocalValue(part, leaf.without_layout(), tiling) for part, leaf, tiling in parts]


def parameter(p: Scope, instruction: Instruction) -> Leaves:
    """Emits a parameter of local shape; in the entry it keeps its sharding."""
    tilings = p.tilings(instruction)
    shape = local_shape(instruction.shape, tilings)
    number = instruction.attributes_as(ParameterAttributes).number
    value = p.emitter.add("parameter", (), ParameterAttributes(number), shape, name=instruction.name)
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
    if not operand.op.is_control:
        return leaves
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
