"""Passes keep what they promise: one that reports no change changes nothing, one that breaks a module is named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import hloom
import pytest
from comm_programs.cases import programs
from hloom.ir.diagnostics import InternalError
from hloom.passes.base import Pass, PassContext, run_pass, run_pipeline
from hloom.passes.pipelines import PIPELINE
from support.command_line import EXAMPLES


def _unreported(module: hloom.Module) -> list[str]:
    """The passes of the pipeline that report no change and change the text all the same."""
    context, found = PassContext(num_devices=8), list[str]()
    before = module.to_text()
    for step in PIPELINE:
        changed = run_pass(step, module, context)
        after = module.to_text()
        if not changed and step.produces is None and after != before:
            found.append(step.name)
        before = after
    return found


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.hlo")), ids=lambda p: p.stem)
def test_passes_report_their_changes(path: Path) -> None:
    assert _unreported(hloom.load(path)) == []


def test_passes_report_their_changes_to_small_programs() -> None:
    assert {name: found for name, text in programs().items() if (found := _unreported(hloom.parse(text)))} == {}


@dataclass(frozen=True)
class Broken(Pass):
    """Leaves an instruction of a wrong shape."""

    name = "broken"

    def run(self, module: hloom.Module, context: PassContext) -> bool:
        module.entry.root.shape = hloom.parse_shape("f32[3]")
        return True


def test_a_pass_that_breaks_a_module_is_named() -> None:
    module = hloom.parse("ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }")
    with pytest.raises(InternalError, match="broken: left an invalid module"):
        run_pipeline([Broken()], module, PassContext(verify=True))
    run_pipeline([Broken()], module, PassContext())
