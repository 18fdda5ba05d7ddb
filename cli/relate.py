"""`hloom relate`: which part of which value of the original each value of the partitioned program is."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from ..ir.diagnostics import fail
from ..ir.tools.names import fits, name_pattern, suggestions
from ..ir.tools.spmd import is_per_device
from ..runtime.proof.relations.relate import RelationRow, relate
from .common import partitioned, read_program
from .exit_codes import EXIT_OK
from .messages import print_json
from .progress import working
from .streams import say

_HEAD = ("value", "op", "per device", "is")


def relate_command(args: argparse.Namespace) -> int:
    """Partitions the program and prints one line per value of the result. Raises CompileError for bad input."""
    program = read_program(args)
    if is_per_device(program):
        raise argparse.ArgumentTypeError("a program per device needs the one that it was made from: use hloom.relate")
    local = partitioned(args, program)
    with working(f"relating on {local.num_partitions} devices"):
        found = relate(program, local, args.seed)
    rows = found.rows()
    shown = _matching(rows, args.only)
    counts = Counter(row.kind for row in rows)
    if args.json:
        print_json({"program": program.name, "devices": local.num_partitions, "complete": found.is_complete,
                    "counts": counts, "values": [asdict(row) for row in shown]})  # fmt: skip
        return EXIT_OK
    cells = [_HEAD, *((row.name, row.opcode, row.shape, row.relation) for row in shown)]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    for row in cells:
        say("  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])))
    say(f"\n{len(rows)} values: {', '.join(f'{n} {kind}' for kind, n in counts.most_common())}"
          + ("" if found.is_complete else "; the others are too large to be recorded"))  # fmt: skip
    return EXIT_OK


def _matching(rows: Sequence[RelationRow], patterns: Sequence[str]) -> list[RelationRow]:
    """Returns the rows whose names match one of the patterns; all if there are none."""
    wanted = [name_pattern(text) for text in patterns]
    shown = [r for r in rows if not wanted or any(fits(p, (r.name, r.name.rpartition("/")[2])) for p in wanted)]
    if not shown:
        fail(f"no value is called {' or '.join(patterns)}",
             help="values: " + suggestions(patterns[0], (r.name for r in rows)))  # fmt: skip
    return shown
