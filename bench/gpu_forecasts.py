"""Compares forecasts for one GPU with what `gpu_measure.py` measured there.

    python bench/gpu_forecasts.py [NAME ..] [--machine 'h100;attention=0'] [--measured bench/measured/h100.jsonl]
    python bench/gpu_forecasts.py --export FOLDER       # writes the programs for gpu_measure.py

Needs JAX. JAX compiles attention of plain products op by op, so its scores are in memory here. Below each table stand
the median and the worst error, and Kendall's rank correlation. Rows of the table `kernels` may be fitted; the others
are held apart.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import hloom
import jax
import jax.export
from gpu_programs import GpuProgram, programs
from hloom.frontends.jax import from_jax
from hloom.report.measured import kendall

MEASURED = Path(__file__).parent / "measured" / "h100.jsonl"


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
    module = hloom.parse(from_jax(jitted, *program.arguments).to_text())
    hloom.strip_annotations(module)
    return module


def show(table: str, rows: list[tuple[str, float, float]]) -> None:
    """Prints a table."""
    print(f"{table:<34} {'measured':>12} {'forecast':>12} {'ratio':>6}")
    for name, measured, forecast in rows:
        print(f"{name:<34} {1e6 * measured:>9,.0f} us {1e6 * forecast:>9,.0f} us {forecast / measured:>6.2f}")
    errors = [abs(forecast / measured - 1) for _, measured, forecast in rows]
    tau = kendall([row[1] for row in rows], [row[2] for row in rows])
    print(f"{len(rows)} programs: error {statistics.median(errors):.0%} in the median, {max(errors):.0%} at worst; "
          f"rank correlation {'none' if tau is None else f'{tau:.2f}'}\n", flush=True)  # fmt: skip


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
    measured = {(line["table"], line["name"]): line["seconds"] for line in lines if "seconds" in line}
    machine = hloom.parse_machine(arguments.machine)
    tables: dict[str, list[Any]] = {}
    for program in chosen(arguments.names):
        seconds = measured.get((program.table, program.name))
        if seconds is not None:
            forecast = hloom.forecast(module_of(program), machine).seconds
            tables.setdefault(program.table, []).append((program.name, seconds, forecast))
    for table, rows in tables.items():
        show(table, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
