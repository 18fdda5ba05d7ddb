"""Measures how far Hloom's shardings agree with Shardy's, and which of the two move fewer bytes.

    PYTHONPATH=.import:tests python bench/shardy.py [PROGRAM ..] [--values] [--each] [--markdown]

Needs JAX. Prints one line per annotated JAX program of `tests/sharded_programs`: compared values, agreement, bytes that
a device sends with Hloom's shardings and with Shardy's (both partitioned by Hloom), and the multiplications of a
device, Hloom's in relation to Shardy's. `--values` lists the differing values; `--each` says for each what the program
would send if only that value were sharded as in Shardy.
"""

from __future__ import annotations

import argparse
import time

from sharded_programs.catalog import PROGRAMS
from support.propagation_comparison import Comparison, compare

HEADER = ("program", "values", "differ", "agreement", "bytes ours", "bytes Shardy", "fewer", "work")


def row(name: str, found: Comparison) -> tuple[str, ...]:
    """Returns the cells of one program; `work` is Hloom's in relation to Shardy's."""
    counts = (name, str(len(found.values)), str(len(found.differences)), f"{found.agreement:.1%}")
    ours, theirs = found.ours, found.theirs
    if ours is None or theirs is None:
        return (*counts, "-", "-", "unknown", "-")
    fewer = "equal" if ours.bytes == theirs.bytes else "ours" if ours.bytes < theirs.bytes else "Shardy"
    work = f"{ours.work / theirs.work:.2f}" if theirs.work else "-"
    return (*counts, f"{ours.bytes:,}", f"{theirs.bytes:,}", fewer, work)


def line(cells: tuple[str, ...], markdown: bool) -> str:
    if markdown:
        return "| " + " | ".join(cells) + " |"
    return f"{cells[0]:34}" + "".join(f"{cell:>14}" for cell in cells[1:])


def print_differences(found: Comparison) -> None:
    for value in found.differences:
        single = found.single.get(value.key)
        alone = f" alone: {single.bytes:,}" if single is not None else ""
        name = f"{value.key[0]}[{value.key[1]}]"
        print(f"    {name:26} {value.opcode:16} {value.shape.without_layout()!s:24} ours {value.ours:24} "
              f"Shardy {value.theirs:24}{alone}  {value.op_name}")


def print_alone(found: Comparison) -> None:
    """Counts for how many of the differing values Shardy's sharding alone would make the program send more, as much, or
    less.
    """
    if found.ours is None:
        return
    ours = found.ours.bytes
    alone = [cost.bytes for cost in found.single.values() if cost is not None]
    more, less = sum(b > ours for b in alone), sum(b < ours for b in alone)
    print(f"    with Shardy's sharding of one value alone: {more} send more, {len(alone) - more - less} as much, "
          f"{less} less")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    start = time.perf_counter()
    print(line(HEADER, arguments.markdown))
    if arguments.markdown:
        print("|" + " --- |" * len(HEADER))
    values = differ = 0
    for name in arguments.programs or sorted(PROGRAMS):
        found = compare(PROGRAMS[name](), arguments.each)
        print(line(row(name, found), arguments.markdown), flush=True)
        if arguments.values or arguments.each:
            print_differences(found)
        if arguments.each:
            print_alone(found)
        values, differ = values + len(found.values), differ + len(found.differences)
    print(f"\n{values} values, {differ} differ: {1 - differ / max(values, 1):.2%} agree"
          f" ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
