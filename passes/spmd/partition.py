"""SPMD partitioning: turns a SHARDED module into a LOCAL one, one program for all devices (the GShard paper, section
3).

Computations are rebuilt instruction by instruction. Each value is a list of `LocalValue`, one per leaf, so that tuples
exist only where control flow or the root needs them. For each op, `op_sharding` chooses an assignment of digits to
factors, `emit.resharder` reshards the operands to it, `emit.local_op` emits the op on tiles, and the results are
resharded to their propagated shardings. Handlers in `structure` cover parameters, tuples and control flow. The size of
the result does not depend on the number of devices, except for irregular device orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any, ClassVar

from ...ir.brief import brief
from ...ir.diagnostics import Diagnostics, InternalError, fail
from ...ir.factors.sharding_rule import Monoid, ShardingRule
from ...ir.graph.clone import MapComputation, clone_computation, map_called
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber, additive
from ...ir.graph.module import EntryLayout, Module, Stage, shell_of
from ...ir.graph.op import AnyOp, OpCall, Role
from ...ir.ops.calls.custom_call import is_annotation
from ...ir.ops.collective_groups import groups_of
from ...ir.ops.collectives import pairs_of
from ...ir.sharding.replica_groups import enumerate_groups
from ...ir.sharding.sharding import leaf_shardings
from ...ir.sharding.tiling import Tiling
from ...ir.time_limit import check_time
from ...ir.tools.sharding_checks import collective_problem
from ...ir.tools.spmd import main_order
from ...ir.types.shape import Shape
from ..base import Pass, PassContext, refuse_starts
from ..op_sharding.assignment import Choice
from ..op_sharding.partial import PartialResults
from .checks.fallbacks import Fallbacks, report_padding
from .checks.repeated_work import RepeatedWork
from .checks.unsupported import refuse_uncountable, refuse_unsupported, settle_shardings, unsettled
from .emit.channels import Channels, stay_apart
from .emit.emitter import Emitter, LocalValue, is_made_anywhere
from .emit.local_op import LocalOp, emit_local, pack
from .emit.rematerialize import is_rematerializable, rematerializable, rematerialize
from .emit.resharder import Resharder
from .emit.stamps import Stamp, Stamps, Values
from .emit.windowed import emit_windowed, find_ring
from .structure.aliases import keep_fitting_aliases
from .structure.handlers import HANDLERS
from .structure.scope import Leaves


@dataclass(frozen=True)
class SpmdPartition(Pass):
    """Divides the program among `module.num_partitions` devices.

    Reports padding that exceeds both `padding_fraction` of a tile and `padding_bytes`. `windowed` is the least size in
    bytes of an operand that would be gathered, or a result that would be reduced and scattered, to travel from device
    to device instead (see `emit.windowed`); 0 disables this.
    """

    name: ClassVar[str] = "spmd-partition"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.SHARDED})
    produces: ClassVar[Stage | None] = Stage.LOCAL
    padding_fraction: float = 0.25
    padding_bytes: int = 1 << 20
    windowed: int = 0

    def renews(self, module: Module) -> bool:
        return not unsettled(module)

    def run(self, module: Module, context: PassContext) -> bool:
        if context.num_devices not in (None, module.num_partitions):
            fail(f"the program is sharded for {module.num_partitions} devices, {context.num_devices} are asked for")
        refuse_starts(module, self.name)
        refuse_unsupported(module, context.diagnostics)
        settle_shardings(module, context.diagnostics)
        report_padding(module, self.padding_fraction, self.padding_bytes, context.diagnostics)
        new = shell_of(module)
        new.global_layout = EntryLayout(
            tuple(p.shape.without_layout() for p in module.entry.parameters), module.entry.root.shape.without_layout()
        )
        state = _ModuleState(new, context, Channels(module.num_partitions), self.windowed)
        entry = Partitioner(state, module.entry).entry()
        for reducer in state.channels.reducers.values():
            new.computations.insert(0, reducer)
            reducer.parent = new
            reducer.name = new.unique_computation_name(reducer.name + ".reducer")
        new.add_computation(entry, entry=True)
        new.entry_layout = None
        refuse_uncountable(new)
        state.work.report(module, context.diagnostics)
        keep_fitting_aliases(new, context.diagnostics)
        module.take(new)
        return True


@brief
@dataclass
class _ModuleState:
    """The state that the computations of one module share during partitioning."""

    module: Module
    context: PassContext
    channels: Channels
    windowed: int

    def __post_init__(self) -> None:
        self.copies: dict[Computation, Computation] = {}
        self.work = RepeatedWork()
        self.fallbacks = Fallbacks(self.context.diagnostics)
        self.decider = self.context.decider(self.channels.devices)
        self.rule_of = cache(_own_rule)

    def copy(self, computation: Computation) -> Computation:
        """Copies a computation that is not partitioned (a reducer, a comparator) into the new module, once."""
        if computation not in self.copies:
            map_computation: MapComputation = self.copy
            copy = clone_computation(computation, map_computation)
            for instruction in list(copy):
                instruction.sharding = instruction.shardy = None
                if is_annotation(instruction):
                    copy.replace_all_uses(instruction, instruction.operands[0])
                    copy.remove(instruction)
            self.copies[computation] = self.module.add_computation(copy)
        return self.copies[computation]


def _own_rule(op: AnyOp, call: OpCall[Any]) -> ShardingRule:
    return op.sharding_rule(call)


class Partitioner:
    """Partitions one computation."""

    def __init__(self, state: _ModuleState, source: Computation) -> None:
        self.state = state
        self.source = source
        self.target = Computation(source.name, source.location)
        self.order = main_order(source)
        self.emitter = Emitter(self.target, self.order)
        self.resharder = Resharder(
            self.emitter, state.channels, state.context.machine, state.context.reshardings
        )
        self.values = Values(self._like)
        self.stamps = Stamps(self.values)
        self.partial = PartialResults(self.tilings, self.values.tilings, state.rule_of)
        self._tilings: dict[tuple[int, int], list[Tiling]] = {}  # by identities, which the source keeps

    @property
    def module(self) -> Module:
        """The new module."""
        return self.state.module

    @property
    def diagnostics(self) -> Diagnostics:
        return self.state.context.diagnostics

    def child(self, source: Computation) -> Partitioner:
        """Returns a partitioner for a computation that control flow calls."""
        return Partitioner(self.state, source)

    def entry(self) -> Computation:
        """Returns the partitioned entry computation; its parameters and its root have their shardings."""
        leaves = self.run()
        root = self.source.root
        self.emitter.like = root
        packed = self.pack(root, leaves)
        if packed.op.role is Role.PARAMETER:
            # A root that is a parameter would need two shardings.
            packed = self.emitter.add("copy", (packed,))
        packed.sharding = root.sharding
        self.target.root = packed
        return self.target

    def finish(self, leaves: Leaves, tilings: list[Tiling], why: str) -> None:
        """Completes a computation that control flow calls: reshards and packs the root, and adds it to the module."""
        root = self.source.root
        self.emitter.like = root
        self.target.root = self.pack(root, self.reshard(leaves, tilings, why))
        for parameter in self.target.parameters:
            parameter.sharding = None
        self.target.name = self.state.module.unique_computation_name(self.target.name)
        self.state.module.add_computation(self.target)

    def run(self) -> Leaves:
        """Partitions all instructions; returns the leaves of the root."""
        check_time()
        repeats: list[Instruction] = []  # emitted one after the other, to be appended together
        find_stamp, repeated = self._stamp, self.values.repeated
        for instruction in self.source:
            visit = HANDLERS.get(instruction.op.opcode)
            try:
                stamp = find_stamp(instruction) if visit is None else None
                if stamp is not None and stamp.repeats:
                    repeats.append(repeated(instruction, stamp))
                    self.stamps.repeated(instruction, stamp)
                    continue
                if repeats:
                    self.target.extend(repeats)
                    repeats = []
                self.emitter.like = instruction
                found = visit(self, instruction) if visit is not None else self._divided(instruction, stamp)
                self.values[instruction] = found
            except (AssertionError, KeyError, IndexError) as error:
                raise InternalError(f"{instruction!r}: {error!r}", SpmdPartition.name) from error
        self.target.extend(repeats)
        return self.values[self.source.root]

    # -- helpers for handlers

    def tilings(self, instruction: Instruction) -> list[Tiling]:
        """Returns the propagated tilings of the leaves of a value."""
        key = id(instruction.shape), id(instruction.sharding)
        found = self._tilings.get(key)
        if found is None:
            shapes = list(instruction.shape.leaves())
            said = zip(leaf_shardings(instruction.sharding, len(shapes)), shapes, strict=True)
            found = self._tilings[key] = [
                sharding.tiling(shape.rank) if sharding and shape.is_array else Tiling.replicated(shape.rank)
                for sharding, shape in said
            ]
        return list(found)

    def operands(self, instruction: Instruction) -> Leaves:
        """Returns the leaves of all operands, in order."""
        return [leaf for operand in instruction.operands for leaf in self.values[operand]]

    def reshard(self, leaves: Leaves, tilings: Sequence[Tiling], why: str) -> Leaves:
        # Most values lie as they should.
        return [
            v if v.tiling is t and not t.unreduced else self.resharder.reshard(v, t, why)
            for v, t in zip(leaves, tilings, strict=True)
        ]

    def empty_arrays(self, shapes: Sequence[Shape], tilings: list[Tiling], why: str) -> Leaves:
        """Returns arrays without elements. They need no operands, so nothing is resharded for them."""
        zeros = [self.emitter.zeros(s.element, s.dims) for s in shapes]
        leaves = [LocalValue(zero, s, Tiling.replicated(s.rank)) for zero, s in zip(zeros, shapes, strict=True)]
        return self.reshard(leaves, tilings, why)

    def pack(self, like: Instruction, leaves: Leaves) -> Instruction:
        """Packs the leaves into one instruction of the global value's structure: an array, or (nested) tuples."""
        return pack(self.emitter, like.shape, iter([v.instruction for v in leaves]))

    # -- the generic way

    def generic(self, instruction: Instruction) -> Leaves:
        """Partitions any op: chooses an assignment, reshards operands, emits the op on tiles, reshards results."""
        return self._divided(instruction, self._stamp(instruction))

    def _stamp(self, instruction: Instruction) -> Stamp | None:
        return None if self.state.windowed else self.stamps.find(instruction, self.partial.may_stay)

    def _divided(self, instruction: Instruction, stamp: Stamp | None) -> Leaves:
        """Partitions an op, as an equal use before if it has its stamp."""
        operands = self.operands(instruction)
        if stamp is not None:
            return self._stamped(instruction, operands, stamp)
        check_time()
        shapes = tuple(instruction.shape.leaves())
        wanted = self.tilings(instruction)
        _refuse(instruction, self.state.module, wanted)
        if shapes and all(0 in s.dims for s in shapes):
            return self.empty_arrays(shapes, wanted, _cause_name(instruction))
        tilings = tuple(v.tiling for v in operands) + tuple(wanted)
        free = frozenset(n for n, v in enumerate(operands) if is_made_anywhere(v))
        call, parts = instruction.call, _parts(instruction, operands)
        use = self.state.decider.uses.of(instruction.op, call, tilings, self.order, parts, free)
        if use.may_stay_partial and self.partial.may_stay(instruction):
            use = replace(use, stays_partial=True)
        choice = self.state.decider.decide(use)
        op, assignment = choice.op, choice.assignment
        why = _cause_name(instruction)
        count = len(operands)
        self.state.fallbacks.report(instruction, choice)
        least = self.state.windowed
        ring = find_ring(op, assignment, wanted, least) if least else None
        targets = list(choice.operands)
        if ring is not None and ring.value < count:
            targets[ring.value] = operands[ring.value].tiling
        placed = self.reshard(operands, targets, f"operand of {why}")
        local = self._local(instruction, choice, placed)
        before = len(self.target)
        with self.emitter.with_order(op.order):
            values = emit_windowed(op, local, ring, wanted) if ring is not None else emit_local(op, local)
        emitted = list(islice(reversed(self.target), len(self.target) - before))
        self.state.work.note(instruction, choice, emitted)
        if len(values) == 1 and is_rematerializable(instruction, op, operands):
            values = [rematerializable(values[0], instruction, op, lambda: local, operands)]
        is_done = use.stays_partial and values[0].tiling.unreduced
        results = values if is_done else self.reshard(values, wanted, f"result of {why}")
        if not least:
            reported = bool(self.state.fallbacks.findings(choice)) or op.is_contraction
            self.stamps.note(instruction, choice, wanted, operands, placed, emitted, values, results, reported)
        return results

    def _like(
        self, stamp: Stamp, made: Instruction, instruction: Instruction, placed: Leaves | None = None
    ) -> LocalValue:
        """Returns the value that `made` computes, with the properties of that of its stamp."""
        first = stamp.value
        again = None if first.rematerialize is None else partial(self._again, instruction, stamp, placed)
        return LocalValue(
            made, instruction.shape, first.tiling, first.monoid, again, first.depth, first.from_replicated)

    def _stamped(self, instruction: Instruction, operands: Leaves, stamp: Stamp) -> Leaves:
        """Partitions an op as an equal use before."""
        choice, first, placed = stamp.choice, stamp.value, operands
        if stamp.is_reported:
            self.state.fallbacks.report(instruction, choice)
        if not stamp.stays:
            placed = self.reshard(operands, choice.operands, f"operand of {_cause_name(instruction)}")
        made = self.emitter.repeat(first.instruction, [v.instruction for v in placed], instruction.name)
        if stamp.is_reported:
            self.state.work.note(instruction, choice, (made,))
        value = self._like(stamp, made, instruction, placed)
        if stamp.stays:
            self.stamps.repeated(instruction, stamp)
            return [value]
        if stamp.stays_partial and value.tiling.unreduced:
            return [value]
        return self.reshard([value], stamp.wanted, f"result of {_cause_name(instruction)}")

    def _again(
        self, instruction: Instruction, stamp: Stamp, placed: Leaves | None, target: Tiling
    ) -> LocalValue | None:
        """Computes the value of an op with a stamp in another tiling. `placed` are its operands, if not as they are."""
        operands = self.operands(instruction)
        local = partial(self._local, instruction, stamp.choice, operands if placed is None else placed)
        return rematerialize(instruction, stamp.choice.op, local, operands, stamp.value.from_replicated, target)

    def _local(self, instruction: Instruction, choice: Choice, placed: Leaves) -> LocalOp:
        view, why = self.calling(instruction), _cause_name(instruction)
        return LocalOp(
            view, choice.op.rule, choice.assignment, placed, choice.results, self.emitter, self.resharder, why
        )

    def calling(self, instruction: Instruction) -> Instruction:
        """Returns the instruction as it is in the new module: with its computations and channel ids."""
        if not instruction.called() and not instruction.op.is_collective:
            return instruction
        attributes = map_called(instruction.attributes, self.state.copy)
        if instruction.op.is_collective:
            attributes = self.state.channels.renumbered(attributes)
        view = Instruction(instruction.name, instruction.op, instruction.operands, attributes, instruction.shape,
                           instruction.location)
        view.metadata, view.backend_config = instruction.metadata, instruction.backend_config
        return view


def _cause_name(instruction: Instruction) -> str:
    """Names an instruction in the causes of collectives."""
    return f"{instruction.opcode} {instruction.name}"


def _parts(instruction: Instruction, operands: Leaves) -> tuple[frozenset[int], ...]:
    """Returns the groups of operands that the op may take in parts, if one of them is partial."""
    if not any(v.tiling.unreduced and v.monoid in (Monoid.ADD, None) for v in operands):
        return ()
    if any(not v.shape.element.is_number for v in operands if v.tiling.unreduced):
        return ()
    return additive(instruction)


def _refuse(instruction: Instruction, module: Module, tilings: list[Tiling]) -> None:
    op = instruction.op
    if op.is_collective or op.interface(DeviceNumber):
        if not any(t.manual for t in tilings):
            fail(f"{op.opcode} in a program that is not partitioned yet", instruction.location,
                 help="collectives and device numbers belong in manual regions, or in programs per device, which "
                      "`hloom run` runs as they are")
        _check_groups(instruction, module, tilings)


def _check_groups(instruction: Instruction, module: Module, tilings: list[Tiling]) -> None:
    """Checks that the program's own collectives name existing devices and do not join tiles that the partitioner made.
    """
    pairs, groups = pairs_of(instruction) or (), groups_of(instruction)
    if problem := collective_problem(instruction, module.devices):
        fail(f"{instruction.opcode} {instruction.name}: {problem}", instruction.location)
    free = tuple(d for t in tilings for dim in t.dims for d in dim)
    if not free:
        return
    found = pairs or (enumerate_groups(groups, module.num_partitions) if groups is not None else ())
    if not stay_apart(found, free, tilings[0].order):
        fail(f"{instruction.opcode} joins devices along axes that the manual region leaves to the partitioner",
             instruction.location)
