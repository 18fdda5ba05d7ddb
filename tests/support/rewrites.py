"""Running a per-device program before and after passes that rewrite it, on the same inputs of each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import hloom
import numpy as np
from hloom.cost.machine import DEFAULT, Machine
from hloom.ir.graph.module import Module
from hloom.ir.tools.control_flow import computations_run
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.runtime.simulator import run_devices
from support.compare import compare

Array = np.ndarray[Any, Any]


def rewritten(program: str | Module, passes: str, machine: Machine = DEFAULT) -> tuple[Module, list[str]]:
    """The module after the passes, verified after each, and the remarks. A text is a program of each device."""
    module = hloom.parse(program) if isinstance(program, str) else program
    context = PassContext(verify="each", machine=machine)
    run_pipeline(parse_pipeline(passes), module, context)
    return module, [d.message for d in context.diagnostics.found]


def local_inputs(module: Module, seed: int = 0, whole: bool = False) -> list[list[Array]]:
    """Inputs of every device, different ones; floats are small integers if `whole`, so that all sums are exact."""
    rng = np.random.default_rng(seed)
    found: list[list[Array]] = []
    for _ in range(module.num_partitions * module.replica_count):
        values: list[Array] = []
        for p in module.entry.parameters:
            numbers = rng.integers(-9, 10, p.shape.dims)
            floats = numbers if whole or not p.shape.element.is_float else rng.standard_normal(p.shape.dims)
            values.append(np.asarray(floats).astype(p.shape.element.numpy))
        found.append(values)
    return found


def run(module: Module, inputs: Sequence[Sequence[Array]]) -> list[Array]:
    """All results of all devices, device by device."""
    return [result for device in run_devices(module, inputs) for result in device]


def differences(text: str, module: Module, exact: bool = False, whole: bool = False, seeds: int = 2) -> str:
    """What a rewritten module computes otherwise than the text, on random inputs; its own text is run as well."""
    before = hloom.parse(text)
    for seed in range(seeds):
        inputs = local_inputs(before, seed, whole)
        expected = run(before, inputs)
        for after in (module, hloom.parse(module.to_text())):
            result = compare(run(after, inputs), expected, scale=0 if exact else 1)
            if not result.equal:
                return str(result)
    return ""


def collectives(module: Module) -> Counter[str]:
    """How many collectives of each kind stand in the program, `kind@computation` outside of the entry."""
    return Counter(
        i.opcode if c is module.entry else f"{i.opcode}@{c.name}"
        for c in computations_run(module) for i in c if i.op.is_collective
    )  # fmt: skip
