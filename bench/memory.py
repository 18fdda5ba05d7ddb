"""Compares live memory by Hloom with what XLA says of the programs that it compiled.

    python bench/memory.py [NAME ..] [--models] [--json]

Needs JAX. The programs are the JAX programs of the tests, on one device; with --models those of realistic.py and the
models of examples/models at their small size instead, partitioned by Hloom for eight devices. Parameters and results
must be the same bytes. Temporary bytes come from four places: XLA's own figure for its compiled program
(`memory_analysis`), Hloom's for that same compiled program (fusions and order are XLA's, so this shows what the
analysis itself misses), for the program as it is written, and for that after Hloom's fusion.

The peak is all memory at once: XLA's arguments, results that lie nowhere in them, and temporary bytes, beside what
`hloom forecast` says, which counts the values that a machine stores after it has fused the program.

Differences are expected because XLA for CPU copies states of loops, aligns each buffer, has holes in its one block,
lets a fusion of element-wise ops write over its operand, and holds temporary values where results will lie. Ratios of
programs with little memory say little. XLA's results have tables of addresses (8 bytes per element of a tuple), left
out here.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hloom
from hloom.cost.machine import DEFAULT
from hloom.cost.seconds import Clock
from hloom.ir.graph.module import Module
from hloom.ir.types.shape import Shape
from hloom.passes.cleanup.equal_computations import EqualComputations
from hloom.passes.fusion.fuse import FusionPass

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from models import MODELS
from realistic import PROGRAMS as REALISTIC

_MOST = 60  # programs
_SMALL = 1024  # temporary bytes below which a ratio says nothing


@dataclass(frozen=True, slots=True)
class Row:
    """Bytes of one program: parameters and results by both, temporary memory by XLA and by Hloom of three programs, and
    the peak by Hloom and by XLA.
    """

    name: str
    parameters: tuple[int, int]
    results: tuple[int, int]
    xla: int
    compiled: int
    written: int
    fused: int
    peak: tuple[int, int]

    @property
    def ratio(self) -> float | None:
        """Hloom's figure over XLA's, for the program that XLA compiled; None for small ones."""
        return self.compiled / self.xla if self.xla >= _SMALL else None


def measure(name: str, module: Module, text: str) -> Row:
    """Measures a program per device, which XLA gets as a text for all devices."""
    from support.xla_runner import compile_text

    loaded: Any = compile_text(text, partitions=module.num_partitions).loaded
    stats: Any = loaded.get_compiled_memory_stats()
    compiled = hloom.live_memory(hloom.parse(loaded.hlo_modules()[0].to_string(), f"{name} compiled", verify=False))
    written, peak = hloom.live_memory(module), hloom.live_memory(module, Clock.of(module, DEFAULT)).peak
    for rewrite in (EqualComputations(), FusionPass()):
        rewrite.run(module, hloom.PassContext())
    return Row(
        name, (written.parameters, stats.argument_size_in_bytes),
        (written.results, stats.output_size_in_bytes - _table(module.entry.root.shape)),
        stats.temp_size_in_bytes, compiled.temporary, written.temporary, hloom.live_memory(module).temporary,
        (peak, stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
         - _table(module.entry.root.shape) + stats.temp_size_in_bytes),
    )  # fmt: skip


def _table(shape: Shape) -> int:
    """Returns the bytes of a tuple's table of addresses."""
    return 8 * len(shape.elements) + sum(map(_table, shape.elements))


def programs(models: bool) -> Iterator[tuple[str, Callable[[], tuple[Module, str]]]]:
    """Yields names of programs, and functions that make them: per device, and as XLA compiles them."""
    if models:
        for name, text in REALISTIC.items():
            yield name, partial(_partitioned, name, text)
        for name, model in MODELS.items():
            yield name, partial(_partitioned, name, lambda model=model: model.small().module.to_text())
        return
    from programs.jax_programs import PROGRAMS, text_of

    importlib.import_module("programs.linear_algebra_programs")  # adds to PROGRAMS
    for name in sorted(PROGRAMS):
        yield name, partial(_single, name, lambda name=name: text_of(PROGRAMS[name]()))


def _partitioned(name: str, text: Callable[[], str]) -> tuple[Module, str]:
    local = hloom.partition(hloom.parse(text().replace("bf16[", "f32["), name))  # XLA computes bf16 in f32 on CPUs
    return local, hloom.export(local).to_text()


def _single(name: str, text: Callable[[], str]) -> tuple[Module, str]:
    found = text()
    return hloom.parse(found, name), found


def show(rows: list[Row]) -> None:
    """Prints a line per program, then the geometric mean and the extremes of the ratios."""
    width = max(len(row.name) for row in rows)
    print(f"{'program'.ljust(width)}  parameters Hloom / XLA   results Hloom / XLA  temporary XLA    of XLA's    ratio"
          "  as written       fused  peak Hloom / XLA, ratio")
    for row in rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{row.name.ljust(width)}  {row.parameters[0]:10,} / {row.parameters[1]:10,} {row.results[0]:9,} / "
              f"{row.results[1]:9,}  {row.xla:13,}  {row.compiled:10,}  {ratio:>7}  {row.written:10,}  {row.fused:10,}"
              f"  {row.peak[0]:11,} / {row.peak[1]:11,} {row.peak[0] / max(row.peak[1], 1):6.2f}")
    ratios = {row.name: row.ratio for row in rows if row.ratio}
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        least, most = (pick(ratios, key=lambda name: ratios[name]) for pick in (min, max))
        print(f"{len(rows)} programs; of {len(ratios)} with at least {_SMALL} temporary bytes, Hloom over XLA: mean "
              f"{mean:.2f}, least {ratios[least]:.2f} ({least}), most {ratios[most]:.2f} ({most})")
    errors = {row.name: abs(row.peak[0] / row.peak[1] - 1) for row in rows if row.peak[1]}
    worst = max(errors, key=errors.__getitem__)
    print(f"peak: error {statistics.median(errors.values()):.1%} in the median, {errors[worst]:.0%} at worst ({worst})"
          f", {sum(e > 0.35 for e in errors.values())} of {len(errors)} programs above 35 %")
    different = [row.name for row in rows if row.parameters[0] != row.parameters[1] or row.results[0] != row.results[1]]
    print(f"other parameters or results: {', '.join(different) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("--models", action="store_true", help="models of realistic sizes on eight devices")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    rows: list[Row] = []
    chosen = [(n, make) for n, make in programs(arguments.models) if n in arguments.names or not arguments.names]
    for name, make in chosen[:_MOST]:
        try:
            rows.append(measure(name, *make()))
        except (RuntimeError, hloom.CompileError) as error:  # jaxlib's errors are RuntimeErrors
            print(f"{name}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1))
    elif rows:
        show(rows)


if __name__ == "__main__":
    main()
