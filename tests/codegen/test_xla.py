"""XLA compiles and runs both emitted forms on eight virtual devices, with the numbers of one device."""

from __future__ import annotations

from pathlib import Path

import hloom
import pytest
from hloom.codegen import manual_module, replica_module
from hloom.ir.tools.placement import placements
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.passes.annotating.remesh import remesh
from hloom.runtime.global_arrays import join_outputs, split_inputs
from hloom.runtime.inputs.inputs import make_inputs
from support.compare import compare
from support.golden import golden_texts
from support.xla_runner import run_manual, run_replicas

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS: list[tuple[str, dict[str, int]]] = [
    ("mlp_named", {}),
    ("mlp_named", {"x": 3, "y": 2}),
    ("mlp_train", {}),
    ("mlp_train", {"data": 3}),
]
SCANNED: tuple[str, dict[str, int]] = ("transformer_scan_train", {"data": 3, "model": 2})
SLOW: list[tuple[str, dict[str, int]]] = [
    ("transformer_train", {}), ("transformer_train", {"data": 3, "model": 2}), ("transformer_scan_train", {}),
]
FORMS = ("manual", "replica")

pytest.importorskip("jax")


def _check(module: hloom.Module, form: str) -> None:
    inputs = make_inputs([p.shape for p in module.entry.parameters])
    expected = hloom.evaluate(module, inputs)
    local = hloom.partition(module)
    devices = local.num_partitions
    if form == "replica":
        parameters, results = placements(local)
        tiles = split_inputs(inputs, parameters, range(devices), ProcessGrid.of(local))
        outputs = join_outputs(run_replicas(replica_module(local).to_text(), tiles), results, ProcessGrid.of(local))
    else:
        shapes = [s.dims for s in module.entry.root.shape.leaves()]
        outputs = run_manual(manual_module(local).to_text(), inputs, devices, shapes)
    result = compare(outputs, expected)
    assert result.equal, result


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "mesh", "form"), [
    *(pytest.param(*SCANNED, form, marks=pytest.mark.slow) for form in FORMS),
    *((*program, form) for program in PROGRAMS for form in FORMS),
    *(pytest.param(*program, form, marks=pytest.mark.slow) for program in SLOW for form in FORMS),
], ids=str)  # fmt: skip
def test_examples(name: str, mesh: dict[str, int], form: str) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    if mesh:
        remesh(module, mesh)
    _check(module, form)


GOLDEN = [t for f in ("spmd", "indexed", "halo", "single") for t in golden_texts(f, "EVAL")]


@pytest.mark.share(2)
@pytest.mark.parametrize(("number", "form"), [
    pytest.param(n, form, marks=[] if (n + 4 * column) % 8 == 0 else [pytest.mark.slow])
    for n in range(len(GOLDEN)) for column, form in enumerate(("manual", "replica"))
])  # fmt: skip
def test_golden_cases(number: int, form: str) -> None:
    """Half of the cases, the forms in turn; all in both in the slow run. Examples have both."""
    _check(hloom.parse(GOLDEN[number]), form)


BRANCHES_OF_NOTHING = """
HloModule m, num_partitions=4
on { nothing = () parameter(0)  ROOT c = f32[6] constant({1,2,3,4,5,6}) }
off { nothing = () parameter(0)  zero = f32[] constant(0)  ROOT b = f32[6] broadcast(zero), dimensions={} }
ENTRY e {
  p = pred[] parameter(0)
  x = f32[6] parameter(1), sharding={devices=[4]<=[4]}
  nothing = () tuple()
  c = f32[6] conditional(p, nothing, nothing), true_computation=on, false_computation=off
  ROOT y = f32[6] add(x, c), sharding={devices=[4]<=[4]}
}
"""


@pytest.mark.parametrize("form", ["manual", "replica"])
def test_branches_that_are_given_nothing(form: str) -> None:
    _check(hloom.parse(BRANCHES_OF_NOTHING), form)


def test_forms_are_for_xla_alone() -> None:
    local = hloom.partition(hloom.load(EXAMPLES / "mlp_named.hlo"))
    manual, replica = manual_module(local).to_text(), replica_module(local).to_text()
    assert "num_partitions=8" in manual
    assert "SPMDFullToShardShape" in manual
    assert "hloom.stage" not in manual + replica
    assert "replica_count=8" in replica
    assert "channel_id" not in replica
    assert "partition-id" not in replica
    assert "sharding=" not in replica


def test_a_program_that_is_not_partitioned_is_refused() -> None:
    module = hloom.load(EXAMPLES / "mlp_named.hlo")
    for form in (manual_module, replica_module):
        with pytest.raises(hloom.CompileError, match="partitioned programs"):
            form(module)


def test_values_of_loops_are_manual_after_conversions() -> None:
    """XLA's conversion merges the transposes before these loops with reshapes, and drops their shardings."""
    _check(hloom.load(Path(__file__).parent / "flash_scan.hlo"), "manual")
