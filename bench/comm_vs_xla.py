"""Compares programs partitioned by Hloom and by XLA's partitioner, from the same annotations.

    python bench/comm_vs_xla.py [NAME ..] [--file FILE ..] [--realistic | --models | --ops] [--json] [--kinds]

Needs JAX. The programs are those of tests/comm_programs (one per kind of op and division, and models: the examples and
annotated JAX programs), those of realistic.py, whose sizes are as people run them, and files. Each is partitioned for
eight devices by XLA (eight virtual CPU devices) and by Hloom, once without a machine and once for each of --machines.
`xla_partitions.py` measures both. Parameters and results carry shardings, so both begin and end with the same tiles.

The first table has bytes and collectives without a machine. Then follow, for each machine, the forecast of time, bytes,
collectives, multiply-adds and temporary memory; below each the totals and the programs that are worse than XLA's.
Small programs take the time of their latencies, so totals of time are those of the realistic ones and of files.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import hloom
from hloom.ir.graph.module import Module
from hloom.report.work import amount
from xla_partitions import DEVICES, PASS, Cost, of_hloom, of_xla

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comm_programs.cases import programs
from comm_programs.models import as_sharded, models, with_fixed_ends
from comm_programs.reasons import REASONS as SMALL_REASONS
from realistic import PROGRAMS as REALISTIC
from realistic import REASONS as REALISTIC_REASONS

REASONS = SMALL_REASONS | REALISTIC_REASONS
_SLOWER, _MORE_WORK, _MORE_MEMORY = 1.02, 1.02, 1.1
_LEAST_MEMORY = 1 << 20  # temporary memory below this is not worth a word


@dataclass(frozen=True, slots=True)
class Row:
    """The result for one program by machine; the machine "" is the default. `xla` is empty if XLA cannot partition it,
    and `failure` says why.
    """

    name: str
    large: bool
    hloom: dict[str, Cost]
    xla: dict[str, Cost]
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """Bytes of Hloom over bytes of XLA without a machine; None if neither sends anything, or XLA fails."""
        if not self.xla or self.hloom[""].counted.bytes == self.xla[""].counted.bytes == 0:
            return None
        return _over(self.hloom[""].counted.bytes, self.xla[""].counted.bytes)

    @property
    def is_worse(self) -> bool:
        return self.ratio is not None and self.ratio > 1.0

    def as_json(self) -> dict[str, object]:
        """The row with the counts of the default machine on top."""
        found = {"hloom": self.hloom, "xla": self.xla}
        plain = {who: asdict(costs[""].counted) if costs else None for who, costs in found.items()}
        machines = {who: {m: asdict(c) for m, c in costs.items()} for who, costs in found.items()}
        return {"name": self.name, "failure": self.failure, "ratio": self.ratio, "reason": REASONS.get(self.name),
                **plain, "machines": machines}  # fmt: skip


def _over(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else math.inf if ours else 1.0


def measure(name: str, large: bool, variants: Sequence[Module], machines: Sequence[str], dumps: Path) -> Row:
    """Measures Hloom on the first variant of a program, XLA on the variant where it is fastest."""
    wanted = {machine: hloom.parse_machine(machine) for machine in ("", *machines)}
    ours = of_hloom(variants[0], wanted)
    try:
        return Row(name, large, ours, of_xla(variants, wanted, dumps))
    except RuntimeError as error:
        return Row(name, large, ours, {}, str(error).partition("\n")[0])


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[str, bool, Callable[[], list[Module]]]]:
    """Yields the programs asked for: name, whether its sizes are realistic, and a maker of its variants."""
    some = arguments.realistic or arguments.models or arguments.ops or arguments.file
    for path in arguments.file:
        yield path.stem, True, partial(_variants, path.stem, path.read_text)
    if arguments.realistic or not some:
        for name, text in REALISTIC.items():
            yield name, True, partial(_variants, name, text)
    if arguments.ops or not some:
        for name, text in programs().items():
            yield name, False, partial(_as_written, name, text)
    if arguments.models or not some:
        for name, make in models().items():
            yield name, False, partial(_variants, name, make)


def _as_written(name: str, text: str) -> list[Module]:
    return [hloom.parse(text, name)]


def _variants(name: str, text: Callable[[], str]) -> list[Module]:
    program = with_fixed_ends(name, text())
    return [program, as_sharded(program)]


def rows(arguments: argparse.Namespace, dumps: Path) -> Iterator[Row]:
    for name, large, variants in chosen(arguments):
        if not arguments.names or name in arguments.names:
            try:
                yield measure(name, large, variants(), arguments.machines, dumps)
            except hloom.CompileError as error:
                print(f"{name}: Hloom cannot partition it: {error.diagnostics[0].message}", file=sys.stderr)


def show(rows: list[Row], kinds: bool) -> None:
    """Prints bytes and collectives without a machine."""
    width = max(len(r.name) for r in rows)
    print(f"{'program'.ljust(width)}      bytes Hloom        bytes XLA  ratio  collectives Hloom / XLA")
    for row in rows:
        ours, theirs = row.hloom[""].counted, row.xla[""].counted if row.xla else None
        ratio = "    -" if row.ratio is None else f"{row.ratio:5.2f}"
        shown = ("", "") if theirs is None else (f"{theirs.bytes:,}", str(theirs.count))
        note = row.failure and f"  XLA fails: {row.failure[:60]}"
        print(f"{row.name.ljust(width)}  {ours.bytes:15,}  {shown[0]:>15}  {ratio}  {ours.count:4} / "
              f"{shown[1]:4}{note}".rstrip())
        if kinds:
            print(f"  Hloom {ours.kinds}  XLA {theirs.kinds if theirs else None}")
    for title, large in (("total", False), ("total of realistic sizes", True)):
        _total(title, width, [(r.hloom[""], r.xla[""]) for r in rows if r.xla and r.large == large])
    fewer = sum(r.ratio is not None and r.ratio < 1 for r in rows)
    worse = [r for r in rows if r.is_worse]
    print(f"{len(rows)} programs: fewer bytes than XLA in {fewer}, more in {len(worse)}, "
          f"XLA fails in {sum(not r.xla for r in rows)}")
    for row in worse:
        print(f"  more: {row.name}: {REASONS.get(row.name, 'NO WRITTEN REASON')}")


def _total(title: str, width: int, both: list[tuple[Cost, Cost]]) -> None:
    if both:
        ours, theirs = (sum(c[n].counted.bytes for c in both) for n in (0, 1))
        print(f"{title.ljust(width)}  {ours:15,}  {theirs:15,}  {_over(ours, theirs):5.2f}  "
              f"{sum(h.counted.count for h, _ in both):4} / {sum(x.counted.count for _, x in both)}")


# A column of the tables by machine: its title, its value, and how that is written.
_COLUMNS: tuple[tuple[str, Callable[[Cost], float], Callable[[float], str]], ...] = (
    ("us", lambda c: c.seconds * 1e6, lambda v: f"{v:,.1f}"),
    ("bytes", lambda c: c.counted.bytes, lambda v: amount(v)),
    ("collectives", lambda c: c.counted.count, lambda v: f"{v:.0f}"),
    ("multiply-adds", lambda c: c.multiply_adds, lambda v: amount(v)),
    ("temporary", lambda c: c.temporary, lambda v: amount(v)),
)


def show_machine(rows: list[Row], machine: str) -> None:
    """Prints each quantity as Hloom's / XLA's and their ratio, for one machine; then totals and the worst programs."""
    rows = [row for row in rows if row.xla]
    print(f"\n{machine}: Hloom / XLA")
    pairs = [(row.name, row.hloom[machine], row.xla[machine]) for row in rows]
    table = [("program", *(title for title, _, _ in _COLUMNS))]
    table += [(name, *(_cell(of(h), of(x), text) for _, of, text in _COLUMNS)) for name, h, x in pairs]
    for title, large in (("total", False), ("total of realistic sizes", True)):
        both = [(row.hloom[machine], row.xla[machine]) for row in rows if row.large == large]
        if both:
            sums = [[sum(of(c[n]) for c in both) for n in (0, 1)] for _, of, _ in _COLUMNS]
            cells = [_cell(h, x, text) for (h, x), (_, _, text) in zip(sums, _COLUMNS, strict=True)]
            mean = math.exp(sum(math.log(_over(h.seconds, x.seconds)) for h, x in both if x.seconds) / len(both))
            table.append((f"{title} (mean time {mean:.2f})", *cells))
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(
            zip(row, widths, strict=True))))
    for line in filter(None, (_verdict(*pair) for pair in pairs)):
        print(f"  {line}")


def _cell(ours: float, theirs: float, text: Callable[[float], str]) -> str:
    return f"{text(ours)} / {text(theirs)}  {_over(ours, theirs):5.2f}"


def _verdict(name: str, ours: Cost, theirs: Cost) -> str:
    """Returns in which ways a program is worse than XLA's; empty if it is not."""
    time = _over(ours.seconds, theirs.seconds)
    work, memory = _over(ours.multiply_adds, theirs.multiply_adds), _over(ours.temporary, theirs.temporary)
    found = [f"time {time:.2f}"] if time > _SLOWER else []
    if work > _MORE_WORK:
        found.append(f"multiply-adds {work:.2f}, " + ("in less time" if time < 1 else "NOT in less time"))
    if memory > _MORE_MEMORY and ours.temporary > _LEAST_MEMORY:
        found.append(f"temporary memory {memory:.2f}")
    return f"worse: {name}: {', '.join(found)}" if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("--file", nargs="+", type=Path, default=[], help="annotated programs for eight devices")
    parser.add_argument("--realistic", action="store_true", help="only the programs of realistic sizes")
    parser.add_argument("--models", action="store_true", help="only the small models")
    parser.add_argument("--ops", action="store_true", help="only the programs of single ops")
    parser.add_argument("--machines", nargs="*", default=["tpu-v5p", "h100", "cpu-cluster"], metavar="MACHINE")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--kinds", action="store_true", help="print the collectives by kind")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = " ".join([
            f"--xla_force_host_platform_device_count={DEVICES}", f"--xla_dump_to={folder}", "--xla_dump_hlo_as_text",
            f"--xla_dump_hlo_pass_re={PASS}",
        ])  # fmt: skip
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        found = list(rows(arguments, Path(folder)))
    if arguments.json:
        print(json.dumps([row.as_json() for row in found], indent=1))
    elif found:
        show(found, arguments.kinds)
        for machine in arguments.machines:
            show_machine(found, machine)


if __name__ == "__main__":
    main()
