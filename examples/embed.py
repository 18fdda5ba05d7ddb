"""A compiler that embeds Hloom, with the public names of `hloom` alone: `python examples/embed.py [OUT.hlo]`.

It builds a layer, has an op and a machine of its own, replaces how one op runs on tiles, adds a pass to the pipeline,
keeps a budget of communication, reads the remarks, and writes HLO that XLA runs. docs/embedding.md explains each part.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hloom
import numpy as np

Array = np.ndarray[Any, Any]


def row_norm(x: Array) -> Array:
    """Each row divided by its root mean square."""
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True))


@hloom.register
class RowNorm(hloom.Op[Any]):
    """Divides each row by its root mean square. Devices share out the rows; a row stays whole."""

    opcode = "row-norm"

    def sharding_rule(self, call: hloom.OpCall[Any]) -> Any:
        return call.parse_rule("([i j]) -> [i j] replicate={j}")

    def kernel(self, call: hloom.OpCall[Any], compile: Any) -> Any:
        return row_norm


@dataclass(frozen=True)
class LowerRowNorm(hloom.Pass):
    """Writes row-norm in ops that XLA has, once programs are those of each device."""

    name = "lower-row-norm"
    consumes = frozenset({hloom.Stage.LOCAL})

    def run(self, module: hloom.Module, context: hloom.PassContext) -> bool:
        found = [(c, norm) for c in list(module) for norm, _ in hloom.find_all(c, hloom.P("row-norm"))]
        for c, norm in found:
            (x,), (rows, size) = norm.operands, norm.shape.dims
            add = module.new_computation("add")
            add.build("add", add.parameter(0, "f32[]"), add.parameter(1, "f32[]"))
            total = c.build("reduce", c.build("multiply", x, x), c.constant(0.0), dimensions=(1,), to_apply=add)
            count = c.build("broadcast", c.constant(float(size)), shape=f"f32[{rows}]", dimensions=())
            scale = c.build("rsqrt", c.build("divide", total, count))
            scales = c.build("broadcast", scale, shape=f"f32[{rows},{size}]", dimensions=(0,))
            c.replace_all_uses(norm, c.build("multiply", x, scales, like=norm))
            c.remove(norm)
            c.sort()
        return bool(found)


def logistic(local: hloom.LocalOp) -> hloom.Instruction:
    """Runs logistic on a tile as 0.5 + 0.5 tanh(x / 2), for a target that only has tanh."""
    x, emitter = local.operands[0].instruction, local.emitter
    half = emitter.splat(emitter.constant(0.5, x.shape.element), x.shape.dims)
    tanh = emitter.add("tanh", (emitter.add("multiply", (x, half)),))
    return emitter.add("add", (half, emitter.add("multiply", (half, tanh))))


@dataclass(frozen=True)
class Ethernet(hloom.Machine):
    """Nodes of one device that are 20 us and 10 GB/s apart, whoever talks to whom. Times are picoseconds."""

    def collective(self, kind: Any, digits: Any, order: Any = None) -> hloom.Transfer:
        return self.fastest

    @property
    def fastest(self) -> hloom.Transfer:
        return hloom.Transfer(latency=20e6, per_byte=100.0)

    def memory(self, count: float) -> float:
        return count * 5.0

    def work(self, points: float, element: Any) -> float:
        return points * 0.5


def layer() -> hloom.Module:
    """row-norm(logistic(x w)) over two data-parallel groups of two devices that divide the columns."""
    module, mesh = hloom.Module("layer"), hloom.Mesh.of(data=2, model=2)
    c = module.new_computation("main", entry=True)
    x = c.parameter(0, "f32[64,32]", "x", sharding=hloom.Sharding.over(mesh, "data", None))
    w = c.parameter(1, "f32[32,128]", "w", sharding=hloom.Sharding.over(mesh, None, "model"))
    y = c.build("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    norm = c.build("row-norm", c.build("logistic", y))
    c.root = c.build("negate", norm, name="result", sharding=hloom.Sharding.over(mesh, "data", "model"))
    return module


def compiled(module: hloom.Module) -> hloom.Partitioned:
    """The program of each device, within a budget of communication."""
    forms = hloom.local_forms().override("logistic", hloom.LocalForm(logistic))
    passes = (*hloom.PIPELINE, LowerRowNorm())
    local = hloom.partition(module, machine=Ethernet(), forms=forms, passes=passes)
    hloom.assert_collectives(local, all_gather=range(2), total=range(3), bytes_at_most=20_000)
    return local


def main(arguments: list[str]) -> None:
    """Compiles the layer, checks its numbers on all devices, and writes it for XLA."""
    module = layer()
    local = compiled(module)
    for remark in (*local.warnings, *local.remarks):
        print(remark)
    for found in local.certificate.reshardings:
        print(f"{found.cause}: {found.certificate.received_bytes} bytes, least {found.certificate.bound_bytes}")
    inputs = [np.random.default_rng(n).normal(size=p.shape.dims).astype(np.float32)
              for n, p in enumerate(module.entry.parameters)]
    (expected,), (result,) = hloom.evaluate(module, inputs), hloom.simulate(local, inputs)
    print("largest difference", np.abs(result - expected).max())
    text = hloom.export(local).to_text()
    if arguments:
        Path(arguments[0]).write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
