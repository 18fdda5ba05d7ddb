"""Which computations of a module call which, how often, and whether they are sure to run."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.ops.control import Call, Conditional, Fusion


def count_call_sites(module: Module) -> dict[Computation, int]:
    """Calls per computation; a use by anything but a call counts as two, for it needs a plan."""
    sites: dict[Computation, int] = {}
    for computation in module:
        for instruction in computation:
            weight = 1 if isinstance(instruction.op, (Call, Fusion)) else 2
            for callee in instruction.called():
                sites[callee] = sites.get(callee, 0) + weight
    return sites


def in_branches(module: Module) -> set[Computation]:
    """The computations that run only if a conditional chooses so."""
    certain = {module.entry}
    stack = [module.entry]
    while stack:
        for instruction in stack.pop():
            called = () if isinstance(instruction.op, Conditional) else instruction.called()
            new = [c for c in called if c not in certain]
            certain.update(new)
            stack += new
    return set(module.computations) - certain


def callees_first(computation: Computation) -> list[Computation]:
    """The computation and all it calls, callees before callers, without recursion."""
    order: dict[Computation, None] = {}
    stack: list[tuple[Computation, Iterator[Computation]]] = [(computation, _called(computation))]
    while stack:
        current, rest = stack[-1]
        callee = next((c for c in rest if c not in order), None)
        if callee is None:
            order[current] = None
            stack.pop()
        else:
            stack.append((callee, _called(callee)))
    return list(order)


def live_in(computation: Computation) -> Iterator[Instruction]:
    """What may run when the computation does, in it and in all that it calls."""
    return (instruction for callee in callees_first(computation) for instruction in live_instructions(callee))


def _called(computation: Computation) -> Iterator[Computation]:
    return (callee for instruction in computation for callee in instruction.called())


def live_instructions(computation: Computation) -> list[Instruction]:
    """What the root or a side effect depends on, in order."""
    live = computation.reachable()
    stack = [i for i in computation if i not in live and i.has_effect()]
    while stack:
        instruction = stack.pop()
        if instruction not in live:
            live.add(instruction)
            stack += [*instruction.operands, *instruction.control_predecessors]
    return [i for i in computation if i in live]
