"""Compiles programs for eight GPUs by XLA, ahead of time, and says what XLA keeps of a schedule.

    python bench/xla_gpu.py [NAME ..] [--flags pieces] [--platform cuda|cpu]

Needs JAX with CUDA and one GPU, for which XLA chooses its kernels; the other seven are described, not used. On the CPU
it makes eight virtual devices, and no collective is asynchronous. A row has
the asynchronous pairs of the scheduled program as XLA compiled it, those with computation between start and done, and
the milliseconds that wait for collectives by Hloom's forecast on h100: in XLA's order of the plain program and of the
scheduled one, and in Hloom's own. XLA schedules anew, by latencies of its own. By default it also combines small
collectives, and merges products that share an operand: `PIECES` are flags that leave the pieces of a schedule alone.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hloom
import hloom.jax
import numpy as np
from hloom.ir.graph.computation import Computation
from hloom.ir.graph.instruction import Instruction
from hloom.ir.graph.module import Module
from hloom.ir.graph.op import Role
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.scheduling import schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

PIECES = ("--xla_gpu_all_gather_combine_threshold_bytes=0 --xla_gpu_reduce_scatter_combine_threshold_bytes=0 "
          "--xla_gpu_all_reduce_combine_threshold_bytes=0 --xla_disable_hlo_passes=dot-merger")  # fmt: skip
DEVICES = 8
PAIR = """ENTRY e {
  x = bf16[8192,8192] parameter(0), sharding={devices=[8,1]<=[8]}
  v = bf16[8192,28672] parameter(1), sharding={devices=[1,8]<=[8]}
  w = bf16[28672,8192] parameter(2), sharding={devices=[8,1]<=[8]}
  h = bf16[8192,28672] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = bf16[8192,28672] tanh(h), sharding={devices=[1,8]<=[8]}
  ROOT y = bf16[8192,8192] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={devices=[8,1]<=[8]}
}
"""


def programs() -> dict[str, Callable[[], Module]]:
    """Returns functions that make programs with shardings on eight devices, by name."""
    from models import dense, experts, pipeline, ring
    from models.dense import FSDP, FSDP_SEQUENCE, MEGATRON, SEQUENCE, Transformer

    wide = Transformer(layers=3, width=4096, hidden=14336, heads=32, head=128, kv_heads=8, vocabulary=32000, batch=8,
                       sequence=2048, positions="rotary", tied=False, scan=False)  # fmt: skip
    small = replace(wide, layers=2, width=2048, hidden=5632, heads=16, kv_heads=4)
    routed = replace(small, gated=False, hidden=4096, kv_heads=None, positions="distance", tied=True, batch=16,
                     sequence=1024)  # fmt: skip
    staged = pipeline.Pipeline(replace(small, layers=4, scan=True, remat=True), stages=2, microbatches=4, rounds=2)
    both = {"data": 2, "model": 4}
    return {
        "two products": lambda: hloom.parse(PAIR),
        "fsdp": lambda: dense.dense(wide, {"data": 8}, FSDP).module,
        "fsdp, scan": lambda: dense.dense(replace(wide, layers=8, scan=True, remat=True), {"data": 8}, FSDP).module,
        "sequence": lambda: dense.dense(small, both, SEQUENCE).module,
        "fsdp and tensor": lambda: dense.dense(small, both, FSDP_SEQUENCE).module,
        "experts": lambda: experts.experts(experts.Experts(routed, 8, 8, 512), {"data": 8}).module,
        "ring": lambda: ring.ring(ring.Ring(2, 8192, 2048, 16, 128), {"data": 1, "ring": 8}).module,
        "pipeline": lambda: pipeline.pipeline(staged, {"stage": 2, "data": 2, "model": 2}, MEGATRON).module,
    }


def compiled(local: Module, platform: str, devices: Any) -> Module:
    """Returns the program of a device as XLA compiles it for these devices."""
    import jax

    exported = hloom.jax.exported(local, platform)
    given = next(s.mesh for s in exported._in_named_shardings if s is not None)
    mesh = jax.sharding.Mesh(np.array(devices).reshape(tuple(given.shape.values())), tuple(given.shape),
                             axis_types=given.axis_types)  # fmt: skip
    shardings = exported.in_shardings_jax(mesh)
    arguments = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
                 for aval, sharding in zip(exported.in_avals, shardings, strict=True)]  # fmt: skip
    text = jax.jit(exported.call).lower(*arguments).compile().as_text()
    assert text is not None
    return hloom.parse(text)


def devices_of(platform: str) -> Any:
    """Returns the devices to compile for: described GPUs, or virtual devices of the CPU."""
    import jax
    from jax.experimental import topologies

    if platform == "cpu":
        return jax.devices("cpu")
    return topologies.get_topology_desc(platform=platform, topology_name="h100", topology=f"1x1x{DEVICES}").devices


def pairs(module: Module) -> tuple[int, int]:
    """Counts the asynchronous pairs, and those with computation between start and done."""
    found = [overlaps(computation, done) for computation in module for done in computation if done.op.role is Role.DONE]
    return len(found), sum(found)


def overlaps(computation: Computation, done: Instruction) -> bool:
    """Whether computation lies between the start of a done and the done, in the order of the program."""
    order = list(computation)
    between = order[order.index(done.operands[0]) + 1 : order.index(done)]
    return any(i.op.role is Role.FUSION or i.called() or "custom-call" in i.opcode for i in between)


def main() -> int:
    """Reads the arguments and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names of programs")
    parser.add_argument("--flags", default="", help="flags of XLA; `pieces` is PIECES")
    parser.add_argument("--platform", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    flags = PIECES if arguments.flags == "pieces" else arguments.flags
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={DEVICES}"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    devices = devices_of(arguments.platform)
    machine = hloom.parse_machine("h100")
    print(f"{'':<18}{'pairs':>6}{'overlap':>8}{'XLA, plain':>12}{'scheduled':>11}{'Hloom':>8}  ms exposed")
    for name, make in programs().items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        module = hloom.parse(make().to_text())
        context = PassContext(machine=machine)
        local = partition(module, context)
        plain = compiled(local, arguments.platform, devices)
        schedule(local, context, 0)
        theirs = compiled(local, arguments.platform, devices)
        first, second, ours = (1e3 * hloom.timeline(m, machine).exposed for m in (plain, theirs, local))
        count, overlapped = pairs(theirs)
        print(f"{name:<18}{count:>6}{overlapped:>8}{first:>12.2f}{second:>11.2f}{ours:>8.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
