"""Measures the speed of Hloom's parser, printer and interpreter, and of XLA's C++ parser in the same run.

    python bench/parse.py [--runs 5] [--layers 54] [--constants 28]

Needs JAX. (a) The training step of a transformer of many layers, from `examples/make_transformer.py`; (b) a program of
large constants of several types. Hloom and XLA (`jaxlib._hlo`) read and print both; times are medians of several runs
after one that does not count. XLA's parser verifies nothing: it accepts `MISTAKES`, which Hloom's verifier refuses, as
is checked before the table. So `parse` compares like with like, and nothing of XLA is like `parse + verify`. (c) The
interpreter's overhead over numpy's own time, per instruction, on small arrays: a chain of instructions is evaluated,
and the same chain is written out in numpy.
"""

# jaxlib's internal modules have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloom
import ml_dtypes
import numpy as np
from hloom import frontends
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.runtime.fabric.local import LocalFabric
from hloom.runtime.plan.executable import Executable
from timing import median

MAKER = Path(__file__).parents[1] / "examples" / "make_transformer.py"
CHAIN = 1000  # instructions of a chain
Array = np.ndarray[Any, Any]
MISTAKES = {
    "operands of two shapes": "a = f32[8] parameter(0) b = f32[4] parameter(1) ROOT c = f32[8] add(a, b)",
    "another result shape": "a = f32[8] parameter(0) ROOT c = f32[4] negate(a)",
    "a dimension that is not there": "a = f32[8] parameter(0) ROOT c = f32[8,2] broadcast(a), dimensions={5}",
    "a sharding of two dimensions": "a = f32[8] parameter(0), sharding={devices=[2,2]<=[4]} ROOT c = f32[8] negate(a)",
}
"""Programs that a verifier refuses."""


def training_step(layers: int) -> str:
    """Returns the HLO text of a transformer's training step."""
    command = [sys.executable, str(MAKER), "--layers", str(layers)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def constants(megabytes: int) -> str:
    """Returns the text of a program with about this many megabytes of constants."""
    rng = np.random.default_rng(0)
    module = hloom.Module("constants")
    entry = module.new_computation("main", entry=True)
    rows = max(1, megabytes * 16)
    values = [
        rng.standard_normal((rows, 1024)).astype(np.float32),
        rng.standard_normal((rows, 512)),
        rng.integers(-(2**31), 2**31, (rows, 1024)).astype(np.int32),
        rng.standard_normal((rows, 1024)).astype(ml_dtypes.bfloat16),
        rng.integers(0, 2, (rows, 1024)).astype(np.bool_),
        rng.integers(0, 256, (rows, 512)).astype(np.uint8),
    ]
    entry.root = entry.build("tuple", *[entry.constant(value) for value in values])
    return module.to_text()


def check_that_xla_verifies_nothing() -> None:
    """Raises AssertionError unless both parsers accept programs that Hloom's verifier refuses."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    for what, lines in MISTAKES.items():
        text = f"HloModule wrong, num_partitions=4\nENTRY e {{ {lines} }}"
        hlo.hlo_module_from_text(text)
        frontends.parse(text, verify=False)
        try:
            hloom.parse(text)
        except hloom.CompileError:
            continue
        raise AssertionError(f"Hloom accepts {what}")


def compare(name: str, text: str, runs: int) -> None:
    """Prints the rows of one program."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    ours, theirs = hloom.parse(text), hlo.hlo_module_from_text(text)
    megabytes = len(text) / 1e6
    instructions = sum(len(c) for c in ours)
    print(f"{name}: {megabytes:.1f} MB, {instructions} instructions")
    rows: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("parse", lambda: frontends.parse(text, verify=False), lambda: hlo.hlo_module_from_text(text)),
        ("parse + verify", lambda: frontends.parse(text), lambda: hlo.hlo_module_from_text(text)),
        ("print", ours.to_text, lambda: theirs.to_string(options)),
    ]
    for what, mine, other in rows:
        own, xla = median(mine, runs), median(other, runs)
        note = "  XLA without a verifier" if what == "parse + verify" else ""
        print(f"  {what:15} {megabytes / own:8.1f} {megabytes / xla:9.1f} {own / xla:7.2f}{note}")


# One instruction of a chain as HLO, from f32[8] to f32[8], and in numpy.
ZERO, HALF = np.zeros((), np.float32), np.full(8, 0.5, np.float32)
MATRIX = np.eye(8, dtype=np.float32)
STEPS: dict[str, tuple[str, Callable[[Array], Any]]] = {
    "add": ("add({x}, half)", lambda x: x + HALF),
    "tanh": ("tanh({x})", np.tanh),
    "reshape": ("reshape({x})", lambda x: x.reshape(8)),
    "reverse": ("reverse({x}), dimensions={{0}}", lambda x: np.flip(x, 0)),
    "dot": ("dot({x}, matrix), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}", lambda x: x @ MATRIX),
    "select": ("select(true, {x}, half)", lambda x: np.where(TRUE, x, HALF)),
    "dynamic-slice": ("dynamic-slice({x}, zero), dynamic_slice_sizes={{8}}", lambda x: x[0:8]),
    "call": ("call({x}), to_apply=negate", np.negative),
}
TRUE = np.ones(8, np.bool_)


def chain(step: str) -> str:
    """Returns a program that repeats a step."""
    lines = ["HloModule chain", "negate { p = f32[8] parameter(0) ROOT n = f32[8] negate(p) }", "ENTRY main {"]
    lines += ["  x0 = f32[8] parameter(0)", "  half = f32[8] parameter(1)", "  matrix = f32[8,8] parameter(2)"]
    lines += ["  zero = s32[] constant(0)", "  %true = pred[8] constant({1,1,1,1,1,1,1,1})"]
    for n in range(CHAIN):
        inside = step.format(x=f"x{n}").replace("true,", "%true,")
        lines.append(f"  {'ROOT ' if n == CHAIN - 1 else ''}x{n + 1} = f32[8] {inside}")
    return "\n".join([*lines, "}"])


def interpreter(runs: int) -> None:
    """Prints the overhead of an evaluated instruction over numpy's time."""
    print(f"interpreter, microseconds per instruction on f32[8] ({CHAIN} in a chain)")
    print("  op                  Hloom     numpy    overhead")
    start = np.linspace(0, 1, 8, dtype=np.float32)
    for name, (step, function) in STEPS.items():
        program = Executable(hloom.parse(chain(step)), ProcessGrid())
        fabric = LocalFabric()

        def plain(function: Callable[[Array], Any] = function) -> Array:
            x = start
            for _ in range(CHAIN):
                x = function(x)
            return x

        def evaluated(program: Any = program, fabric: Any = fabric) -> Array:
            return program.run([0], [[start, HALF, MATRIX]], fabric)[0][0]

        assert np.allclose(evaluated(), plain())
        ours, numpy = (median(f, runs) / CHAIN * 1e6 for f in (evaluated, plain))
        print(f"  {name:15} {ours:9.2f} {numpy:9.2f} {ours - numpy:11.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=54, help="layers of the transformer (54: 5 MB of text)")
    parser.add_argument("--constants", type=int, default=28, metavar="MB",
                        help="size of the program of constants, about (28: 21 MB of text)")
    arguments = parser.parse_args()
    check_that_xla_verifies_nothing()
    print("MB/s                 Hloom       XLA   times as long as XLA")
    compare("transformer training step", training_step(arguments.layers), arguments.runs)
    compare("large constants", constants(arguments.constants), arguments.runs)
    interpreter(arguments.runs)


if __name__ == "__main__":
    main()
