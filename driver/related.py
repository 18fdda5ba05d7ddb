"""Reports which part of which value of the original each value of a partitioned program is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..ir.brief import brief
from ..ir.tools.names import called
from ..report.columns import columns
from ..runtime.proof.relations.relate import RelationRow, Relations

_HEAD = ("value", "op", "per device", "is")


@brief
@dataclass(frozen=True)
class RelationsReport:
    """The relations of the program `name`, divided among `devices`."""

    name: str
    devices: int
    relations: Relations

    def record(self, only: Sequence[str] = ()) -> dict[str, object]:
        """Returns the values that the patterns `only` fit as JSON, and the counts of all. Raises CompileError if no
        value fits.
        """
        found = self.relations
        return {"program": self.name, "devices": self.devices, "complete": found.is_complete, "counts": found.counts(),
                "values": list(map(asdict, _called(found.rows(), only)))}  # fmt: skip

    def text(self, only: Sequence[str] = ()) -> str:
        """Returns one line per value that the patterns `only` fit, and the counts of all. Raises CompileError if no
        value fits.
        """
        rows, counts = self.relations.rows(), self.relations.counts()
        cells = [(row.name, row.opcode, row.shape, row.relation) for row in _called(rows, only)]
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items(), key=lambda count: -count[1]))
        rest = "" if self.relations.is_complete else "; the others are too large to be recorded"
        return f"{columns([_HEAD, *cells], (False,) * len(_HEAD))}\n\n{len(rows)} values: {kinds}{rest}"


def _called(rows: Sequence[RelationRow], only: Sequence[str]) -> list[RelationRow]:
    return called(rows, only, lambda row: (row.name, row.name.rpartition("/")[2]), lambda row: [row.name])
