"""The memory around each computation of a program: the live bytes of its callers, and the peaks of its callees."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...cost.memory import peak_memory
from ...ir.brief import brief
from ...ir.graph.computation import Computation
from ...ir.graph.instruction import Instruction
from ...ir.graph.module import Module
from .orders import live_bytes


@brief
@dataclass(slots=True)
class MemoryFrame:
    """Bytes under the program's current orders. `inner` maps an instruction to the peak of its callees. `outside` maps
    a computation to the bytes that live while it runs, without its own values. `peak` is that of the whole program.
    """

    inner: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    outside: dict[Computation, int] = field(default_factory=dict[Computation, int])
    peak: int = 0


def frame_of(module: Module, peak: int | None = None) -> MemoryFrame:
    """Returns the memory around the computations that control flow reaches. `peak` is that of the program, if known."""
    frame = MemoryFrame(peak=peak_memory(module) if peak is None else peak)
    live: dict[Computation, list[int]] = {}
    order = module.callees_first()
    for computation in order:
        for i in computation:
            if i.op.is_control:
                frame.inner[i] = max((max(live[c]) for c in i.called()), default=0)
        live[computation] = live_bytes(list(computation), computation.root, frame.inner)
    frame.outside[module.entry] = frame.peak - max(live[module.entry])
    for computation in reversed(order):
        if computation not in frame.outside:
            continue
        for i, size in zip(computation, live[computation], strict=True):
            for called in i.called() if i.op.is_control else ():
                around = frame.outside[computation] + size - frame.inner[i]
                frame.outside[called] = max(frame.outside.get(called, around), around)
    return frame
