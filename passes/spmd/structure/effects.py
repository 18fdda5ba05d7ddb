"""Effects on one device: a custom-call that the program places on one device happens there, and nowhere else.

JAX places its callbacks this way (`jax.debug.print`). All devices run one program: the call is in a branch that only
its device takes, with operands brought to that device. The other devices take a branch that returns zeros.
"""

from __future__ import annotations

from ....ir.graph.computation import Computation
from ....ir.graph.instruction import Instruction
from ....ir.ops.comparison import CompareAttributes, ComparisonDirection
from ....ir.ops.control import ConditionalAttributes
from ....ir.ops.structure import GetTupleElementAttributes, ParameterAttributes
from ....ir.sharding.tiling import Tiling
from ....ir.types.element_type import S32
from ....ir.types.shape import Shape
from ..emit.emitter import Emitter
from ..emit.local_op import pack
from .scope import Scope


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
