"""Call inlining: replaces every `call` by the body that it calls, and every `fusion`, which only matters to back ends.

Partitioning then sees one computation per level of control flow. Computations of `while` and `conditional` are copied
so that each has one caller: shardings of a loop body belong to one loop. Composite and other calls are all inlined.

    before:  y = f32[4] call(x), to_apply=f          after:  y = f32[4] negate(x)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...ir.diagnostics import fail
from ...ir.graph.attributes import Attributes, ParameterAttributes, called_fields
from ...ir.graph.clone import map_called
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module, shell_of
from ...ir.graph.op import Role
from ...ir.ops.async_ops import starts_computation
from ..base import Pass, PassContext

MOST_INSTRUCTIONS = 5_000_000
MOST_LEVELS = 100
MOST_GROWTH = 4
_INLINED = (Role.CALL, Role.FUSION)


@dataclass(frozen=True)
class CallInliner(Pass):
    """Inlines calls and fusions; drops computations that nothing calls any more."""

    name: ClassVar[str] = "call-inliner"

    def run(self, module: Module, context: PassContext) -> bool:
        size, levels = _expanded(module)
        if levels > MOST_LEVELS:
            fail(f"calls nest {levels} levels deep, at most {MOST_LEVELS} are possible", module.entry.location)
        if size > MOST_INSTRUCTIONS:
            fail(f"after inlining the program has {size:,} instructions, at most {MOST_INSTRUCTIONS:,} "
                 "are possible", module.entry.location)
        if _is_flat(module):
            return False
        new, entry = shell_of(module), module.entry
        if entry.has_control_dependencies:
            entry = _Inliner(new).copy(entry)
        else:
            _Inliner(new).edit(entry)
        new.add_computation(entry, entry=True)
        module.take(new)
        return True


def grows_little(module: Module) -> bool:
    """Whether a program is at most `MOST_GROWTH` times as long after inlining, and can be inlined at all."""
    size, levels = _expanded(module)
    most = min(MOST_INSTRUCTIONS, MOST_GROWTH * sum(len(computation) for computation in module))
    return levels <= MOST_LEVELS and size <= most


def _is_flat(module: Module) -> bool:
    """Whether nothing is left to inline, every computation is called, and those of control flow have one caller."""
    callers: Counter[Computation] = Counter()
    alone: set[Computation] = set()
    for computation in module:
        for instruction in computation.calling():
            if instruction.op.role in _INLINED:
                return False
            callers.update(instruction.called())
            if instruction.op.is_control:
                alone.update(instruction.called())
    return all(c is module.entry or callers[c] for c in module) and all(callers[c] == 1 for c in alone)


def _expanded(module: Module) -> tuple[int, int]:
    """Returns an upper bound on the size of the entry after inlining, and how deep calls nest in it."""
    sizes: dict[Computation, int] = {}
    levels: dict[Computation, int] = {}
    for computation in module.callees_first():
        called = list(computation.called())
        sizes[computation] = len(computation) + sum(sizes.get(c, 0) for c in called)
        levels[computation] = 1 + max((levels.get(c, 0) for c in called), default=0)
    return sizes[module.entry], levels[module.entry]


class _Inliner:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.shared: dict[Computation, Computation] = {}
        self.mapped: dict[int, tuple[Attributes, Attributes]] = {}  # by the identities of attributes
        self.names: dict[Instruction, str] = {}  # of the originals of inlined instructions

    def copy(self, source: Computation) -> Computation:
        target = Computation(self.module.unique_computation_name(source.name), source.location)
        target.execution_thread = source.execution_thread
        copies = self.body(target, source, None)
        target.root = copies[source.root]
        return target

    def edit(self, entry: Computation) -> None:
        """Does in place what `copy` does, for an entry without control predecessors."""
        gone: list[Instruction] = []
        used: set[Instruction] = set()
        started: dict[Computation, Computation] = {}
        for instruction in entry.calling():
            if instruction.op.role in _INLINED:
                callee = instruction.called()[0]
                with entry.at(before=instruction):
                    copies = self.body(entry, callee, instruction.operands)
                self._keep_annotation(instruction, copies[callee.root], callee.root)
                entry.replace_all_uses(instruction, copies[callee.root])
                gone.append(instruction)
                used.update(copies.values())
            else:
                instruction.attributes = self._mapped(instruction, started)
        entry.remove_all(gone)
        entry.renew(self.names, used.difference(gone))

    def body(
        self, target: Computation, source: Computation, arguments: list[Instruction] | None
    ) -> dict[Instruction, Instruction]:
        """Appends the instructions of `source` with `arguments` in place of its parameters."""
        copies: dict[Instruction, Instruction] = {}
        started: dict[Computation, Computation] = {}  # updates and dones may refer to computations of their start
        for instruction in source:
            operands = [copies[o] for o in instruction.operands]
            if instruction.op.role is Role.PARAMETER and arguments is not None:
                copies[instruction] = arguments[instruction.attributes_as(ParameterAttributes).number]
            elif instruction.op.role in _INLINED:
                callee = instruction.called()[0]
                result = self.body(target, callee, operands)[callee.root]
                self._keep_annotation(instruction, result, callee.root)
                copies[instruction] = result
            else:
                copy = instruction.copied(
                    target.unique_name(instruction.name), operands, self._mapped(instruction, started))
                target.append(copy)
                copies[instruction] = copy
                self.names[copy] = instruction.name
        for instruction in source if source.has_control_dependencies else ():
            kept = [copies[p] for p in instruction.control_predecessors]
            if kept and copies[instruction] not in kept:
                copies[instruction].control_predecessors += tuple(kept)
        return copies

    def _mapped(self, instruction: Instruction, started: dict[Computation, Computation]) -> Attributes:
        """Returns the attributes of the copy of an instruction."""
        attributes, op = instruction.attributes, instruction.op
        if not called_fields(type(attributes)):
            return attributes
        known = self.mapped.get(id(attributes))
        if known is None or known[0] is not attributes or op.is_control or starts_computation(op) or started:
            known = attributes, map_called(attributes, partial(self._callee, instruction, started))
            self.mapped[id(attributes)] = known
        return known[1]

    def _callee(
        self, instruction: Instruction, started: dict[Computation, Computation], computation: Computation
    ) -> Computation:
        """Returns the computation that the copy of an instruction calls in place of this one. An op of control flow
        that calls one computation several times gets a copy each time.
        """
        if computation in started:
            return started[computation]
        made = self._fresh(computation) if instruction.op.is_control else self._shared(computation)
        if starts_computation(instruction.op):
            started[computation] = made
        return made

    def _keep_annotation(self, call: Instruction, result: Instruction, root: Instruction) -> None:
        # The call's sharding applies to its replacement, unless that has its own or existed before the call.
        if call.annotation is not None and root.op.role is not Role.PARAMETER and result.annotation is None:
            result.sharding, result.shardy = call.sharding, call.shardy

    def _fresh(self, computation: Computation) -> Computation:
        copy = self.copy(computation)
        return self.module.add_computation(copy)

    def _shared(self, computation: Computation) -> Computation:
        if computation not in self.shared:
            self.shared[computation] = self._fresh(computation)
        return self.shared[computation]
