"""Call inlining: replaces every `call` by the body that it calls, and every `fusion`, which only matters to back ends.

Partitioning then sees one computation per level of control flow. Computations of `while` and `conditional` are copied
so that each has one caller: shardings of a loop body belong to one loop. Composite and other calls are all inlined.
Of equal computations that ops apply to elements, the copy has one.

    before:  y = f32[4] call(x), to_apply=f          after:  y = f32[4] negate(x)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...ir.graph.attributes import Attributes
from ...ir.graph.clone import map_called
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import Applies
from ...ir.graph.module import Module, shell_of
from ...ir.graph.op import Role
from ...ir.ops.async_ops import starts_computation
from ...ir.tools.expanded import MOST_INSTRUCTIONS, check_expanded, expanded
from ..base import Pass, PassContext
from .equal_computations import equal_callees

MOST_LEVELS = 100
MOST_GROWTH = 4
_INLINED = (Role.CALL, Role.FUSION)


@dataclass(frozen=True)
class CallInliner(Pass):
    """Inlines calls and fusions; drops computations that nothing calls any more."""

    name: ClassVar[str] = "call-inliner"

    def is_idle(self, module: Module) -> bool:
        return _is_flat(module)

    def renews(self, module: Module) -> bool:
        return True

    def run(self, module: Module, context: PassContext) -> bool:
        check_expanded(module, MOST_LEVELS)
        if _is_flat(module):
            return False
        new = shell_of(module)
        new.add_computation(_Inliner(new, equal_callees(module)).copy(module.entry), entry=True)
        module.take(new)
        return True


def grows_little(module: Module) -> bool:
    """Whether a program is at most `MOST_GROWTH` times as long after inlining, and can be inlined at all."""
    size, levels = expanded(module)
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


class _Inliner:
    """Copies computations into `module`, for the first of `equal` ones that are applied to elements."""

    def __init__(self, module: Module, equal: Mapping[Computation, Computation]) -> None:
        self.module = module
        self.equal = equal
        self.shared: dict[Computation, Computation] = {}
        self.mapped: dict[int, tuple[Attributes, Attributes]] = {}  # by the identities of attributes
        self.one_of: dict[Attributes, Attributes] = {}  # equal ones are one object, as `EqualComputations` makes them

    def copy(self, source: Computation) -> Computation:
        target = Computation(self.module.unique_computation_name(source.name), source.location)
        target.execution_thread = source.execution_thread
        made: list[Instruction] = []
        copies = self.body(target, source, None, made)
        target.extend(made)
        target.root = copies[source.root]
        return target

    def body(
        self, target: Computation, source: Computation, arguments: list[Instruction] | None, made: list[Instruction]
    ) -> dict[Instruction, Instruction]:
        """Copies the instructions of `source` with `arguments` in place of its parameters. They become the last of
        `made`, which are to be appended to the target, or are there already.
        """
        copies: dict[Instruction, Instruction] = {}
        started: dict[Computation, Computation] = {}  # updates and dones may refer to computations of their start
        calling = set(source.calling())
        if arguments is not None:
            copies.update(zip(source.parameters, arguments, strict=True))
        for instruction in source:
            if instruction in copies:
                continue
            operands, attributes = [copies[o] for o in instruction.operands], instruction.attributes
            if instruction in calling:
                if instruction.op.role in _INLINED:
                    callee = instruction.called()[0]
                    result = self.body(target, callee, operands, made)[callee.root]
                    self._keep_annotation(instruction, result, callee.root)
                    copies[instruction] = result
                    continue
                attributes = self._mapped(instruction, started)
            copies[instruction] = copy = instruction.copied(instruction.name, operands, attributes)
            made.append(copy)
        if source.has_control_dependencies:
            target.extend(made)
            made.clear()
        for instruction in source if source.has_control_dependencies else ():
            kept = [copies[p] for p in instruction.control_predecessors]
            if kept and copies[instruction] not in kept:
                copies[instruction].control_predecessors += tuple(kept)
        return copies

    def _mapped(self, instruction: Instruction, started: dict[Computation, Computation]) -> Attributes:
        """Returns the attributes of the copy of an instruction."""
        attributes, op = instruction.attributes, instruction.op
        known = self.mapped.get(id(attributes))
        if known is None or known[0] is not attributes or op.is_control or starts_computation(op) or started:
            made = map_called(attributes, partial(self._callee, instruction, started))
            known = self.mapped[id(attributes)] = attributes, self.one_of.setdefault(made, made)
        return known[1]

    def _callee(
        self, instruction: Instruction, started: dict[Computation, Computation], computation: Computation
    ) -> Computation:
        """Returns the computation that the copy of an instruction calls in place of this one. An op of control flow
        that calls one computation several times gets a copy each time.
        """
        if computation in started:
            return started[computation]
        if instruction.op.is_control:
            made = self._fresh(computation)
        elif instruction.op.interface(Applies):
            made = self._shared(self.equal[computation])
        else:
            made = self._shared(computation)
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
