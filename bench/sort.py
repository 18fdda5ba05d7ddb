"""Measures how long sorting by a comparator takes, against XLA's own sort and numpy's lexsort in the same run.

    python bench/sort.py [--count 1000000] [--runs 3]

Needs JAX. Each program sorts two arrays; times are medians of several runs after one that does not count. XLA runs the
same HLO on one CPU device. numpy is given the keys, where the comparator has some: any sort needs at least that time.
"""

# jaxlib's internal modules have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import hloom
import numpy as np
from timing import median

Array = np.ndarray[Any, Any]

BODIES: dict[str, tuple[str, Callable[[Array, Array], list[Array]] | None]] = {
    "ascending": ("ROOT r = pred[] compare(a, b), direction=LT", lambda x, y: [x]),
    "descending, total order": (
        "ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER", lambda x, y: [-x],
    ),
    "bit casts, ties by index": (
        """p = s32[] bitcast-convert(a)  q = s32[] bitcast-convert(b)  zero = s32[] constant(0)
        top = s32[] constant(2147483647)  ps = pred[] compare(p, zero), direction=LT
        qs = pred[] compare(q, zero), direction=LT  pm = s32[] subtract(top, p)  qm = s32[] subtract(top, q)
        pk = s32[] select(ps, pm, p)  qk = s32[] select(qs, qm, q)
        less = pred[] compare(pk, qk), direction=LT  same = pred[] compare(pk, qk), direction=EQ
        tie = pred[] compare(c, d), direction=LT
        ROOT r = pred[] select(same, tie, less)""",
        lambda x, y: [x, y],
    ),
    "size down, then place up": (
        """p = f32[] abs(a)  q = f32[] abs(b)  more = pred[] compare(p, q), direction=GT
        same = pred[] compare(p, q), direction=EQ  tie = pred[] compare(c, d), direction=LT
        both = pred[] and(same, tie)  ROOT r = pred[] or(more, both)""",
        lambda x, y: [-abs(x), y],
    ),
    "no keys: the sign of a - b": (
        "e = f32[] subtract(a, b)  z = f32[] constant(0)  ROOT r = pred[] compare(e, z), direction=LT", None,
    ),
    "no keys: products across": (
        """u = f32[] convert(c)  v = f32[] convert(d)  w = f32[] multiply(a, v)  x = f32[] multiply(b, u)
        ROOT r = pred[] compare(w, x), direction=LT""",
        None,
    ),
}  # fmt: skip


def program(body: str, count: int) -> str:
    """Returns the HLO text that sorts two arrays by the comparator."""
    return f"""HloModule m
f {{ a = f32[] parameter(0)  b = f32[] parameter(1)  c = s32[] parameter(2)  d = s32[] parameter(3)  {body} }}
ENTRY e {{ x = f32[{count}] parameter(0)  y = s32[{count}] parameter(1)
  ROOT r = (f32[{count}], s32[{count}]) sort(x, y), dimensions={{0}}, is_stable=true, to_apply=f }}
"""


def xla_sort(text: str, inputs: list[Array]) -> Callable[[], list[Array]]:
    """Compiles the program with XLA for one CPU device and returns the function that runs it."""
    jax: Any = importlib.import_module("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    xla: Any = importlib.import_module("jaxlib._jax")
    device = jax.devices("cpu")[0]
    stablehlo = xla.mlir.hlo_to_stablehlo(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    loaded = device.client.compile_and_load(stablehlo, xla.DeviceList((device,)), xla.CompileOptions())
    arrays = [jax.device_put(array, device) for array in inputs]

    def run() -> list[Array]:
        found = loaded.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [np.asarray(result[0]) for result in found]

    return run


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal(options.count).astype(np.float32)
    y = 1 + rng.permutation(options.count).astype(np.int32)
    print(f"{options.count:,} pairs      hloom s      XLA s  hloom/XLA    numpy s  hloom/numpy  equal")
    for name, (body, keys) in BODIES.items():
        text = program(body, options.count)
        module, theirs = hloom.parse(text), xla_sort(text, [x, y])
        equal = all(map(np.array_equal, hloom.evaluate(module, [x, y]), theirs()))
        ours, xla = median(lambda m=module: hloom.evaluate(m, [x, y]), options.runs), median(theirs, options.runs)
        row = f"{name:28}{ours:8.3f} {xla:10.3f} {ours / xla:10.2f}"
        if keys is not None:
            columns = keys(x, y)

            def sort(columns: list[Array] = columns) -> Array:
                return x[np.lexsort(columns[::-1])]

            numpy = median(sort, options.runs)
            row += f" {numpy:10.3f} {ours / numpy:12.2f}"
        else:
            row += f" {'-':>10} {'-':>12}"
        print(f"{row}  {'yes' if equal else 'NO'}", flush=True)


if __name__ == "__main__":
    main()
