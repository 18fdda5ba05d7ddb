"""Random programs computed in every way: whole and divided among meshes of two sizes, by the reference and by native
code, from small whole numbers and from special ones; and proved. All have to agree, in signs of zeros and NaN too.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import hloom
import numpy as np
from hloom.driver.backend import Backend
from hloom.ir.graph.module import Module, Stage
from hloom.ir.ops.convolution import Convolution
from hloom.ir.ops.dot import Dot
from hloom.ir.ops.ragged_dot import RaggedDot
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.plan.kernels import NUMPY, KernelProvider
from hloom.runtime.simulator import SimulatedProgram
from programs.random.base import chosen_by
from programs.random.generate import REGIONS, inputs_of, program, resharded, special_inputs_of
from support.compare import compare
from support.partition_check import partitioned
from support.region_reference import has_regions, whole_results

TRIALS, SECONDS = 8, 4.0  # of a proof
Arrays = Sequence[np.ndarray[Any, Any]]
Run = Callable[[Arrays], Arrays]


class Disagreement(Exception):
    """Two ways to compute a program differ."""


def random_program(rng: random.Random) -> str:
    return program(chosen_by(rng), 7, outer=REGIONS).to_text()


def run_everywhere(text: str) -> str:
    """How much of the program is proved, if all ways to compute it agree. Raises Disagreement otherwise."""
    module, rng = hloom.parse(text), random.Random(zlib.crc32(text.encode()))
    others = [] if has_regions(module) else [resharded(module, chosen_by(rng))]
    try:
        with np.errstate(all="ignore"):
            return _agreement(module, others)
    except hloom.CompileError as error:
        raise Disagreement(f"an error: {error}") from error


def _agreement(module: Module, others: Sequence[Module]) -> str:
    locals_ = [partitioned(m) for m in (module, *others)]
    by_reference = [_run_of(m, NUMPY) for m in (module, *locals_)]
    fused = [Backend("native").prepared(m) for m in (module, locals_[-1])]
    natively = [_run_of(m, NativeKernels()) for m in fused]
    signs = not _has_complex_products(module)
    for inputs, special in ((inputs_of(module), False), (special_inputs_of(module), True)):
        whole, *divided = [run(inputs) for run in by_reference]
        expected = whole_results(module, inputs)
        for local, found in zip(locals_, divided, strict=True):
            _same(f"on {local.num_partitions} devices", found, expected, special, signs)
        for run, expected in zip(natively, (whole, divided[-1]), strict=True):
            _same("native kernels", run(inputs), expected, special, signs)
    verdict = hloom.prove(module, locals_[-1], trials=TRIALS, timeout=SECONDS)
    if verdict.outcome == "differs":
        raise Disagreement(f"proof: {verdict}")
    return {"equal": "proved", "agrees": "partly proved"}.get(verdict.outcome, verdict.outcome)


def _run_of(module: Module, kernels: KernelProvider) -> Run:
    """Compiles a program for all inputs."""
    if module.stage in (Stage.GLOBAL, Stage.SHARDED):
        return UnpartitionedProgram(module, kernels).run
    program = SimulatedProgram(module, kernels)
    return lambda inputs: program.simulate(inputs, poison=True).outputs


def _has_complex_products(module: Module) -> bool:
    """Whether BLAS multiplies complex numbers: a zero that its terms leave has a sign that depends on the tile's shape.
    (A sum of reals that is exactly zero has the same sign in every order.)
    """
    products = (Dot, RaggedDot, Convolution)
    return any(
        isinstance(i.op, products) and i.shape.is_array and i.shape.element.is_complex for c in module for i in c
    )


def _same(where: str, found: Arrays, expected: Arrays, special: bool, signs: bool) -> None:
    result = compare(found, expected, signs=special and signs)
    if not result.equal:
        raise Disagreement(f"{where}{', special numbers' * special}: {result}")
