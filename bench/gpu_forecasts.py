"""Compares forecasts for one GPU with what `gpu_measure.py` measured there.

    python bench/gpu_forecasts.py [NAME ..] [--machine 'h100;attention=0'] [--measured bench/measured/h100.jsonl]
    python bench/gpu_forecasts.py --export FOLDER       # writes the programs for gpu_measure.py

Needs JAX. JAX compiles attention of plain products op by op, so its scores are in memory here. Beside the seconds
stands the ratio of the peaks of memory: forecast, and allocated by XLA for arguments, results and temporaries. Below
each table stand the median and the worst error, and Kendall's rank correlation. Rows of the table `kernels` may be
fitted; the others are held apart. A call takes 35 to 45 us on the host, which is no part of a step: rows that take
less than `LONG` are not counted in the second line.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import hloom
import jax
import jax.export
from gpu_programs import GpuProgram, programs
from hloom.frontends.jax import from_jax
from hloom.report.measured import kendall

MEASURED = Path(__file__).parent / "measured" / "h100.jsonl"
LONG = 150e-6


class Row(NamedTuple):
    """A program: seconds and bytes at the peak, measured and forecast."""

    name: str
    seconds: float
    forecast: float
    peak: int
    forecast_peak: int

    @property
    def error(self) -> float:
        return abs(self.forecast / self.seconds - 1)

    @property
    def error_of_peak(self) -> float:
        return abs(self.forecast_peak / self.peak - 1)


def export(folder: Path, names: list[str]) -> None:
    """Writes programs as JAX exports them, each with its name and the numbers of the leaves that it overwrites."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, program in enumerate(chosen(names)):
        jitted = jax.jit(program.function, keep_unused=True)
        exported = jax.export.export(jitted, platforms=["cuda"])(*program.arguments)
        path = folder / f"{number:03} {program.table} {program.name}".replace(" ", "_").replace(",", "")
        path.with_suffix(".export").write_bytes(exported.serialize())
        path.with_suffix(".json").write_text(json.dumps(
            {"table": program.table, "name": program.name, "donated": donated_leaves(program)}))  # fmt: skip


def donated_leaves(program: GpuProgram) -> list[int]:
    """Returns the numbers of the leaves of the donated arguments."""
    counts = [len(jax.tree.leaves(argument)) for argument in program.arguments]
    return [n for place in program.donated for n in range(sum(counts[:place]), sum(counts[: place + 1]))]


def chosen(names: list[str]) -> list[GpuProgram]:
    """Returns the programs with such names, or all."""
    return [p for p in programs() if not names or any(name in f"{p.table} {p.name}" for name in names)]


def module_of(program: GpuProgram) -> hloom.Module:
    """Returns a program without shardings."""
    jitted = jax.jit(program.function, donate_argnums=program.donated, keep_unused=True)
    module = hloom.parse(from_jax(jitted, *program.arguments, platform="cuda").to_text())
    hloom.strip_annotations(module)
    return module


def show(table: str, rows: list[Row]) -> None:
    """Prints a table."""
    print(f"{table:<34} {'measured':>12} {'forecast':>12} {'ratio':>6} {'peak':>9} {'ratio':>6}")
    for row in rows:
        print(f"{row.name:<34} {1e6 * row.seconds:>9,.0f} us {1e6 * row.forecast:>9,.0f} us "
              f"{row.forecast / row.seconds:>6.2f} {row.peak / 1e6:>6,.0f} MB {row.forecast_peak / row.peak:>6.2f}")
    tau = kendall([row.seconds for row in rows], [row.forecast for row in rows])
    print(f"{len(rows)} programs: error {_errors([row.error for row in rows])}; "
          f"rank correlation {'none' if tau is None else f'{tau:.2f}'}")  # fmt: skip
    long = [row.error for row in rows if row.seconds >= LONG]
    if 0 < len(long) < len(rows):
        print(f"{len(long)} of {1e6 * LONG:.0f} us and more: error {_errors(long)}")
    print(f"peak of memory: error {_errors([row.error_of_peak for row in rows])}\n", flush=True)


def _errors(errors: list[float]) -> str:
    return f"{statistics.median(errors):.0%} in the median, {max(errors):.0%} at worst"


def main() -> int:
    """Reads the arguments and prints tables, or writes programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of programs")
    parser.add_argument("--machine", default="h100;attention=0")
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--export", type=Path)
    arguments = parser.parse_args()
    if arguments.export:
        export(arguments.export, arguments.names)
        return 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in arguments.measured.read_text().splitlines()]
    measured = {(line["table"], line["name"]): (line["seconds"], line["peak"]) for line in lines if "seconds" in line}
    machine = hloom.parse_machine(arguments.machine)
    tables: dict[str, list[Row]] = {}
    for program in chosen(arguments.names):
        found = measured.get((program.table, program.name))
        if found is not None:
            seconds, peak = found
            forecast = hloom.forecast(module_of(program), machine)
            row = Row(program.name, seconds, forecast.seconds, peak, forecast.peak)
            tables.setdefault(program.table, []).append(row)
    for table, rows in tables.items():
        show(table, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
