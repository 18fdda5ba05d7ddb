"""Donation after partitioning: a parameter's buffer can hold a result only if both have the same local shape.

`input_output_alias` is stored as text. Entries whose ends have different local shapes, because they are sharded
differently, are dropped, since XLA rejects them. This costs only memory, so it is a remark.
"""

from __future__ import annotations

import re

from ....ir.diagnostics import Diagnostics
from ....ir.graph.module import Module

_ENTRY = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}[^()]*\)")


def keep_fitting_aliases(module: Module, diagnostics: Diagnostics) -> None:
    """Drops the entries of a LOCAL module's alias list that join tiles of different shapes."""
    if not module.input_output_alias:
        return
    parameters = module.entry.parameters
    kept: list[str] = []
    for match in _ENTRY.finditer(module.input_output_alias):
        output, number, index = match[1], int(match[2]), match[3]
        given = parameters[number].shape.part(index) if number < len(parameters) else None
        result = module.entry.root.shape.part(output)
        if given is not None and result is not None and given.compatible(result):
            kept.append(match[0])
        else:
            diagnostics.remark(
                f"parameter {number} is no longer donated to result {{{output}}}: their local shapes are "
                f"{given or 'nothing'} and {result or 'nothing'}", category="donation",
                help="give both the same sharding")
    module.input_output_alias = "{ " + ", ".join(kept) + " }" if kept else ""
