"""Proves XLA's own partitionings, and finds the wrong ones.

    python bench/prove_xla.py [FILE ..] [--count N] [--seed S] [--kinds K,..] [--out DIR] [--no-shrink]

Needs JAX. XLA simplifies a program, propagates its shardings and partitions it for virtual CPU devices; `hloom.prove`
compares the programs right before and right after XLA's partitioner. Without files the programs are those
of `tests`: small annotated ones (`ops`), models (`models`), JAX programs with random shardings (`jax`) and N random
programs from seed S on (`random`).

Each verdict is confirmed by numbers: XLA runs its partitioning and, on one device, the original. A program that differs
is made small while it still differs in both ways; its ops are printed in the table, its text goes to DIR. `FALSE ALARM`
marks a program that differs only in the proof, `MISSED` one that differs only in numbers. Programs with a reduction
that begins with another value than the identity are left out: how often that is added is XLA's choice.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import hloom
from hloom.ir.graph.interfaces import Applies
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.graph.monoid import identity, reduction_monoid
from hloom.ir.graph.op import Role
from hloom.ir.ops.structure import ConstantAttributes
from hloom.ir.sharding.sharding import TupleSharding
from hloom.ir.tools.spmd import parts
from hloom.passes.base import PassContext
from hloom.passes.cleanup.dce import DeadCodeElimination

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comm_programs.cases import programs as small_programs
from comm_programs.models import as_listed, models, with_fixed_ends
from programs.random.generate import program as random_program
from shrink import shrink
from support.xla_partitioner import DEVICES, XlaPartitioner, XlaRefusal, numbers_differ

TRIVIAL = {"parameter", "constant", "tuple", "get-tuple-element", "broadcast", "iota", "custom-call", "copy"}
KINDS = ("ops", "models", "jax", "random")


@dataclass(frozen=True)
class Row:
    """The result for one program. `numbers` says how far XLA's own runs agree with the verdict."""

    name: str
    verdict: str
    reason: str = ""
    numbers: str = ""
    ops: str = ""

    def __str__(self) -> str:
        return f"{self.name[:40]:40}  {self.verdict:8}  {self.numbers:11}  {self.ops or self.reason}".rstrip()


# -- programs


def wanted(arguments: argparse.Namespace) -> Iterator[tuple[str, Module]]:
    """The programs to prove, their shardings as XLA reads them."""
    for path in arguments.files:
        module = hloom.load(path)
        module.num_partitions = max([module.num_partitions, *_mesh_sizes(module)])
        yield Path(path).stem, module
    kinds = () if arguments.files else arguments.kinds
    if "ops" in kinds:
        yield from ((name, hloom.parse(text, name)) for name, text in small_programs().items())
    if "models" in kinds:
        yield from ((name, with_fixed_ends(name, make())) for name, make in models().items())
    if "jax" in kinds:
        from support.sharded_jax import sharded_jax_programs

        yield from sharded_jax_programs(arguments.seed)
    if "random" in kinds:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            yield f"random {seed}", random_program(random.Random(seed).randint)


def _mesh_sizes(module: Module) -> Iterator[int]:
    """The sizes of the meshes of all shardings."""
    annotations = (i.annotation for computation in module for i in computation)
    yield from (s.mesh.size for a in annotations for s in parts(a) if s.mesh is not None)


# -- proving


def by_xla(module: Module, xla: XlaPartitioner) -> tuple[Module, Module]:
    """XLA's simplified program, with shardings, and its program per device. Raises XlaRefusal."""
    texts = xla.partition(module.to_text(), module.num_partitions)
    simple, local = (hloom.parse(text, module.name) for text in texts)
    return simple, local


def verdicts(module: Module, local: Module, trials: int = 4) -> list[tuple[int | None, hloom.Verdict]]:
    """The verdict on all results (None); where an op is not covered, those on each result."""
    verdict = hloom.prove(module, local, trials)
    root = module.entry.root
    count = len(root.operands) if root.op.role is Role.TUPLE else 0
    if verdict.outcome != "unproved" or count < 2 or local.entry.root.op.role is not Role.TUPLE:
        return [(None, verdict)]
    return [(n, hloom.prove(_result(module, n), _result(local, n), trials)) for n in range(count)]


def _result(module: Module, number: int) -> Module:
    """The program with one of its results alone."""
    part = clone_module(module)
    root, sharding = part.entry.root, part.entry.root.sharding
    made = part.entry.build("tuple", root.operands[number])
    if isinstance(sharding, TupleSharding):
        made.sharding = TupleSharding((sharding.elements[number],))
    part.entry.root, part.entry_layout = made, None
    DeadCodeElimination().run(part, PassContext())
    return part


def prove(name: str, module: Module, xla: XlaPartitioner) -> list[Row]:
    """Proves XLA's partitioning of a program."""
    try:
        found = verdicts(*by_xla(module, xla))
        numbers = numbers_differ(module, xla)
    except XlaRefusal as error:
        return [Row(name, "refused", str(error)[:90])]
    except hloom.CompileError as error:
        return [Row(name, "unread", error.diagnostics[0].message[:90])]
    rows: list[Row] = []
    for number, verdict in found:
        differ = bool(numbers) if number is None else number in numbers
        mark = "differ" if differ else "agree"
        if verdict.outcome == "differs" and not differ:
            mark = "FALSE ALARM"
        elif verdict.outcome == "equal" and differ:
            mark = "MISSED"
        title = name if number is None else f"{name} [{number}]"
        rows.append(Row(title, verdict.outcome, "" if verdict.is_equal else str(verdict)[:120], mark))
    return rows


def fails(given: Module, xla: XlaPartitioner) -> Callable[[Module], str | None]:
    """Whether XLA's partitioning differs, by the proof and by numbers, in a program that applies what `given` does."""
    allowed = _applied(given)

    def differs(module: Module) -> str | None:
        try:
            if not _applied(module) <= allowed or begins_elsewhere(module):
                return None
            if all(v.outcome != "differs" for _, v in verdicts(*by_xla(module, xla), trials=2)):
                return None
            return "differs" if numbers_differ(module, xla) else None
        except (XlaRefusal, hloom.CompileError):
            return None

    return differs


def _applied(module: Module) -> set[tuple[str, ...]]:
    """The computations that are applied to elements: a sum may not become a difference, which has no one result."""
    found = [c for computation in module for i in computation if i.op.interface(Applies) for c in i.called()]
    return {tuple(f"{i.opcode} {i.shape.without_layout()} {i.attributes}" for i in c) for c in found}


def begins_elsewhere(module: Module) -> bool:
    """Whether a reduction begins with a constant that is not the identity of its monoid."""
    for i in (i for computation in module for i in computation if i.op.interface(Applies)):
        monoid = reduction_monoid(i.called()[0])
        if monoid is None:
            continue
        for start in (o for o in i.operands if o.shape.rank == 0 and o.op.role is Role.CONSTANT):
            if start.attributes_as(ConstantAttributes).literal.array != identity(monoid, start.shape.element):
                return True
    return False


def at_fault(module: Module, xla: XlaPartitioner, file: Path | None) -> str:
    """The ops of the program made small while it differs; empty if it does not in few trials."""
    try:
        small = shrink(module, fails(module, xla))
    except ValueError:
        return ""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(small.to_text())
    ops = dict.fromkeys(i.opcode for i in small.entry if i.opcode not in TRIVIAL)
    return ", ".join(ops) or "resharding"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="annotated HLO text; without files, programs of tests")
    parser.add_argument("--count", type=int, default=100, help="number of random programs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first random program")
    parser.add_argument("--kinds", default=",".join(KINDS), type=lambda text: text.split(","), help=", ".join(KINDS))
    parser.add_argument("--out", type=Path, help="folder for small programs that differ")
    parser.add_argument("--no-shrink", action="store_true", help="do not make programs that differ small")
    arguments = parser.parse_args()
    print(f"jaxlib {version('jaxlib')}, up to {DEVICES} devices")
    print(f"{'program':40}  {'verdict':8}  {'numbers':11}  ops at fault, or reason")
    counts = Counter[str]()
    with XlaPartitioner() as xla:
        for name, given in wanted(arguments):
            module, ops = as_listed(given), ""
            if begins_elsewhere(module):
                counts["left out"] += 1
                continue
            for row in prove(name, module, xla):
                counts[f"{row.verdict}, numbers {row.numbers}" if row.numbers else row.verdict] += 1
                if row.numbers == "differ" and row.verdict == "differs" and not arguments.no_shrink and not ops:
                    ops = at_fault(module, xla, arguments.out and arguments.out / f"{name.replace(' ', '_')}.hlo")
                row = replace(row, ops=ops if row.verdict == "differs" else "")
                if row.verdict != "equal" or row.numbers != "agree" or arguments.files:
                    print(row, flush=True)
    print("; ".join(f"{count} {what}" for what, count in counts.most_common()))


if __name__ == "__main__":
    main()
