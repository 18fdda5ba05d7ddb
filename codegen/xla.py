"""Converts a LOCAL module to HLO that XLA compiles for N devices, in three forms.

*Manual*: one program over N partitions. Parameters and results are global arrays with shardings. Between
`SPMDFullToShardShape` and `SPMDShardToFullShape` every instruction is `sharding={manual}`: XLA's partitioner then
treats shapes as per device and inserts no collectives. *Replica*: N replicas of one program, each fed its own tiles;
the device number is the replica id and collectives have no channels.

*Body*: the program of one device, to be called where a compiler has devices and tiles already (JAX's `shard_map`).

All are copies; the given module is unchanged. Assumption: one replica and N partitions, which the partitioner
produces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ..ir.diagnostics import fail
from ..ir.graph.attributes import Attributes, attribute_fields
from ..ir.graph.clone import clone_computation, clone_instruction
from ..ir.graph.computation import Computation
from ..ir.graph.instruction import Instruction
from ..ir.graph.interfaces import DeviceNumber
from ..ir.graph.module import Module, Stage, clone_module, shell_of
from ..ir.graph.op import Role, op_named
from ..ir.ops.calls.behaviour import CustomCallAttributes
from ..ir.ops.structure import GetTupleElementAttributes
from ..ir.sharding.sharding import (
    MANUAL,
    REPLICATED,
    AnySharding,
    Sharding,
    ShardingKind,
    TupleSharding,
    leaf_shardings,
)
from ..ir.strings import BracedText
from ..ir.tools.control_flow import computations_run
from ..ir.tools.printer import FLAT_LAYOUT_KEY, flat_layout_text
from ..ir.tools.spmd import is_per_device
from ..ir.tools.unfused import unfused
from ..ir.types.shape import Shape
from .slices_apart import slices_apart


def replica_module(local: Module) -> Module:
    """Returns the program as N replicas: parameters and results are the tiles of each replica. Raises CompileError."""
    new = _plain_copy(local)
    new.num_partitions, new.replica_count = 1, local.num_partitions
    for computation in new:
        for instruction in computation:
            instruction.sharding = None
            instruction.attributes = _without_channel(instruction.attributes)
            if instruction.op.interface(DeviceNumber):
                computation.set_op(instruction, op_named("replica-id"))
    return new


def manual_module(local: Module) -> Module:
    """Returns the program over N partitions in manual mode: parameters and results are global arrays. Raises
    CompileError.
    """
    _require_local(local)
    local = slices_apart(unfused(local))
    new = shell_of(local)
    _plain_header(new)
    new.allow_propagation_to_parameters = new.allow_propagation_to_output = None
    copies: dict[Computation, Computation] = {}
    for computation in local:
        if computation is not local.entry:
            copies[computation] = new.add_computation(clone_computation(computation, copies.__getitem__))
    for computation in computations_run(local)[1:]:  # not reducers, scalar programs without a device
        for instruction in copies[computation]:
            instruction.sharding = _manual(instruction)
    entry = _ManualEntry(local, copies).build()
    new.add_computation(entry, entry=True)
    for computation in (entry, *(copies[c] for c in computations_run(local)[1:])):
        _mark_control(computation)
    return new


def _mark_control(computation: Computation) -> None:
    """Marks values that enter control flow as manual, and those that its computations return, by a custom-call.

    XLA requires that the values of a loop have one sharding, and infers the loop's sharding from them. But its
    conversion from StableHLO merges reshapes with their operands, and drops their shardings; it keeps a custom-call.
    """
    values = [o for i in computation if i.op.is_control for o in i.operands]
    if any(i.sharding is MANUAL for i in computation.parameters):  # not the entry, whose root is global
        values.append(computation.root)
    marked = {o: None for v in values for o in (v.operands if v.op.role is Role.TUPLE else ()) if o.shape.is_array}
    for value in marked:
        mark = _custom_call(computation, "Sharding", value, value.shape, MANUAL)
        for user in [u for u in value.users if u.op.role is Role.TUPLE and u in values]:
            for number in [n for n, operand in enumerate(user.operands) if operand is value]:
                computation.set_operand(user, number, mark)
    computation.sort()


def body_module(local: Module) -> Module:
    """Returns the program of one device without shardings and without a number of devices: the body of a manual region
    of another program, which has parameters and results cut already. Raises CompileError.
    """
    new = _plain_copy(local)
    new.num_partitions, new.input_output_alias, new.buffer_donor = 1, "", ""
    for computation in new:
        for instruction in computation:
            instruction.sharding = instruction.shardy = None
    return new


def _plain_copy(local: Module) -> Module:
    """Returns a copy with a plain header and without fusions: XLA fuses anew, and its CPU compiler takes no others."""
    _require_local(local)
    new = clone_module(slices_apart(unfused(local)))
    _plain_header(new)
    return new


def _require_local(module: Module) -> None:
    if not is_per_device(module):
        fail(f"code is made for partitioned programs, this one is {module.stage.value}", help="partition it first")
    if module.replica_count != 1:
        fail(f"code is made for one replica, this program has {module.replica_count}")


def _plain_header(module: Module) -> None:
    """Removes Hloom's stage, and the layouts and the schedule, which XLA chooses itself. The layout of arrays that are
    kept inside of others stays as text, for those who prepare inputs.
    """
    if module.flat_layout is not None:
        text = BracedText(flat_layout_text(module.flat_layout))
        module.frontend_attributes = {**module.frontend_attributes, FLAT_LAYOUT_KEY: text}
        module.flat_layout = None
    module.is_scheduled = False
    module.stage, module.global_layout, module.entry_layout = Stage.GLOBAL, None, None
    module.meshes = {}


def _without_channel(attributes: Attributes) -> Attributes:
    """Returns the attributes of a collective without its channel, among replicas; those of any other op unchanged."""
    fields: dict[str, Any] = attribute_fields(type(attributes))
    changes = {
        name: fields[name].default
        for name in ("channel_id", "use_global_device_ids")
        if name in fields and getattr(attributes, name) != fields[name].default
    }
    return dataclasses.replace(attributes, **changes) if changes else attributes


def _manual(instruction: Instruction) -> Sharding | None:
    """Marks an instruction as manual, except control flow, for which XLA infers it: on the way to XLA's compiler loops
    may get more state (hoisted constants) than a sharding given here has entries. An empty tuple has no sharding, and
    XLA's converter takes none on a collective of several arrays.
    """
    op, shape = instruction.op, instruction.shape
    nothing = shape.is_tuple and (op.is_collective or not shape.num_leaves)
    return None if op.is_control or nothing else MANUAL


def _device_list(sharding: Sharding | None, shape: Shape, devices: int) -> Sharding:
    """Returns the sharding in the spelling that every version of XLA reads."""
    if sharding is None or not shape.is_array or sharding.is_replicated:
        return REPLICATED
    if sharding.kind is ShardingKind.MAXIMAL:
        return Sharding(ShardingKind.MAXIMAL, device=sharding.device)
    tiling = sharding.tiling(shape.rank)
    return REPLICATED if tiling.is_replicated else Sharding.on_own_mesh(tiling, devices)


class _ManualEntry:
    """Builds the entry computation of the manual form."""

    def __init__(self, local: Module, copies: dict[Computation, Computation]) -> None:
        layout = local.global_layout
        if layout is None:
            fail("the global shapes of the program are not known", help="it must come from hloom partition")
        self.layout = layout
        self.local = local
        self.copies = copies
        self.target = Computation(local.entry.name, local.entry.location)

    def build(self) -> Computation:
        source = self.local.entry
        made: dict[Instruction, Instruction] = {}
        for parameter, shape in zip(source.parameters, self.layout.parameters, strict=True):
            made[parameter] = self._enter(parameter, shape)
        for instruction in source:
            if instruction in made:
                continue
            operands = [made[o] for o in instruction.operands]
            made[instruction] = clone_instruction(self.target, instruction, operands, self.copies.__getitem__)
            made[instruction].sharding = _manual(instruction)
        for instruction in source:
            made[instruction].control_predecessors = tuple(made[p] for p in instruction.control_predecessors)
        self.target.root = self._leave(made[source.root], self.layout.result, source.root)
        return self.target

    def _shardings(self, instruction: Instruction, whole: Shape) -> list[Sharding]:
        leaves = list(whole.leaves())
        found = leaf_shardings(instruction.sharding, len(leaves))
        return [_device_list(s, x, self.local.num_partitions) for s, x in zip(found, leaves, strict=True)]

    def _enter(self, parameter: Instruction, whole: Shape) -> Instruction:
        """Returns a global parameter and its tile. A parameter on a single device is given to all, since XLA cannot
        convert it to manual mode; the other devices ignore it.
        """
        found = self._shardings(parameter, whole)
        shardings = [REPLICATED if s.kind is ShardingKind.MAXIMAL else s for s in found]
        value = self.target.add("parameter", (), parameter.attributes, whole, parameter.name, like=parameter)
        value.sharding = _joined(shardings, whole)
        return self._convert(value, whole, parameter.shape, iter(shardings), entering=True)

    def _leave(self, value: Instruction, whole: Shape, root: Instruction) -> Instruction:
        """Returns the global result."""
        shardings = self._shardings(root, whole)
        result = self._convert(value, root.shape, whole, iter(shardings), entering=False)
        result.sharding = _joined(shardings, whole)
        return result

    def _convert(
        self, value: Instruction, shape: Shape, wanted: Shape, shardings: Iterator[Sharding], entering: bool
    ) -> Instruction:
        """Converts a value of global (local) shape to local (global) shape, leaf by leaf."""
        if shape.is_tuple:
            parts: list[Instruction] = []
            for index, (part, want) in enumerate(zip(shape.elements, wanted.elements, strict=True)):
                item = self.target.add("get-tuple-element", (value,), GetTupleElementAttributes(index))
                item.sharding = MANUAL if not entering else None
                parts.append(self._convert(item, part, want, shardings, entering))
            joined = self.target.add("tuple", parts)
            joined.sharding = MANUAL if entering else None
            return joined
        sharding = next(shardings)
        target = "SPMDFullToShardShape" if entering else "SPMDShardToFullShape"
        placed = self._custom_call("Sharding", value, shape, sharding if entering else MANUAL)
        return self._custom_call(target, placed, wanted, MANUAL if entering else sharding)

    def _custom_call(self, target: str, value: Instruction, shape: Shape, sharding: Sharding) -> Instruction:
        return _custom_call(self.target, target, value, shape, sharding)


def _custom_call(
    computation: Computation, target: str, value: Instruction, shape: Shape, sharding: Sharding
) -> Instruction:
    attributes = CustomCallAttributes(custom_call_target=target)
    made = computation.add("custom-call", (value,), attributes, shape.without_layout(), target)
    made.sharding = sharding
    return made


def _joined(shardings: list[Sharding], shape: Shape) -> AnySharding:
    return TupleSharding(tuple(shardings)) if shape.is_tuple else shardings[0]
