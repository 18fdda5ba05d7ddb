"""Random programs, partitioned by Hloom, compiled and run by XLA in both forms."""

from __future__ import annotations

import hloom
import pytest
from hloom.codegen import manual_module, replica_module
from hloom.ir.graph.instruction import Instruction
from hloom.ir.tools.placement import placements
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.ir.types.element_type import Kind
from hloom.runtime.global_arrays import join_outputs, split_inputs
from hypothesis import HealthCheck, assume, given, settings
from programs.random.generate import inputs_of, programs
from programs.random.numbers import binary, clamp, iota, mapped, select, unary
from programs.random.shaping import SHAPING, scatter
from programs.random.sums import dot, reduce_, reduce_pairs
from support.compare import compare
from support.xla_runner import run_manual, run_replicas

pytest.importorskip("jax")

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]
VIRTUAL_DEVICES = 8
# Others bring XLA down (reduce-window with padding), are not there on CPUs (ragged-dot), compute in other precision, or
# go wrong: a scatter whose one index lies below a slice of the array reads the slice at another place.
_MOVES = [family for family in SHAPING if family is not scatter]
FAMILIES = [[unary, binary, select, clamp, iota, mapped], _MOVES, _MOVES, [dot, dot, reduce_, reduce_pairs]]
ELEMENTS = ["f32", "f32", "s32", "f64", "pred", "c64", "s8", "u32"]


def _is_in_stablehlo(instruction: Instruction) -> bool:
    """XLA is called by StableHLO, which has no mulhi, and no sign of unsigned numbers."""
    unsigned = instruction.shape.is_array and instruction.shape.element.kind is Kind.UNSIGNED
    return instruction.opcode != "mulhi" and not (instruction.opcode == "sign" and unsigned)


def _check(module: hloom.Module) -> None:
    assume(module.num_partitions <= VIRTUAL_DEVICES)
    assume(all(_is_in_stablehlo(i) for c in module for i in c))
    inputs = inputs_of(module)
    expected = hloom.evaluate(module, inputs)
    local = hloom.partition(module)
    devices = local.num_partitions
    parameters, results = placements(local)
    tiles = split_inputs(inputs, parameters, range(devices), ProcessGrid.of(local))
    replicas = join_outputs(run_replicas(replica_module(local).to_text(), tiles), results, ProcessGrid.of(local))
    shapes = [s.dims for s in module.entry.root.shape.leaves()]
    manual = run_manual(manual_module(local).to_text(), inputs, devices, shapes)
    for found in (replicas, manual):
        result = compare(found, expected)
        assert result.equal, f"{result}\n{module.to_text()}"


@settings(max_examples=5, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(inner=FAMILIES, elements=ELEMENTS))
def test_random_programs_on_xla(module: hloom.Module) -> None:
    _check(module)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=QUIET)
@given(programs(inner=FAMILIES, elements=ELEMENTS))
def test_many_random_programs_on_xla(module: hloom.Module) -> None:
    _check(module)
