"""Compares the communication of programs partitioned by Hloom and by XLA's partitioner, from the same annotations.

    python bench/comm_vs_xla.py [NAME ..] [--models | --ops] [--json] [--kinds]

Needs JAX. The programs are those of tests/comm_programs: one per kind of op and division, and models (the examples and
annotated JAX programs). Each is partitioned for eight devices by Hloom and, as the same text, by XLA (eight virtual CPU
devices); one function counts the bytes that a device sends in both results. Parameters and results carry shardings, so
both begin and end with the same tiles.

XLA gets the benefit of the doubt: the cheapest of these counts. Its module right after the partitioner, and the one it
compiled, where passes may have combined or simplified collectives. For models, XLA's own propagation and Hloom's
(shardings on every value). An all-reduce of which every user keeps one tile per device is counted as the reduce-scatter
into which XLA turns it on other back ends than CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import hloom
from hloom.cost.collectives import Collective
from hloom.cost.formulas import received
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comm_programs.cases import DEVICES, programs
from comm_programs.models import as_sharded, models, with_fixed_ends
from comm_programs.reasons import REASONS

PASS = "spmd-partitioning"


@dataclass(frozen=True, slots=True)
class Counted:
    """The bytes that one device sends, and the number of collectives by kind; both count the trips of loops."""

    bytes: int
    kinds: dict[str, int]

    @property
    def count(self) -> int:
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True)
class Row:
    """The result for one program. `xla` is None if XLA cannot partition it, and `failure` says why."""

    name: str
    hloom: Counted
    xla: Counted | None
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """Bytes of Hloom over bytes of XLA; None if neither sends anything, or XLA fails."""
        if self.xla is None or self.hloom.bytes == self.xla.bytes == 0:
            return None
        return self.hloom.bytes / self.xla.bytes if self.xla.bytes else float("inf")

    @property
    def is_worse(self) -> bool:
        return self.ratio is not None and self.ratio > 1.0


def count(module: Module, scattered: dict[str, int]) -> Counted:
    """Counts what the collectives of a per-device module send; those in `scattered` count with the bytes given there.
    """
    kinds: Counter[str] = Counter()
    sent = 0
    for found in hloom.collectives(module):
        kind = "reduce-scatter" if found.name in scattered else found.kind
        kinds[kind] += found.count
        sent += _bytes(found, scattered) * found.count
    return Counted(sent, dict(kinds))


def _bytes(found: Collective, scattered: dict[str, int]) -> int:
    return scattered.get(found.name, found.wire_bytes)


def reduce_scatters(module: Module) -> dict[str, int]:
    """Returns the all-reduces of which each device keeps one tile, and their bytes as reduce-scatters."""
    sizes = {c.name: c for c in hloom.collectives(module) if c.kind == "all-reduce"}
    found: dict[str, int] = {}
    for computation in module:
        for instruction in computation:
            if instruction.name in sizes and _is_scattered(instruction, sizes[instruction.name].group_size):
                whole = sizes[instruction.name]
                found[instruction.name] = int(received("reduce-scatter", whole.buffer_bytes, whole.group_size))
    return found


def _is_scattered(instruction: Instruction, parts: int) -> bool:
    users = list(_users(instruction))
    kept = instruction.shape.num_elements // parts if instruction.shape.is_array else 0
    return bool(users) and all(u.opcode == "dynamic-slice" and u.shape.num_elements <= kept for u in users)


def _users(instruction: Instruction) -> Iterator[Instruction]:
    """Returns the users, looking through ops that only rearrange elements."""
    for user in instruction.users:
        if user.opcode in ("reshape", "bitcast", "copy", "transpose", "pad"):
            yield from _users(user)
        else:
            yield user


def of_hloom(module: Module) -> Counted:
    return count(hloom.partition(module), {})


def of_xla(name: str, text: str, dumps: Path) -> Counted:
    """Counts the cheaper of XLA's two modules. Raises what XLA raises."""
    from support.xla_runner import compile_text

    for old in dumps.glob("*.txt"):
        old.unlink()
    compiled = compile_text(text, partitions=DEVICES).loaded.hlo_modules()[0].to_string()
    (partitioned,) = dumps.glob(f"*after_{PASS}.*.txt")
    texts = (compiled, partitioned.read_text())  # without the values of large constants
    modules = [hloom.parse(t, f"{name} by XLA", verify=False) for t in texts]
    return min((count(m, reduce_scatters(m)) for m in modules), key=_cost)


def _cost(counted: Counted) -> tuple[int, int]:
    return counted.bytes, counted.count


def measure(name: str, variants: list[Module], dumps: Path) -> Row:
    """Measures Hloom on the first variant of a program, XLA on the variant where it sends least."""
    ours = of_hloom(variants[0])
    found: list[Counted] = []
    failure = ""
    for variant in variants:
        try:
            found.append(of_xla(name, variant.to_text(), dumps))
        except RuntimeError as error:  # jaxlib's errors are RuntimeErrors
            failure = str(error).partition("\n")[0]
    return Row(name, ours, min(found, key=_cost, default=None), "" if found else failure)


def rows(arguments: argparse.Namespace, dumps: Path) -> Iterator[Row]:
    def wanted(name: str) -> bool:
        return not arguments.names or name in arguments.names

    for name, text in programs().items():
        if wanted(name) and not arguments.models:
            yield measure(name, [hloom.parse(text, name)], dumps)
    for name, make in models().items():
        if wanted(name) and not arguments.ops:
            try:
                program = with_fixed_ends(name, make())
                yield measure(name, [program, as_sharded(program)], dumps)
            except hloom.CompileError as error:
                print(f"{name}: Hloom cannot partition it: {error.diagnostics[0].message}", file=sys.stderr)


def show(rows: list[Row], kinds: bool) -> None:
    width = max(len(r.name) for r in rows)
    print(f"{'program'.ljust(width)}  bytes Hloom    bytes XLA  ratio  collectives Hloom / XLA")
    for row in rows:
        ratio = "    -" if row.ratio is None else f"{row.ratio:5.2f}"
        theirs = ("", "") if row.xla is None else (f"{row.xla.bytes:,}", str(row.xla.count))
        note = row.failure and f"  XLA fails: {row.failure[:60]}"
        print(f"{row.name.ljust(width)}  {row.hloom.bytes:11,}  {theirs[0]:>11}  {ratio}  {row.hloom.count:4} / "
              f"{theirs[1]:4}{note}".rstrip())
        if kinds:
            print(f"  Hloom {row.hloom.kinds}  XLA {row.xla.kinds if row.xla else None}")
    both = [(r.hloom, r.xla) for r in rows if r.xla is not None]
    _total("total", width, both)
    # A few programs in which XLA gathers everything must not dominate the others.
    _total("total where not half", width, [(h, x) for h, x in both if 2 * h.bytes >= x.bytes])
    fewer = sum(r.ratio is not None and r.ratio < 1 for r in rows)
    worse = [r for r in rows if r.is_worse]
    print(f"{len(rows)} programs: fewer bytes than XLA in {fewer}, more in {len(worse)}, "
          f"XLA fails in {sum(r.xla is None for r in rows)}")
    for row in worse:
        print(f"  more: {row.name}: {REASONS.get(row.name, 'NO WRITTEN REASON')}")


def _total(title: str, width: int, both: list[tuple[Counted, Counted]]) -> None:
    ours, theirs = sum(h.bytes for h, _ in both), sum(x.bytes for _, x in both)
    print(f"{title.ljust(width)}  {ours:11,}  {theirs:11,}  {ours / max(theirs, 1):5.2f}  "
          f"{sum(h.count for h, _ in both):4} / {sum(x.count for _, x in both)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("--models", action="store_true", help="only the models")
    parser.add_argument("--ops", action="store_true", help="only the programs of single ops")
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
        print(json.dumps([asdict(r) | {"ratio": r.ratio, "reason": REASONS.get(r.name)} for r in found], indent=1))
    else:
        show(found, arguments.kinds)


if __name__ == "__main__":
    main()
