"""Measures exported programs on the first GPU of this machine, by JAX alone: no part of Hloom is needed there.

    python bench/gpu_forecasts.py --export FOLDER       # where Hloom is
    python gpu_measure.py FOLDER OUT.json [NAME ..]     # where the GPU is

A program's calls follow each other without waiting, and the last one is awaited; the least seconds per call of five
rounds count. Arguments are random numbers of little size, and small integers. Those that a program may overwrite are
copied before each call, one call is timed by itself then, and the least of five counts. The file has a line of JSON per
program: its name, the seconds, the bytes at the peak as XLA counts them, and the kernels that ran.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

ROUNDS, LEAST = 5, 0.05


def argument(aval: Any, number: int) -> Any:
    """Returns an array on the device."""
    key = jax.random.key(number)
    if jnp.issubdtype(aval.dtype, jnp.integer):
        return jax.random.randint(key, aval.shape, 0, 64, aval.dtype)
    if aval.dtype == bool:
        return jax.random.bernoulli(key, 0.5, aval.shape)
    return (0.02 * jax.random.normal(key, aval.shape, jnp.float32)).astype(aval.dtype)


def compiled(path: Path) -> tuple[Any, list[Any], tuple[int, ...]]:
    """Compiles a program. Returns the executable, its arguments' types, and the numbers of those that it overwrites."""
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    given = json.loads(path.with_suffix(".json").read_text())
    donated = tuple(given["donated"])

    def flat(*values: Any) -> Any:
        arguments, named = jax.tree.unflatten(exported.in_tree, values)
        return exported.call(*arguments, **named)

    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.in_avals]
    return jax.jit(flat, donate_argnums=donated, keep_unused=True).lower(*types).compile(), types, donated


def seconds_of(run: Any, types: list[Any], donated: tuple[int, ...]) -> float:
    """Returns the least seconds of a call."""
    values = jax.block_until_ready([argument(aval, number) for number, aval in enumerate(types)])
    if donated:
        return min(_alone(run, values, donated) for _ in range(ROUNDS))
    jax.block_until_ready(run(*values))
    count, least = 1, float("inf")
    while count < 4096:
        least = _together(run, values, count)
        if least * count > LEAST:
            break
        count *= 2
    return min(least, *(_together(run, values, count) for _ in range(ROUNDS)))


def _alone(run: Any, values: list[Any], donated: tuple[int, ...]) -> float:
    given = [v.copy() if n in donated else v for n, v in enumerate(values)]
    jax.block_until_ready(given)
    start = time.perf_counter()
    jax.block_until_ready(run(*given))
    return time.perf_counter() - start


def _together(run: Any, values: list[Any], count: int) -> float:
    start = time.perf_counter()
    last: Any = None
    for _ in range(count):
        last = run(*values)
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / count


def kernels_of(run: Any) -> int:
    """Counts the instructions of the entry that XLA launches."""
    text = run.as_text()
    entry = text[text.index("\nENTRY") :]
    free = (" parameter(", " tuple(", " get-tuple-element(", " bitcast(", " constant(")
    return sum(" = " in line and not any(word in line for word in free) for line in entry.splitlines())


def main(folder: str, out: str, *names: str) -> int:
    """Measures the programs of a folder, or those with such names."""
    print(jax.__version__, jax.devices()[0].device_kind, flush=True)
    paths = [p for p in sorted(Path(folder).glob("*.export")) if not names or any(n in p.stem for n in names)]
    start = time.perf_counter()
    with ThreadPoolExecutor(12) as pool, Path(out).open("a") as file:
        pending = [(path, pool.submit(compiled, path)) for path in paths]
        for _, future in pending:
            future.exception()
        print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
        for path, future in pending:
            given = json.loads(path.with_suffix(".json").read_text())
            line: dict[str, Any] = {"table": given["table"], "name": given["name"]}
            try:
                run, types, donated = future.result()
                memory = run.memory_analysis()
                peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
                line |= {"seconds": seconds_of(run, types, donated), "kernels": kernels_of(run),
                         "peak": peak - memory.alias_size_in_bytes}  # fmt: skip
            except Exception as error:
                line["error"] = str(error)[:300]
            print(json.dumps(line), file=file, flush=True)
            print(f"{time.perf_counter() - start:6.0f} {json.dumps(line)[:200]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
