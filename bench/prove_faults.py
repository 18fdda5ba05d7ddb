"""Counts the planted mistakes that the proof finds.

    python bench/prove_faults.py [--each N] [--kinds examples,golden,jax,random] [--faults values,decisions] [--missed]
                                 [--part I/N]

Mistakes of all kinds (up to N of a kind and program) are planted in partitioned programs: the examples, the golden
cases that are evaluated, JAX programs with random shardings (which need JAX), and random programs. Those in values are
wrong constants, operands, groups and the like, those in decisions wrong predicates, indices, trips and orders. A
mistake counts if it changes a result for some input (see tests/support/fault_census.py). `only the proof` are mistakes
that it finds and that those inputs do not show; `unproved` are those that do and of which the proof says nothing.
`--part 1/4` takes every fourth program, from the first on.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hloom
from hloom.ir.graph.module import Module

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.command_line import EXAMPLES
from support.fault_census import Census
from support.golden import FOLDER, cases_of
from support.planted_faults import all_faults, decision_faults, some

KINDS = ("examples", "golden", "jax", "random")
FAULTS = {"values": all_faults, "decisions": decision_faults}
RANDOM = 80  # programs
SMALL = ("mlp_named", "mlp_train", "transformer_scan_train")
COLUMNS = ("planted", "harmless", "caught", "missed", "unproved", "only the proof")


def programs(kinds: list[str]) -> Iterator[tuple[str, str, Module]]:
    """Kind, name and program."""
    if "examples" in kinds:
        yield from (("examples", name, hloom.load(EXAMPLES / f"{name}.hlo")) for name in SMALL)
    if "golden" in kinds:
        for file in sorted(FOLDER.glob("*.hlo")):
            for case in cases_of(file):
                if any(verb.split()[0] == "EVAL" for verb in case.verbs):
                    yield "golden", f"{file.stem}: {case.name}", hloom.parse(case.text)
    if "jax" in kinds:
        from support.sharded_jax import sharded_jax_programs

        yield from (("jax", name, module) for name, module in sharded_jax_programs())
    if "random" in kinds:
        from programs.random.generate import program

        yield from (("random", str(seed), program(random.Random(seed).randint)) for seed in range(RANDOM))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=1, help="mistakes of a kind in a program")
    parser.add_argument("--kinds", default=",".join(KINDS), type=lambda text: text.split(","), help=", ".join(KINDS))
    parser.add_argument("--faults", default=",".join(FAULTS), type=lambda text: text.split(","), help=", ".join(FAULTS))
    parser.add_argument("--missed", action="store_true", help="list the mistakes that are missed, or only proved")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th program, from the I-th on")
    arguments = parser.parse_args()
    first, step = map(int, arguments.part.split("/"))
    rows: dict[str, Counter[str]] = {}
    by_kind: dict[str, Counter[str]] = {}
    start, left_out = time.monotonic(), list[str]()
    for number, (kind, name, module) in enumerate(programs(arguments.kinds)):
        if number % step != first - 1:
            continue
        try:
            census = Census(module, hloom.partition(module))
            if not census.is_proved():
                left_out.append(name)
                continue
        except (hloom.CompileError, ValueError):
            left_out.append(name)
            continue
        planted = [fault for kind in arguments.faults for fault in FAULTS[kind](census.local)]
        for fault in some(planted, arguments.each):
            found = census.outcome(fault)
            if found == "no program":
                continue
            for table, key in ((rows, kind), (by_kind, fault.kind)):
                table.setdefault(key, Counter()).update(["planted", found])
            if arguments.missed and found in ("missed", "unproved", "only the proof"):
                print(f"{found}: {name}: {fault.kind} at {fault.instruction} of {fault.computation}", flush=True)
    for table in (rows, by_kind):
        _show(table)
    print(f"{len(left_out)} programs are left out, which cannot be proved: {', '.join(left_out)}")
    print(f"{time.monotonic() - start:.0f} s")


def _show(table: dict[str, Counter[str]]) -> None:
    width = max(map(len, table), default=0)
    print(" " * width, *(column.rjust(14) for column in COLUMNS), "   found")
    for name, counts in [*sorted(table.items()), ("all", sum(table.values(), Counter[str]()))]:
        counted = counts["caught"] + counts["missed"] + counts["unproved"]
        share = f"{counts['caught'] / counted:8.1%}" if counted else " " * 8
        print(name.ljust(width), *(f"{counts[column]:14,}" for column in COLUMNS), share)


if __name__ == "__main__":
    main()
