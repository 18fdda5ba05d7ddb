"""Device forms: in the program of each device that XLA compiled, what its back ends write for themselves becomes what
Hloom writes.

- A fusion with collectives inside (XLA for TPUs joins an all-reduce with the slice of it that a device keeps) is
  inlined: its collectives are counted, timed and scheduled.
- `copy-start` and `copy-done` between the memory of the device and that of the host become a copy at the place of the
  start. Such a copy runs while the device computes, until its result is read.

    before:  s = (f32[8]{0:S(5)}, f32[8], u32[]) copy-start(x)          after:  d = f32[8]{0:S(5)} copy(x)
             d = f32[8]{0:S(5)} copy-done(s)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph.algebra import Algebra
from ...ir.graph.clone import inlined
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from ...ir.graph.op import AnyOp, Role
from ...ir.graph.op_places import is_collective
from ...ir.ops.starts import is_start, run_by
from ..base import Pass, PassContext


@dataclass(frozen=True)
class DeviceForms(Pass):
    """Inlines fusions with collectives, and replaces started copies to and from the host by copies."""

    name: ClassVar[str] = "device-forms"

    def run(self, module: Module, context: PassContext) -> bool:
        communicates = _communicating(module)
        opened = [i for c in module for i in c.having(_is_fusion) if communicates.issuperset(i.called())]
        bodies = {c for fusion in opened for c in fusion.called()}
        for computation in module.callees_first() if opened else ():
            for fusion in computation.having(_is_fusion):
                if bodies.issuperset(fusion.called()):
                    _open(computation, fusion)
        module.computations = [c for c in module if c not in bodies] if opened else module.computations
        moved = [i for c in module for i in c.having(is_start) if _moves_to_or_from_host(i)]
        for start in moved:
            _copy(start)
        return bool(opened or moved)


def _is_fusion(op: AnyOp) -> bool:
    return op.role is Role.FUSION


def _communicating(module: Module) -> set[Computation]:
    """Returns the computations that contain collectives, or fusions with collectives."""
    found = set[Computation]()
    for computation in module.callees_first():
        inner = (c for fusion in computation.having(_is_fusion) for c in fusion.called())
        if computation.having(is_collective) or not found.isdisjoint(inner):
            found.add(computation)
    return found


def _open(computation: Computation, fusion: Instruction) -> None:
    with computation.at(before=fusion) as made:
        result = inlined(computation, fusion.called()[0], fusion.operands)
    for one in made:
        one.control_predecessors = (*one.control_predecessors, *fusion.control_predecessors)
    if fusion.annotation is not None and result not in fusion.operands:
        result.sharding, result.shardy = fusion.sharding, fusion.shardy
    computation.replace_all_uses(fusion, result)
    computation.remove(fusion)


def _moves_to_or_from_host(start: Instruction) -> bool:
    """Whether a start copies between the memories of device and host, and its dones alone read it."""
    op, _ = run_by(start)
    dones, is_copy = list(start.users), op.is_elementwise and op.algebra is Algebra.MOVE
    return (is_copy and bool(dones) and all(d.op.role is Role.DONE for d in dones)
            and dones[0].shape.is_on_host is not start.operands[0].shape.is_on_host)  # fmt: skip


def _copy(start: Instruction) -> None:
    computation, dones = start.parent, list(start.users)
    assert computation is not None
    name = dones[0].name
    with computation.at(before=start):
        copy = computation.add("copy", start.operands, shape=dones[0].shape, like=start)
    copy.control_predecessors = start.control_predecessors
    for done in dones:
        computation.replace_all_uses(done, copy)
    computation.replace_all_uses(start, copy)
    computation.remove_all((start, *dones))
    computation.rename(copy, name)
