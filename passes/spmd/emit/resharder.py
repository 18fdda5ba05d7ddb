"""Reshards values under construction: plans, and emits the plans.

`Resharder.reshard` brings a value into a tiling, and caches the result per instruction and tiling. Data cannot move
along the digits of a manual region; a program that needs this is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial

from ....cost.machine import DEFAULT, Machine
from ....ir.diagnostics import fail
from ....ir.factors.sharding_rule import Monoid
from ....ir.graph.host_memory import moved
from ....ir.graph.instruction import Instruction
from ....ir.graph.monoid import choice_monoid
from ....ir.sharding.digit import product
from ....ir.sharding.tiling import Tiling
from ...resharding.base.moves import Resharding, ReshardPlan
from ...resharding.plan import plan_reshard, with_manual
from .channels import Channels
from .emitter import Emitter, LocalValue, splat_scalar
from .moves import MoveEmitter


@dataclass(frozen=True, slots=True)
class _Alone:
    """A plan that was emitted as one collective, and that."""

    plan: ReshardPlan
    collective: Instruction


class Resharder:
    """Emits resharding plans into one computation."""

    def __init__(
        self, emitter: Emitter, channels: Channels, machine: Machine = DEFAULT, record: list[Resharding] | None = None
    ) -> None:
        self.emitter = emitter
        self.channels = channels
        self.machine = machine
        self.record = [] if record is None else record
        self._done: dict[Hashable, LocalValue] = {}
        self._alone: dict[Hashable, _Alone] = {}

    def reshard(self, value: LocalValue, target: Tiling, why: str) -> LocalValue:
        """Returns the value under another tiling; `why` is part of the cause of each collective."""
        if target.unreduced and value.monoid not in (None, Monoid.ADD):
            # Unreduced shardings of a program denote sums.
            whole = self.reshard(value, replace(value.tiling, unreduced=()).canonical(), why)
            value = replace(whole, monoid=None)
        if target.device is not None and value.tiling.device is None:
            # A replicated value is also on that device; resharding to one device is never cheaper than to all.
            target = Tiling.replicated(value.shape.rank)
        if value.tiling == target:
            return value
        if not value.shape.is_array:
            return replace(value, tiling=target)  # a token has no elements that could move
        # One instruction may be the tile of several values: slicing a whole tile emits no instruction.
        key = (value.instruction, value.shape, value.tiling, value.monoid, target)
        if key not in self._done:
            self._done[key] = self._emit(value, target, why)
        return self._done[key]

    def _emit(self, value: LocalValue, target: Tiling, why: str) -> LocalValue:
        # Empty arrays need no communication, and StableHLO has no collectives of them.
        empty = 0 in value.shape.dims
        scalar = self.emitter.constant(0, value.shape.element) if empty else splat_scalar(value)
        if scalar is not None and (empty or not target.unreduced):
            return LocalValue(self.emitter.splat(scalar, target.local_dims(value.shape.dims)), value.shape, target)
        made = value.rematerialize(target) if value.rematerialize is not None else None
        if made is not None:
            return made
        source, shape, array = value.tiling, value.shape, value.instruction
        key = source, target, shape, array.shape, value.monoid
        if (known := self._alone.get(key)) is not None:
            self.record.append(Resharding(why, shape, source, target, known.plan))
            return LocalValue(self._repeat(known.collective, array, why), shape, target, value.monoid)
        plan = plan_reshard(
            source, target, shape.dims, self.channels.devices, size=shape.element.byte_size, machine=self.machine
        )
        manual = source.manual or target.manual
        if math.isinf(plan.cost):
            fail(f"{why}: data would have to move between devices along manual axes",
                 self.emitter.like.location if self.emitter.like else None,
                 help="values enter and leave a manual region by SPMDFullToShardShape and SPMDShardToFullShape")
        ends = source, target
        if manual and plan.moves:
            ends = with_manual(source, manual), with_manual(target, manual)
            shape = shape.with_dims((product(manual), *shape.dims))
            array = self.emitter.reshape(array, (1, *array.shape.dims))
        if plan.moves and array.shape.is_on_host:
            array = moved(self.emitter.computation, array)  # devices send what lies in their own memory
        if plan.moves:
            self.record.append(Resharding(why, shape, *ends, plan))
        order = source.order if source.used() else target.order
        complete = not source.unreduced and not target.unreduced
        monoid = choice_monoid(shape.element) if complete else value.monoid or Monoid.ADD
        unreduced = bool(target.unreduced)
        moves = MoveEmitter(self.emitter, self.channels, shape, monoid, order, {"hloom.cause": why}, unreduced)
        before = len(self.emitter.computation)
        array = moves.emit(array, plan)
        is_alone = array.op.is_collective and array.operands == [value.instruction]
        if is_alone and len(self.emitter.computation) == before + 1 and not (manual or source.is_replicated):
            self._alone[key] = _Alone(plan, array)
        if manual and plan.moves:
            array = self.emitter.reshape(array, array.shape.dims[1:])
        result = LocalValue(array, value.shape, target, value.monoid)
        if not source.is_replicated:
            return result
        # A tile of a replicated value can be sliced again from it, so it is never communicated.
        return replace(result, rematerialize=partial(self.reshard, value, why=why), from_replicated=True)

    def _repeat(self, collective: Instruction, array: Instruction, why: str) -> Instruction:
        """Emits a collective like an earlier one, on another array of the same shape."""
        attributes = self.channels.renumbered(collective.attributes)
        made = self.emitter.repeat(collective, [array], collective.opcode, attributes)
        made.frontend_attributes = {"hloom.cause": why}
        return made
