"""Describes machines for people and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict

from ..cost.machine_file import MachineFile
from ..cost.presets import PRESETS, machine_summary
from .columns import columns

_HEAD = ("machine", "memory", "bf16", "links")


def presets_table() -> str:
    """Returns one line per machine that Hloom knows by name."""
    return columns([_HEAD, *((name, *machine_summary(m)) for name, m in PRESETS.items())], (False,) * len(_HEAD))


def machine_record(file: MachineFile) -> dict[str, object]:
    """Returns a machine as JSON, with the sources of its numbers; memory without a limit is null."""
    fields = asdict(file.machine)
    if not math.isfinite(file.machine.memory_size):
        fields["memory_size"] = None
    return {"name": file.name, "machine": fields, "sources": dict(file.sources)}
