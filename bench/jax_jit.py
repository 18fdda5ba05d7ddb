"""Prints the bytes that programs of JAX send, partitioned by Hloom (`hloom.jax.jit`) and by XLA (`jax.jit`).

    python bench/jax_jit.py [NAME ..]

The functions are those of tests/programs/sharded_jax_functions.py, on a mesh of 2 x 4 virtual devices. Bytes are those
that one device sends in all runs of the collectives of the per-device program: Hloom's before XLA's optimizations, and
both after them. Results that nobody annotates have the shardings that each chooses.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import hloom
import hloom.jax
from programs.sharded_jax_functions import FUNCTIONS
from support.virtual_devices import eight_devices

HEAD = ("function", "Hloom", "after XLA", "XLA", "compile s", "XLA's s")


def sent(text: str) -> int:
    """Returns the bytes that a device sends in a program that XLA has compiled."""
    return sum(c.sent_bytes for c in hloom.collectives(hloom.parse(text, verify=False)))


def row(name: str, mesh: Any) -> tuple[str, ...]:
    """Compiles one function both ways."""
    jax: Any = importlib.import_module("jax")
    case = FUNCTIONS[name](mesh)
    start = time.perf_counter()
    ours = hloom.jax.jit(case.function, mesh=mesh, **case.options).lower(*case.arguments).compile()
    text = ours.as_text()
    middle = time.perf_counter()
    theirs = jax.jit(case.function, **case.options).lower(*case.arguments).compile().as_text()
    end = time.perf_counter()
    counts = (sum(c.sent_bytes for c in ours.collectives), sent(text), sent(theirs))
    return (name, *(f"{n:,}" for n in counts), f"{middle - start:.2f}", f"{end - middle:.2f}")


def main() -> None:
    eight_devices()
    jax: Any = importlib.import_module("jax")
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    print("{:32} {:>12} {:>12} {:>12} {:>10} {:>10}".format(*HEAD))
    for name in sys.argv[1:] or FUNCTIONS:
        print("{:32} {:>12} {:>12} {:>12} {:>10} {:>10}".format(*row(name, mesh)), flush=True)


if __name__ == "__main__":
    main()
