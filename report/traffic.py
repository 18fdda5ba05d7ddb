"""Reports how devices communicate: collectives, repeated work, reshardings, and the decisions that other times turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..cost.collectives import Collective, collectives
from ..cost.runs import runs
from ..cost.work import Contraction, contractions
from ..ir.brief import brief
from ..ir.graph.module import Module
from ..ir.ops.transfers import sent_bytes
from ..passes.base import PassContext
from ..passes.resharding.certificate import ProgramCertificate
from .collectives import collective_record, collectives_record, collectives_table, summary
from .turned import Turned, turned_table
from .work import certificate_record, times_text, work_record, work_summary, work_table


@brief
@dataclass
class TrafficReport:
    """The collectives of a per-device program, most bytes first, its contractions, and its reshardings.

    `turned` are the decisions that the machine `other` turns, and `close` those that the error of forecasts turns; None
    if nobody has asked.
    """

    module: Module
    collectives: Sequence[Collective]
    work: Sequence[Contraction]
    certificate: ProgramCertificate
    other: str = ""
    turned: Sequence[Turned] | None = None
    close: Sequence[Turned] | None = None

    @staticmethod
    def of(local: Module, context: PassContext) -> TrafficReport:
        """Returns the report on a per-device program and the context in which it was partitioned."""
        certificate = ProgramCertificate.of(context.reshardings, local.num_partitions, context.machine)
        found = sorted(collectives(local), key=lambda c: -c.sent_bytes)
        return TrafficReport(local, found, contractions(local), certificate)

    def record(self) -> dict[str, object]:
        """Returns the report as JSON."""
        decisions = {"what_if": self.turned, "close": self.close}
        return {
            **collectives_record(self.module, self.collectives),
            "collectives": [collective_record(c) for c in self.collectives],
            **work_record(self.work),
            "reshardings": certificate_record(self.certificate),
            **{key: [asdict(t) for t in some] for key, some in decisions.items() if some is not None},
        }  # fmt: skip

    def text(self, every: bool = False) -> str:
        """Returns the tables for people. Unless `every` row is asked for, those that differ in numbers of names only
        are one.
        """
        name, devices = self.module.name, self.module.devices
        parts = [collectives_table(self.collectives, every)] if self.collectives else []
        parts.append(f"{name}: {devices} device{'s' * (devices != 1)}; {summary(self.collectives)}")
        sends = [(run.count, size) for run in runs(self.module) if (size := sent_bytes(run.instruction)) is not None]
        if sends:
            count, size = sum(n for n, _ in sends), sum(n * size for n, size in sends)
            parts.append(f"{name}: {count} send{'s' * (count != 1)} of {size:,} bytes, which are not among these")
        if self.work:
            parts += [work_table(self.work, every), f"{name}: {work_summary(self.work)}"]
        if self.certificate.seconds:
            parts.append(f"reshardings, each once; {times_text(self.certificate)}")
        if self.turned is not None:
            count = len(self.turned)
            parts.append(f"{self.other} turns {count or 'no'} decision{'s' * (count != 1)}")
        if self.turned:
            parts.append(turned_table(self.turned))
        return "\n\n".join(parts)
