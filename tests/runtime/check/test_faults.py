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


CANCELLING = {
    "row": "ROOT r = f32[] reduce(y, zero), dimensions={0,1}, to_apply=add",
    "rows": "t = f32[2400,2] transpose(y), dimensions={1,0}\n"
            "ROOT r = f32[2] reduce(t, zero), dimensions={0}, to_apply=add",
    "running": "ROOT r = f32[2,2400] reduce-window(y, zero), window={size=1x2400 pad=0_0x2399_0}, to_apply=add",
    "scattered": "t = f32[2400,2] transpose(y), dimensions={1,0}\nzeros = f32[1,2] broadcast(zero), dimensions={}\n"
                 "nowhere = s32[] constant(0)\nplaces = s32[2400,1] broadcast(nowhere), dimensions={}\n"
                 "ROOT r = f32[1,2] scatter(zeros, places, t), update_window_dims={1}, inserted_window_dims={0},"
                 " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "product": "one = f32[] constant(1)\nones = f32[2400] broadcast(one), dimensions={}\n"
               "ROOT r = f32[2] dot(y, ones), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "order": "s = f32[2] reduce(y, zero), dimensions={1}, to_apply=add\ne = f32[1] slice(s), slice={[0:1]}\n"
             "f = f32[1] slice(s), slice={[1:2]}\nn = f32[1] negate(f)\nROOT r = pred[1] compare(e, n), direction=LT",
}  # fmt: skip
"""How numbers are added up that grow from negative to positive ones, so that sums on the way exceed the result."""


def cancelling(name: str, devices: int, element: str, spread: float = 1.0) -> Module:
    text = f"""HloModule m, num_partitions={devices}
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[2,2400] parameter(0), sharding={{devices=[1,{devices}]<=[{devices}]}}
  zero = f32[] constant(0)
  middle = f32[] constant({spread})
  step = f32[] constant({2 * spread / 2399})
  i = f32[2,2400] iota(), iota_dimension=1
  steps = f32[2,2400] broadcast(step), dimensions={{}}
  middles = f32[2,2400] broadcast(middle), dimensions={{}}
  grown = f32[2,2400] multiply(i, steps)
  line = f32[2,2400] subtract(grown, middles)
  y = f32[2,2400] add(x, line)
  {CANCELLING[name]}
}}"""
    return hloom.parse(text.replace("f32[", f"{element}["))


@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", CANCELLING)
def test_right_sums_of_terms_that_cancel_pass(name: str, element: str) -> None:
    for devices in (2, 3, 4):
        module = cancelling(name, devices, element, spread=64.0)
        local = hloom.partition(module)
        for seed in range(4):
            trial = Trial.of(module, local, seed)
            in_f64 = trial.in_f64 if trial.wide else None
            verdict = trial.verdict(trial.local, in_f64)
            assert not verdict.differences, str(verdict)


FLOAT_SUMS = [name for name in CANCELLING if name != "order"]


@pytest.mark.parametrize("name", FLOAT_SUMS)
def test_mistakes_in_sums_of_terms_that_cancel_are_found(name: str) -> None:
    trial = Trial.of(module := cancelling(name, 3, "f32", spread=64.0), hloom.partition(module))
    found = {fault: trial.finds(fault) for fault in some(list(faults(trial.local)), 2)}
    assert [fault for fault, answer in found.items() if answer is False] == []
    assert sum(answer is True for answer in found.values()) >= 3


def summed_in_bf16(module: Module) -> Module:
    """The program, with the first sum of each device rounded to bf16 before devices add them."""
    copy = clone_module(module)
    assert copy.entry is not None
    collective = next(i for i in copy.entry if i.op.is_collective and i.shape.is_array and i.shape.element.is_float)
    shape = collective.operands[0].shape.without_layout()
    narrow = copy.entry.build("convert", collective.operands[0], shape=shape.with_element(ELEMENT_TYPES["bf16"]))
    copy.entry.set_operand(collective, 0, copy.entry.build("convert", narrow, shape=shape))
    copy.entry.sort()
    return copy


@pytest.mark.parametrize("spread", [64.0, 0.0])
@pytest.mark.parametrize("name", FLOAT_SUMS)
def test_sums_in_a_narrower_type_are_found(name: str, spread: float) -> None:
    """In f64 nothing is wrong with them; the roundings of the program's own type do not explain the difference."""
    for seed in range(3):
        module = cancelling(name, 3, "f32", spread)
        trial = Trial.of(module, hloom.partition(module), seed)
        assert not trial.verdict(summed_in_bf16(trial.local), trial.in_f64).passed
