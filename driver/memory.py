"""Reports the memory of a program: what lives at each moment, and what a native run takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..cost.memory import LiveMemory
from ..ir.brief import brief
from ..passes.stages import During, unseen
from ..report.memory import buffers_table, curve_text, totals_table
from .program import NativeMemory, Program


@brief
@dataclass(frozen=True)
class MemoryReport:
    """The live memory of one of the devices of a program, and that of a native run, in bytes; None without native code.
    """

    name: str
    devices: int
    live: LiveMemory
    native: NativeMemory | None

    @staticmethod
    def of(program: Program, during: During = unseen) -> MemoryReport:
        """Returns the report on a program. `during` surrounds compiling it."""
        live = program.memory()
        with during("compiling native code"):
            native = program.native_memory()
        return MemoryReport(program.module.name, program.devices, live, native)

    def record(self) -> dict[str, object]:
        """Returns the report as JSON."""
        native = self.native and {"bytes": self.native.arena, "bound": self.native.bound, "run": self.native.run}
        return {"program": self.name, "devices": self.devices, **asdict(self.live), "native_arena": native}

    def text(self, largest: int = 10) -> str:
        """Returns totals, the `largest` buffers at the peak, and a curve."""
        native, count = self.native, f"{self.devices} device{'s' * (self.devices != 1)}"
        parts = [
            f"{self.name}: {count}; bytes of each", totals_table(self.live),
            f"largest at the peak\n{buffers_table(self.live.buffers, largest)}", curve_text(self.live.curve),
        ]  # fmt: skip
        if native is not None:
            parts.append(f"native arena: {native.arena:,} bytes, bound {native.bound:,}\n"
                         f"native run: {native.run:,} bytes, with parameters, constants and results")  # fmt: skip
        return "\n\n".join(parts)
