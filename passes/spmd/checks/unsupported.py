"""Rejects unsupported programs, reporting all errors at once, before anything is divided; sizes are known after it.

A side effect outside the program must happen as often as in the program, but partitioned ops run on every device; only
custom-calls that the program places on one device can stay there (`structure.handlers`). A device knows the size of a
dynamic dimension only for its own part. Control flow never has state on a single device, because its results are right
only if every device has the state: such state is replicated, with a remark.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from ....ir.diagnostics import Diagnostics, fail
from ....ir.graph.instruction import Instruction
from ....ir.graph.interfaces import Draws
from ....ir.graph.module import Module
from ....ir.graph.op import AnyOp, Op, Role
from ....ir.ops.calls.custom_call import behaviour_of, target_of
from ....ir.sharding.sharding import REPLICATED, AnySharding, ShardingKind, TupleSharding, leaf_shardings
from ....ir.tools.control_flow import is_control
from ....ir.tools.spmd import parts, sole_device
from ....ir.tools.verifier import countable


def refuse_unsupported(module: Module, diagnostics: Diagnostics) -> None:
    """Raises CompileError with all instructions that several devices cannot run together."""
    if module.num_partitions == 1:
        return
    for computation in module:
        is_dynamic = any(shape.is_dynamic for shape in computation.shapes())
        for instruction in computation if is_dynamic else computation.having(_may_act):
            if not (instruction.shape.is_dynamic or _may_act(instruction.op)):
                continue
            # Report origins only: users of dynamic values, dones and parameters of callees follow from them.
            inner = instruction.op.role is Role.PARAMETER and computation is not module.entry
            if instruction.shape.is_dynamic:
                if not inner and not any(o.shape.is_dynamic for o in instruction.operands):
                    diagnostics.error(
                        f"{instruction.opcode} {instruction.name} has a dynamic dimension, which cannot be partitioned",
                        instruction.location,
                        help="use the greatest size, and mask the elements beyond the actual one")
            elif _acts_outside(instruction) and not _is_manual(instruction) and sole_device(instruction) is None:
                if any(map(_acts_outside, instruction.operands)):
                    continue
                diagnostics.error(
                    f"{_described(instruction)} has an effect outside the program, and cannot be partitioned",
                    instruction.location,
                    help="every device would perform it: move it out of the program or into a manual region, or put a "
                         "custom-call on one device (sharding={maximal device=N})")
    diagnostics.raise_errors()


def refuse_uncountable(local: Module) -> None:
    """Raises CompileError if padding made a value of a divided program larger than 64 bits count."""
    if not all(countable(shape) for computation in local for shape in computation.shapes()):
        found = [i for computation in local for i in computation if not countable(i.shape)]
        first = next((i for i in found if i.location is not None), found[0])
        fail(f"{first.shape.without_layout()}, padded for {local.num_partitions} devices, has too many elements for 64 "
             "bits", first.location)  # fmt: skip


@cache
def _may_act(op: AnyOp) -> bool:
    """Whether some use of an op may have a side effect."""
    own, base = cast(Any, type(op)), cast(Any, Op)
    return op.side_effect or own.has_side_effect is not base.has_side_effect


def _acts_outside(instruction: Instruction) -> bool:
    """Whether the number of runs of an instruction matters. Excludes hidden random states, which are alike on all
    devices.
    """
    op = instruction.op
    if not op.has_side_effect(instruction.attributes) or op.is_collective or op.interface(Draws):
        return False
    known = behaviour_of(instruction)
    return known is None or not (known.has_rule or known.only_annotates or known.is_manual_boundary)


def _is_manual(instruction: Instruction) -> bool:
    """Whether an instruction is in a manual region, where the program itself determines each device's work."""
    values = (instruction, *instruction.operands)
    found = (s for v in values for s in leaf_shardings(v.sharding, v.shape.num_leaves))
    return any(s is not None and s.has_manual for s in found)


def _described(instruction: Instruction) -> str:
    target = target_of(instruction)
    return f"{instruction.opcode} {instruction.name}" + (f' ("{target}")' if target else "")


def settle_shardings(module: Module, diagnostics: Diagnostics) -> None:
    """Replaces shardings on single devices, in place, where values cannot be on one: in control flow.

    All devices must take the same path through it, and the values that meet there may come from any device.
    """
    for instruction in unsettled(module):
        instruction.sharding = _on_all_devices(instruction, diagnostics)


def unsettled(module: Module) -> list[Instruction]:
    """Returns the instructions whose shardings `settle_shardings` replaces."""
    found: list[Instruction] = []
    for computation in module:
        if module.num_partitions == 1:
            found += computation
        else:
            found += computation.having(is_control)
            found += computation.parameters if computation is not module.entry else ()
    return [i for i in found if any(s.kind is ShardingKind.MAXIMAL for s in parts(i.sharding))]


def _on_all_devices(instruction: Instruction, diagnostics: Diagnostics) -> AnySharding | None:
    """Returns the sharding of a value, replicated if it was on one device. Reports each array of control flow."""
    shapes = list(instruction.shape.leaves())
    found = list(leaf_shardings(instruction.sharding, len(shapes)))
    single = [n for n, s in enumerate(found) if s is not None and s.kind is ShardingKind.MAXIMAL]
    for n in single:
        if instruction.op.is_control and shapes[n].is_array:
            diagnostics.remark(
                f"{_described(instruction)} has {shapes[n].without_layout()} on one device alone; every device gets it "
                f"instead ({shapes[n].byte_size} bytes)", instruction.location, category="replication")
        found[n] = REPLICATED
    if not single:
        return instruction.sharding
    return TupleSharding(tuple(s or REPLICATED for s in found)) if instruction.shape.is_tuple else REPLICATED
