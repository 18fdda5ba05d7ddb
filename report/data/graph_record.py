"""Describes the drawing of a section as a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.graph.stack_frames import source_line
from ...ir.tools.names import names_of
from .graph import Drawing, DrawnNode

_PARAMETERS = 4  # named at a node, at most


def graph_record(found: Drawing, collectives: Mapping[str, int], values: Mapping[str, int]) -> dict[str, Any]:
    """Returns nodes and edges; values and collectives are given by their numbers, -1 for none."""
    nodes = [_node(node, collectives, values) for node in found.nodes]
    edges = [[a, b, values.get(value.name, -1)] for a, b, value in found.edges]
    return {"nodes": nodes, "edges": edges, "left_out": found.left_out}


def _node(node: DrawnNode, collectives: Mapping[str, int], values: Mapping[str, int]) -> dict[str, Any]:
    i = node.instruction
    return {
        "name": i.name, "opcode": i.opcode, "x": node.x, "y": node.y, "joined": node.joined,
        "shape": str(i.shape.without_layout()) if i.shape.is_array else "", "source": source_line(i),
        "parameters": [names_of(p)[-1] for p in node.parameters[:_PARAMETERS]],
        "value": values.get(i.name, -1), "collective": collectives.get(i.name, -1),
    }  # fmt: skip
