"""Finds which computations of a module call which, how often, and whether they always run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.interfaces import DeviceNumber, Draws
from ...ir.graph.module import Module
from ...ir.graph.op import Role
from ...ir.ops.starts import run_by
from ...ir.reached import followers_first, reached
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
    certain = reached([module.entry], lambda c: (f for i in c if i.op.role is not Role.BRANCH for f in i.called()))
    return set(module.computations) - certain.keys()


def device_dependent(module: Module) -> set[Computation]:
    """Returns the computations that contain or call an op whose result depends on more than its operands: it
    communicates, has an effect, reads the device number, or uses the device's random state.
    """
    callers: dict[Computation, set[Computation]] = {}
    stack: list[Computation] = []
    for computation in module:
        for callee in computation.called():
            callers.setdefault(callee, set()).add(computation)
        if any(map(_is_device_dependent, computation)):
            stack.append(computation)
    return set(reached(stack, lambda computation: callers.get(computation, ())))


def _is_device_dependent(instruction: Instruction) -> bool:
    op, attributes = run_by(instruction)
    if op.is_collective or op.interface(DeviceNumber) or op.interface(Draws):
        return True
    return op.has_side_effect(attributes) or is_region_boundary(instruction)


def live_in(computation: Computation) -> Iterator[Instruction]:
    """Yields the instructions that may run when the computation does, in it and in its callees."""
    computations = followers_first([computation], Computation.called)
    effects = with_effects(computations)
    return (instruction for callee in computations for instruction in live_instructions(callee, effects))


def with_effects(computations: Iterable[Computation]) -> set[Computation]:
    """Finds the computations with side effects, in themselves or in their callees."""
    found: set[Computation] = set()
    for computation in followers_first(computations, Computation.called):
        if any(_has_effect(i, found) for i in computation):
            found.add(computation)
    return found


def _has_effect(instruction: Instruction, effects: set[Computation]) -> bool:
    return instruction.op.has_side_effect(instruction.attributes) or not effects.isdisjoint(instruction.called())


def live_instructions(computation: Computation, effects: set[Computation]) -> list[Instruction]:
    """Returns the instructions that the root or a side effect depends on, in order. `effects` has the computations with
    effects.
    """
    live = computation.reachable(i for i in computation if _has_effect(i, effects))
    return [i for i in computation if i in live]
