"""XLA parses scheduled programs, and runs them with the numbers of one device."""

from __future__ import annotations

import importlib
from typing import Any

import hloom
import pytest
from hloom.codegen import manual_module, replica_module
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS
from hloom.ir.tools.placement import placements
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.passes.base import PassContext
from hloom.passes.scheduling import schedule
from hloom.runtime.global_arrays import join_outputs, split_inputs
from hloom.runtime.inputs.inputs import inputs_for_module
from support.compare import compare
from support.fsdp_steps import fsdp_step
from support.xla_runner import run_manual, run_replicas

pytest.importorskip("jax")


@pytest.mark.parametrize("form", ["manual", pytest.param("replica", marks=pytest.mark.slow)])
def test_fsdp(form: str) -> None:
    """Gathers are variadic there, reduce-scatters flat."""
    whole = hloom.parse(fsdp_step(8, layers=3, width=32, batch=32))
    inputs = inputs_for_module(whole)
    local = schedule(hloom.partition(whole).module, PassContext(machine=PRESETS["cpu-cluster"]), form="xla")
    sizes = [(i.opcode, len(i.operands)) for i in local.entry if i.op.is_collective]
    assert max(count for opcode, count in sizes if opcode == "all-gather") > 1
    assert {count for opcode, count in sizes if opcode == "reduce-scatter"} == {1}
    assert len(sizes) < 12
    if form == "replica":
        grid, (parameters, results) = ProcessGrid.of(local), placements(local)
        tiles = split_inputs(inputs, parameters, range(8), grid)
        outputs = join_outputs(run_replicas(replica_module(local).to_text(), tiles), results, grid)
    else:
        shapes = [s.dims for s in whole.entry.root.shape.leaves()]
        outputs = run_manual(manual_module(local).to_text(), inputs, 8, shapes)
    result = compare(outputs, hloom.evaluate(whole, inputs))
    assert result.equal, result


@pytest.mark.parametrize("form", ["variadic", "flat"])
def test_printed_text_parses(form: str) -> None:
    xla: Any = importlib.import_module("jaxlib._hlo")
    local = hloom.partition(hloom.parse(fsdp_step(4, layers=3, width=32, batch=32))).module
    text = schedule(local, PassContext(machine=PRESETS["cpu-cluster"]), form=form).to_text()
    assert "is_scheduled=true" in text
    xla.hlo_module_from_text(text)  # raises if XLA's parser or verifier refuses it


@pytest.mark.slow
def test_values_computed_again() -> None:
    whole = hloom.parse(fsdp_step(4, layers=6, width=16, batch=256))
    inputs, local = inputs_for_module(whole), hloom.partition(whole).module
    limit = int(0.6 * live_memory(local).peak)
    local = schedule(local, PassContext(machine=PRESETS["cpu-cluster"]), limit, form="xla")
    assert any(i.opcode == "opt-barrier" for i in local.entry)
    shapes = [s.dims for s in whole.entry.root.shape.leaves()]
    outputs = run_manual(manual_module(local).to_text(), inputs, 4, shapes)
    result = compare(outputs, hloom.evaluate(whole, inputs))
    assert result.equal, result
