"""Compares forecasts of memory with what XLA for CPUs allocates.

    python bench/memory.py [NAME ..] [--json]

Needs JAX. XLA compiles the program of each device that Hloom made, and says what it allocates (`memory_analysis`):
arguments, results that do not lie in them, and temporary memory in one block. Beside it stand forecasts of the program
as Hloom made it: on the machine `xla-cpu` (`hloom.xla_memory`), and of the kernels of the default machine; and what the
analysis of live memory says of the program that XLA made, with its fusions and its order.

The programs are models and kernels at sizes that people run (`realistic`), models between the small ones and those of
papers and functions of JAX (`memory_programs`), by which the rules of XLA's memory were found, and functions that were
written after that (`memory_held_apart`; two rules came from them). All take a megabyte or more. What XLA's library
allocates while it runs, it does not state: a program that consists of one call of it says nothing (`HIDDEN`). XLA's
block has holes, which are not forecast.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import argparse
import json
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

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

HIDDEN = {"convolutions": "both convolutions are one call of the library, whose memory XLA does not state"}
KNOWN, LATER = "known", "held apart"


@dataclass(frozen=True, slots=True)
class Row:
    """The peak of one program in bytes: by XLA, in the forecast, of the default machine's kernels, and by the analysis
    of the program that XLA made.
    """

    name: str
    kind: str
    xla: int
    forecast: int
    kernels: int
    compiled: int

    @property
    def ratio(self) -> float:
        return self.forecast / self.xla


def measure(name: str, kind: str, module: Module) -> Row:
    """Measures the program of a device."""
    from support.xla_runner import compile_text

    loaded: Any = compile_text(hloom.export(module).to_text(), partitions=module.num_partitions).loaded
    stats: Any = loaded.get_compiled_memory_stats()
    results = stats.output_size_in_bytes - stats.alias_size_in_bytes - _table(module.entry.root.shape)
    found, compiled = hloom.xla_memory(module), hloom.parse(loaded.hlo_modules()[0].to_string(), name, verify=False)
    if found.parameters != stats.argument_size_in_bytes:
        raise RuntimeError(f"XLA has other arguments: {stats.argument_size_in_bytes} bytes, not {found.parameters}")
    return Row(name, kind, stats.argument_size_in_bytes + results + stats.temp_size_in_bytes, found.peak,
               hloom.live_memory(module, Clock.of(module, DEFAULT)).peak, hloom.live_memory(compiled).peak)  # fmt: skip


def _table(shape: Shape) -> int:
    """Returns the bytes of a tuple's table of addresses, which XLA counts."""
    return 8 * len(shape.elements) + sum(map(_table, shape.elements))


def programs() -> Iterator[tuple[str, str, Callable[[], Module]]]:
    """Yields names and kinds of programs, and functions that make the program of a device."""
    from memory_held_apart import HELD_APART
    from memory_programs import CASES, MODELS
    from realistic import PROGRAMS

    for name, text in PROGRAMS.items():
        yield name, KNOWN, partial(_partitioned, text)
    for name, model in MODELS.items():
        yield name, KNOWN, partial(_partitioned, lambda model=model: model().module.to_text())
    for kind, makers in ((KNOWN, CASES), (LATER, HELD_APART)):
        for make in makers:
            yield make.__name__.strip("_").replace("_", " "), kind, partial(_partitioned, partial(_lowered, make))


def _lowered(make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]) -> str:
    from hloom.frontends.jax import from_jax

    function, arguments = make()
    return from_jax(function, *arguments).to_text()


def _partitioned(text: Callable[[], str]) -> Module:
    return hloom.partition(hloom.parse(text().replace("bf16[", "f32[")))  # XLA computes bf16 in f32 on CPUs


def show(rows: list[Row]) -> None:
    """Prints a line per program, then the errors of each kind."""
    width = max(len(row.name) for row in rows)
    print(f"{'program':{width}} {'XLA':>14} {'forecast':>14} {'ratio':>6} {'kernels':>8} {'of XLA':>7}")
    for row in rows:
        print(f"{row.name:{width}} {row.xla:>14,} {row.forecast:>14,} {row.ratio:>6.2f} {row.kernels / row.xla:>8.2f} "
              f"{row.compiled / row.xla:>7.2f}  {HIDDEN.get(row.name, '')}")  # fmt: skip
    counted = [row for row in rows if row.name not in HIDDEN]
    for kind, chosen in {KNOWN: [r for r in counted if r.kind == KNOWN], LATER: [r for r in counted if r.kind == LATER],
                         "all": counted}.items():  # fmt: skip
        if chosen:
            errors = {row.name: abs(row.ratio - 1) for row in chosen}
            worst = max(errors, key=errors.__getitem__)
            before = [abs(row.kernels / row.xla - 1) for row in chosen]
            print(f"{kind}: {len(chosen)} programs, error {statistics.median(errors.values()):.1%} in the median, "
                  f"{errors[worst]:.0%} at worst ({worst}), {sum(e > 0.1 for e in errors.values())} above 10 %; of "
                  f"kernels {statistics.median(before):.1%} and {max(before):.0%}")  # fmt: skip


def main() -> None:
    """Reads the arguments and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    rows: list[Row] = []
    for name, kind, make in programs():
        if name in arguments.names or not arguments.names:
            try:
                rows.append(measure(name, kind, make()))
            except (RuntimeError, hloom.CompileError) as error:  # jaxlib's errors are RuntimeErrors
                print(f"{name}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1))
    elif rows:
        show(rows)


if __name__ == "__main__":
    main()
