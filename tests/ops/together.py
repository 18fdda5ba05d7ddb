"""Many small programs as one, so that XLA compiles once: its parameters and results are theirs, in order."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.graph.clone import clone_computation, clone_instruction
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.ops.structure import ParameterAttributes
from hloom.ir.tools.verifier import check


def together(modules: Sequence[Module]) -> Module:
    """One module that computes the results of all, as a tuple. They must have equally many replicas."""
    result = Module("together")
    result.replica_count = modules[0].replica_count
    entry = Computation("main")
    roots = [_appended(result, entry, module, f".{number}") for number, module in enumerate(modules)]
    entry.root = entry.build("tuple", *roots)
    result.add_computation(entry, entry=True)
    check(result)
    return result


def _appended(result: Module, entry: Computation, module: Module, suffix: str) -> Instruction:
    """The copy of a module's root; its entry is copied into `entry`."""
    assert (module.replica_count, module.num_partitions) == (result.replica_count, 1)
    copies: dict[Computation, Computation] = {}
    for computation in module.callees_first():
        if computation is not module.entry:
            copies[computation] = clone_computation(computation, copies.__getitem__, computation.name + suffix)
            result.add_computation(copies[computation])
    first = len(entry.parameters)
    made: dict[Instruction, Instruction] = {}
    for source in module.entry:
        made[source] = clone_instruction(entry, source, [made[o] for o in source.operands], copies.__getitem__)
        if isinstance(source.attributes, ParameterAttributes):
            made[source].attributes = ParameterAttributes(first + source.attributes.number)
    return made[module.entry.root]
