"""Prints how long calls of compiled functions take, with `hloom.jax.jit` and with `jax.jit`.

    python bench/jax_latency.py

Each row is a function that does almost nothing, so that what is measured is the call. Times are the fastest of several
rounds, in which the two take turns to be first; the ratio is Hloom's through JAX's. The column `again` has the ratio of
another function of `jax.jit`, measured alike: how far a ratio of equals is from one on this machine.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import hloom.jax
from support.virtual_devices import eight_devices

ROUNDS, CALLS = 40, 200


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """Returns functions with arguments and options of `jax.jit`."""
    jax: Any = importlib.import_module("jax")
    sharding = jax.sharding
    mesh = jax.make_mesh((8,), ("d",), axis_types=(sharding.AxisType.Auto,))
    x = jax.device_put(jax.numpy.ones(8), sharding.NamedSharding(mesh, sharding.PartitionSpec("d")))
    many = {f"p{n}": x + n for n in range(64)}
    return {
        "one array, one device": (lambda x: x + 1, (jax.numpy.ones(8),), {}),
        "one array, eight devices": (lambda x: x + 1, (x,), {}),
        "64 arrays in a dictionary, eight devices": (lambda t: {k: v + 1 for k, v in t.items()}, (many,), {}),
        "a static argument and a number": (lambda n, x, y: x[:n] + y, (3, jax.numpy.ones(8), 2.0),
                                           {"static_argnums": 0}),
    }  # fmt: skip


def seconds(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Returns how long a call takes until it returns, and its result is there."""
    jax: Any = importlib.import_module("jax")
    start = time.perf_counter()
    found = [function(*arguments) for _ in range(CALLS)]
    jax.block_until_ready(found)
    return (time.perf_counter() - start) / CALLS


def main() -> None:
    eight_devices()
    jax: Any = importlib.import_module("jax")
    print(f"{'call':45} {'Hloom us':>9} {'JAX us':>9} {'ratio':>6} {'again':>6}")
    for name, (function, arguments, options) in cases().items():
        doors = [door(lambda *args, f=function: f(*args), **options) for door in (hloom.jax.jit, jax.jit, jax.jit)]
        best = [float("inf")] * len(doors)
        for number in range(ROUNDS):
            for turn in range(len(doors)):
                which = (number + turn) % len(doors)
                best[which] = min(best[which], seconds(doors[which], arguments))
        ours, theirs, again = best
        print(f"{name:45} {ours * 1e6:9.1f} {theirs * 1e6:9.1f} {ours / theirs:6.2f} {again / theirs:6.2f}", flush=True)


if __name__ == "__main__":
    main()
