"""Compiles the papers' models at their own size, from shapes alone, and counts GShard's laws per operator.

    PYTHONPATH=.import python bench/paper_models.py [NAME ..]     # each model in a process of its own
    PYTHONPATH=.import python bench/paper_models.py --laws        # table 4 of GShard, for 2 to 2,048 devices

Needs JAX. No array is made. Per model: parameters, fp32 bytes of them on a device (AdamW has twice as many beside
them), how many tensors are annotated; processor seconds to compile it from text to text, the memory of the process that
does that, instructions before and after, and the seconds of another process in which JAX traces and lowers it and Hloom
reads it; bytes sent per device and kind of collective in one step; remarks.

The laws: dimensions that are divided grow with the number D of devices, so a device's part stays the same. Work
(multiply-adds, or elements read) and bytes received per device are counted in the output, and their growth is the
exponent of D, fitted to logarithms. The time of an all-to-all on a 2-D torus is its bytes times the mean number of hops
(GShard, section 4.1: t = d h / l); that of the others is their bytes.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import hloom
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

T = TypeVar("T")


def programs() -> dict[str, Callable[[], Any]]:
    """Returns the makers of programs by name."""
    from models import MODELS, dense

    small, large = {"data": 16, "model": 32}, {"data": 32, "model": 64}
    # Lingvo has no 1T configuration for 2,048: this one has as many sequences per core as for 512.
    wide = replace(dense.LM_1T, batch=64)

    def finalized(model: Any, axes: dict[str, int]) -> Callable[[], Any]:
        return lambda: dense.dense(model, axes, dense.FINALIZED)

    return {
        "dense 128B, 16x32": finalized(replace(dense.LM_128B, batch=128), small),
        "dense 1T, 16x32": finalized(dense.LM_1T, small),
        "dense 1T, 32x64": finalized(wide, large),
        "dense 1T, 16x32, 128 layers written out": finalized(replace(dense.LM_1T, scan=False), small),
        "dense 1T, 32x64, 128 layers written out": finalized(replace(wide, scan=False), large),
        "experts 600B, 2048": MODELS["experts"].paper,
        "Llama 405B, 64x8": MODELS["llama_fsdp_tensor"].paper,
        "Llama 70B, pipeline 8x4x8": MODELS["llama_pipeline"].paper,
        "U-Net, 128": MODELS["unet"].paper,
    }


def seconds(action: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def most_memory() -> int:
    """Returns the most bytes of memory that this process has had, on Linux."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) << 10 if found else 0


def lowered(name: str, path: Path) -> dict[str, Any]:
    """Writes a model as text, and returns what its shapes say."""
    jax = importlib.import_module("jax")
    start = time.process_time()
    program = programs()[name]()
    path.write_text(program.module.to_text())
    weights = jax.tree.leaves(program.arguments[0]["weights"])
    on_device = sum(math.prod(w.sharding.shard_shape(w.shape)) * 4 for w in weights)
    return {"parameters": program.parameters, "devices": program.layout.devices, "on_device": on_device,
            "annotations": program.annotations, "jax": time.process_time() - start}  # fmt: skip


def compiled(path: Path) -> dict[str, Any]:
    """Compiles a program from text to text, and returns what is printed about it."""
    text = path.read_text()
    read, module = seconds(lambda: hloom.parse(text))
    propagate, sharded = seconds(lambda: hloom.propagate(module))
    partition, local = seconds(lambda: hloom.partition(sharded))
    printing, _ = seconds(local.to_text)
    sent = collections.Counter[str]()
    for c in hloom.collectives(local):
        sent[c.kind] += c.sent_bytes
    remarks = collections.Counter(re.findall(r"\[(\w+)\]$", "\n".join(_first(r) for r in local.remarks), re.MULTILINE))
    return {
        "instructions": [sum(map(len, module)), sum(map(len, local))], "sent": sent, "remarks": remarks,
        "seconds": {"read": read, "propagate": propagate, "partition": partition, "print": printing},
        "memory": most_memory() >> 20,
    }  # fmt: skip


def _first(remark: hloom.Diagnostic) -> str:
    return str(remark).partition("\n")[0]


def report(name: str) -> None:
    """Lowers a model in one process, compiles it in another, and prints the lines about it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "program.hlo"
        found: dict[str, Any] = {}
        for options in (["--lower", name], ["--compile"]):
            command = [sys.executable, __file__, *options, "--file", str(path)]
            found |= json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    steps, (annotated, tensors) = found["seconds"], found["annotations"]
    before, after = found["instructions"]
    print(f"{name}: {found['parameters']:,} parameters, {found['on_device'] / 1e9:.3f} GB of them on each of "
          f"{found['devices']:,} devices; {annotated:,} of {tensors:,} tensors annotated")  # fmt: skip
    print(f"  compiled in {sum(steps.values()):.1f} s: " + ", ".join(f"{step} {s:.1f}" for step, s in steps.items())
          + f"; {found['memory']:,} MB; {before:,} instructions to {after:,}; before, JAX's text {found['jax']:.1f} s")
    print("  sent per device: " + ", ".join(f"{kind} {n / 1e9:,.3f} GB" for kind, n in sorted(found["sent"].items())))
    print("  remarks: " + (", ".join(f"{n} {kind}" for kind, n in found["remarks"].items()) or "none"), flush=True)


@dataclass(frozen=True)
class Law:
    """An operator of table 4, the paper's exponents of work and of communication, and its program for D devices."""

    name: str
    work: float
    time: float
    kind: str
    text: Callable[[int], str]


SUM = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"


def _entry(*lines: str, before: str = "") -> Callable[[int], str]:
    """Returns a program whose text has `<n>` for n D, and `[..|..]` for tiles: `[D,1|D]` divides dimension 0."""

    def text(devices: int) -> str:
        body = re.sub(r"(?<=[\[,])D", str(devices), "\n".join(lines)).replace("<=D", f"<=[{devices}]")
        body = re.sub(r"<(\d+)>", lambda n: str(int(n[1]) * devices), body)
        return f"HloModule law, num_partitions={devices}\n{before}ENTRY e {{\n{body}\n}}\n"

    return text


def _matmul(a: str, b: str, c: str) -> Callable[[int], str]:
    """A product of two matrices; each argument is shape and tiles, such as `8,<8> 1,D`."""
    (da, ta), (db, tb), (dc, tc) = (part.split() for part in (a, b, c))
    tiles = [f", sharding={{devices=[{t}]<=D}}" if "D" in t else ", sharding={replicated}" for t in (ta, tb, tc)]
    return _entry(f"a = f32[{da}] parameter(0){tiles[0]}", f"b = f32[{db}] parameter(1){tiles[1]}",
                  f"ROOT c = f32[{dc}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{tiles[2]}")


ROWS, COLUMNS = ", sharding={devices=[D,1]<=D}", ", sharding={devices=[1,D]<=D}"
LAWS = [
    Law("Add(A, A -> A)", 0, 0, "none", _entry(
        f"a = f32[<64>,64] parameter(0){ROWS}", f"ROOT b = f32[<64>,64] add(a, a){ROWS}")),
    Law("Matmul(AB, BC -> AC), B divided", 0, 0, "all-reduce", _matmul("64,<64> 1,D", "<64>,64 D,1", "64,64 1,1")),
    Law("Matmul(AB, BC -> AC), A divided", 0, 0, "none", _matmul("<64>,64 D,1", "64,64 1,1", "<64>,64 D,1")),
    Law("Matmul(AB, BC -> AC), A and B grow", 1, 1, "all-gather", _matmul("<8>,<8> D,1", "<8>,8 D,1", "<8>,8 D,1")),
    Law("Matmul(AB, BC -> AC), A and C grow", 1, 1, "all-gather", _matmul("<8>,8 D,1", "8,<8> 1,D", "<8>,<8> D,1")),
    Law("Reduce(AB -> A), A divided", 0, 0, "none", _entry(
        f"a = f32[<64>,64] parameter(0){ROWS}", "z = f32[] constant(0)",
        "ROOT r = f32[<64>] reduce(a, z), dimensions={1}, to_apply=add, sharding={devices=[D]<=D}", before=SUM)),
    Law("Reduce(AB -> B), A divided", 0, 0, "all-reduce", _entry(
        f"a = f32[<64>,64] parameter(0){ROWS}", "z = f32[] constant(0)",
        "ROOT r = f32[64] reduce(a, z), dimensions={0}, to_apply=add, sharding={replicated}", before=SUM)),
    Law("Einsum(GSEC, GSM -> EGCM), G to E", 0, 0.5, "all-to-all", _entry(
        "a = f32[<1>,2048,2048] parameter(0), sharding={devices=[D,1,1]<=D}",  # E C is a constant: 2,048 per group
        "b = f32[<1>,2048,64] parameter(1), sharding={devices=[D,1,1]<=D}",
        "ROOT c = f32[<1>,2048,64] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
        "rhs_contracting_dims={1}, sharding={devices=[1,D,1]<=D}")),
    Law("Conv(BIXY, xyIO -> BOXY), X divided", 0, 0, "collective-permute", _entry(
        "a = f32[2,4,<16>,16] parameter(0), sharding={devices=[1,1,D,1]<=D}",
        "w = f32[3,3,4,4] parameter(1), sharding={replicated}",
        "ROOT r = f32[2,4,<16>,16] convolution(a, w), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_01io->bf01, "
        "sharding={devices=[1,1,D,1]<=D}")),
]  # fmt: skip


def hops(devices: int) -> float:
    """Returns the mean distance between two devices of a 2-D torus, as square as its number of devices lets it be."""
    side = 1 << (devices.bit_length() - 1) // 2
    return sum(sum(min(k, n - k) for k in range(n)) / n for n in (side, devices // side))


def counted(law: Law, devices: int) -> tuple[float, float, str]:
    """Returns work, time and the kinds of collectives of an operator on one device."""
    local = hloom.partition(hloom.parse(law.text(devices)))
    work = sum(c.work for c in hloom.contractions(local))
    work = work or sum(p.shape.num_elements for p in local.entry.parameters)
    found = hloom.collectives(local)
    time = sum(c.sent_bytes * (hops(devices) if c.kind == "all-to-all" else 1) for c in found)
    return work, time, " ".join(sorted({c.kind for c in found})) or "none"


def exponent(devices: list[int], values: list[float]) -> float:
    """Returns the exponent of D in values that grow as a power of it, by least squares; 0 if all are 0."""
    return round(float(np.polyfit(np.log(devices), np.log(values), 1)[0]), 2) + 0.0 if all(values) else 0.0


def laws(most: int = 2048) -> None:
    """Prints the exponents of all operators, counted and of the paper."""
    devices = [2**n for n in range(1, most.bit_length())]
    large = devices[len(devices) // 2 :]
    print(f"exponent of D in D = 2 .. {most:,} (in the upper half); the paper's")
    print(f"{'':38}  {'work':14} {'time':14} by (the paper's)")
    for law in LAWS:
        rows = [counted(law, d) for d in devices]
        fits: list[str] = []
        for place, paper in ((0, law.work), (1, law.time)):
            values = [float(row[place]) for row in rows]
            upper = exponent(large, values[-len(large) :])
            fits.append(f"{exponent(devices, values):4.2f} ({upper:4.2f}) {paper:g}")
        print(f"{law.name:38}  {fits[0]:14} {fits[1]:14} {rows[-1][2]} ({law.kind})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names; all by default")
    parser.add_argument("--laws", action="store_true", help="GShard's table 4 in place of models")
    parser.add_argument("--lower", help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.lower:
        print(json.dumps(lowered(arguments.lower, arguments.file)))
    elif arguments.compile:
        print(json.dumps(compiled(arguments.file)))
    elif arguments.laws:
        laws()
    else:
        for name in programs():
            if not arguments.names or any(part in name for part in arguments.names):
                report(name)


if __name__ == "__main__":
    main()
