"""The check finds mistakes that a wrong partitioner would make, and refuses no right program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.check.check import CheckVerdict, WideRun, judge, wide_program
from hloom.runtime.check.reference import Reference
from hloom.runtime.check.retype import retyped
from hloom.runtime.evaluator import UnpartitionedProgram
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from support.command_line import EXAMPLES
from support.golden import golden_texts
from support.planted_faults import Fault, faults, some

Array = np.ndarray[Any, Any]
EXAMPLE_NAMES = ("mlp_named", "mlp_train", "transformer_train", "transformer_scan_train")
SHOWS = 1e-12  # a mistake counts if it changes some result by more than this part of its largest magnitude, in f64


@dataclass
class Trial:
    """A program, its partitioned form, and what it gives on one device."""

    local: Module
    reference: Reference
    wide: WideRun | None
    in_f64: list[Array] | None

    @staticmethod
    def of(module: Module, local: Module | None = None, seed: int = 0) -> Trial:
        local = local or hloom.partition(module)
        reference = Reference(UnpartitionedProgram(module), inputs_for_module(module, seed=seed))
        wide = wide_program(reference, local)
        return Trial(local, reference, wide, simulate(wide.program, wide.inputs, poison=True) if wide else None)

    def verdict(self, local: Module, in_f64: Sequence[Array] | None) -> CheckVerdict:
        outputs = simulate(local, self.reference.inputs)
        return judge(self.reference, outputs, in_f64, local.num_partitions)

    def finds(self, fault: Fault) -> bool | None:
        """Whether the check finds a mistake; None if it changes no result."""
        bad = fault.plant(self.local)
        assert self.wide is not None
        assert self.in_f64 is not None
        try:
            in_f64 = simulate(retyped(bad), self.wide.inputs, poison=True)
            if not any(_changed(a, b) for a, b in zip(in_f64, self.in_f64, strict=True)):
                return None
            return not self.verdict(bad, in_f64).passed
        except CompileError:  # devices disagree, or a collective cannot run: nobody takes that for a right result
            return True


def _changed(a: Array, b: Array) -> bool:
    if b.dtype.kind not in "fc":
        return not np.array_equal(a, b)
    scale = float(np.abs(b).max(initial=0.0))
    return bool((~(np.abs(a - b) <= SHOWS * scale)).any())


@cache
def example(name: str) -> Module:
    return hloom.load(EXAMPLES / f"{name}.hlo")


def _check_mistakes(name: str, each: int, least: int) -> None:
    trial = Trial.of(example(name))
    assert trial.verdict(trial.local, trial.in_f64).passed
    found = {fault: trial.finds(fault) for fault in some(list(faults(trial.local)), each)}
    assert [fault for fault, answer in found.items() if answer is False] == []
    assert sum(answer is True for answer in found.values()) >= least


@pytest.mark.parametrize(
    ("name", "each", "least"), [
        ("mlp_named", 8, 18), pytest.param("mlp_train", 5, 18, marks=pytest.mark.slow),
        pytest.param("transformer_scan_train", 1, 6, marks=pytest.mark.slow),
    ],
)
def test_mistakes_in_examples_are_found(name: str, each: int, least: int) -> None:
    _check_mistakes(name, each, least)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("transformer_train", marks=pytest.mark.slow), "transformer_scan_train"])
def test_more_mistakes_in_examples_are_found(name: str) -> None:
    _check_mistakes(name, each=2, least=12)


@pytest.mark.parametrize(
    ("stem", "least"), [pytest.param("halo", 40, marks=pytest.mark.slow), ("partial", 20)]
)
def test_mistakes_in_exchanged_edges_are_found(stem: str, least: int) -> None:
    """Permutes, masks and offsets, which the examples have few of."""
    count = 0
    for text in golden_texts(stem, "EVAL"):
        trial = Trial.of(hloom.parse(text))
        if trial.wide is None:
            continue
        found = {fault: trial.finds(fault) for fault in some(list(faults(trial.local)), 1)}
        assert [fault for fault, answer in found.items() if answer is False] == [], text
        count += sum(answer is True for answer in found.values())
    assert count >= least


def with_products_in_bf16(module: Module) -> Module:
    """Mixed precision: the operands of products in bf16, everything else as it is."""
    mixed = clone_module(module)
    for computation in mixed:
        for dot in [i for i in computation if i.opcode == "dot"]:
            for index, operand in enumerate(list(dot.operands)):
                narrow = operand.shape.without_layout().with_element(ELEMENT_TYPES["bf16"])
                computation.set_operand(dot, index, computation.build("convert", operand, shape=narrow))
        computation.sort()
    return mixed


def _check_right(name: str, precision: str, seeds: int) -> None:
    module = example(name)
    if precision == "mixed":
        module = with_products_in_bf16(module)
    elif precision != "f32":
        module = retyped(module, {ELEMENT_TYPES["f32"]: ELEMENT_TYPES[precision]})
    local = hloom.partition(module)
    for seed in range(seeds):
        trial = Trial.of(module, local, seed)
        verdict = trial.verdict(trial.local, trial.in_f64)
        assert verdict.passed, str(verdict)


PRECISIONS = pytest.mark.parametrize("precision", ["f32", "bf16", "f16", "mixed"])


@pytest.mark.share(3)
@PRECISIONS
@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_right_programs_pass(name: str, precision: str) -> None:
    _check_right(name, precision, 1)


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_right_programs_pass_with_other_inputs(name: str, precision: str) -> None:
    _check_right(name, precision, 4)
