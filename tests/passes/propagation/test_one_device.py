"""Programs for one device are not divided: they are taken as they are, and give the same numbers."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.module import Module, Stage
from hloom.ir.tools.verifier import check
from hloom.passes.api import run_passes
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.propagation.one_device import is_undivided
from hloom.runtime import evaluate, simulate
from hloom.runtime.inputs.inputs import inputs_for_module
from ops.test_samples import SAMPLES
from support.compare import compare
from support.op_samples import few


def passes_of(module: Module, devices: int | None = None) -> set[str]:
    """Partitions a module in place and returns the names of the passes."""
    context = PassContext(num_devices=devices)
    partition(module, context)
    check(module)
    assert module.stage is Stage.LOCAL
    return {record.name for record in context.records}


@pytest.mark.share(2)
@pytest.mark.parametrize("opcode", SAMPLES)
def test_samples_run_as_they_are(opcode: str) -> None:
    for text in few(opcode, SAMPLES[opcode], 1):
        program = parse(text)
        if not is_undivided(program, PassContext()) or program.replica_count > 1:
            continue
        try:
            inputs = inputs_for_module(program)
            expected = evaluate(program, inputs)
        except CompileError:
            continue  # it has no meaning on one device
        local = parse(text)
        assert passes_of(local).isdisjoint(("propagate", "spmd-partition")), text
        result = compare(simulate(local, inputs), expected)
        assert result.equal, f"{result}\n{text}"


TEXT = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)SHARDING
  ROOT y = f32[4] negate(x)
}
"""


@pytest.mark.parametrize(("sharding", "devices", "divides"), [
    ("", None, False), ("", 1, False), ("", 2, True), (", sharding={devices=[2]<=[2]}", None, True),
    (", sharding={replicated}", None, True),  # annotations are checked where they are read
])  # fmt: skip
def test_the_short_way_is_for_one_device_alone(sharding: str, devices: int | None, divides: bool) -> None:
    assert ("spmd-partition" in passes_of(parse(TEXT.replace("SHARDING", sharding)), devices)) == divides


@pytest.mark.parametrize("given", ["", ", sharding={devices=[2]<=[2]}"])
def test_the_pass_refuses_a_program_for_several_devices(given: str) -> None:
    header = "HloModule two" + ("" if given else ", num_partitions=2")
    module = parse(f"{header}\nENTRY e {{\n  x = f32[4] parameter(0){given}\n  ROOT y = f32[4] sine(x)\n}}")
    with pytest.raises(CompileError, match=r"two is for 2 devices(.|\n)*help: spmd-partition"):
        run_passes(module, "one-device")
