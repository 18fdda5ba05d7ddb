"""Finds which computations of a module call which, how often, and whether they always run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber, Draws
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.starts import run_by
from ...ir.tools.spmd import is_region_boundary


def count_call_sites(module: Module) -> dict[Computation, int]:
    """Counts calls per computation. A use by any other op than a call counts as two, because it needs a plan of its
    own.
    """
    sites: dict[Computation, int] = {}
    for computation in module:
        for instruction in computation:
            weight = 1 if instruction.op.role in (Role.CALL, Role.FUSION) else 2
            for callee in instruction.called():
                sites[callee] = sites.get(callee, 0) + weight
    return sites


def in_branches(module: Module) -> set[Computation]:
    """Returns the computations that run only if a conditional chooses them."""
    certain = {module.entry}
    stack = [module.entry]
    while stack:
        for instruction in stack.pop():
            called = () if instruction.op.role is Role.BRANCH else instruction.called()
            new = [c for c in called if c not in certain]
            certain.update(new)
            stack += new
    return set(module.computations) - certain


def device_dependent(module: Module) -> set[Computation]:
    """Returns the computations that contain or call an op whose result depends on more than its operands: it
    communicates, has an effect, reads the device number, or uses the device's random state.
    """
    callers: dict[Computation, set[Computation]] = {}
    stack: list[Computation] = []
    for computation in module:
        for callee in called_by(computation):
            callers.setdefault(callee, set()).add(computation)
        if any(map(_is_device_dependent, computation)):
            stack.append(computation)
    dependent = set(stack)
    while stack:
        new = callers.get(stack.pop(), set()) - dependent
        dependent |= new
        stack += new
    return dependent


def _is_device_dependent(instruction: Instruction) -> bool:
    op, attributes = run_by(instruction)
    if op.is_collective or op.interface(DeviceNumber) or op.interface(Draws):
        return True
    return op.has_side_effect(attributes) or is_region_boundary(instruction)


def called_by(computation: Computation) -> Iterator[Computation]:
    """Yields the computations that the instructions of a computation call."""
    return (callee for instruction in computation for callee in instruction.called())


def callees_first(
    computation: Computation, called: Callable[[Computation], Iterator[Computation]] = called_by
) -> list[Computation]:
    """Returns the computation and all that it calls, callees before callers, without recursion."""
    order: dict[Computation, None] = {}
    stack: list[tuple[Computation, Iterator[Computation]]] = [(computation, called(computation))]
    while stack:
        current, rest = stack[-1]
        callee = next((c for c in rest if c not in order), None)
        if callee is None:
            order[current] = None
            stack.pop()
        else:
            stack.append((callee, called(callee)))
    return list(order)


def live_in(computation: Computation) -> Iterator[Instruction]:
    """Yields the instructions that may run when the computation does, in it and in its callees."""
    return (instruction for callee in callees_first(computation) for instruction in live_instructions(callee))


def live_instructions(computation: Computation) -> list[Instruction]:
    """Returns the instructions that the root or a side effect depends on, in order."""
    live = computation.reachable()
    stack = [i for i in computation if i not in live and i.has_effect()]
    while stack:
        instruction = stack.pop()
        if instruction not in live:
            live.add(instruction)
            stack += [*instruction.operands, *instruction.control_predecessors]
    return [i for i in computation if i in live]
