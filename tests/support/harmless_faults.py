"""Planted mistakes that change nothing: groups of devices that hold the same, masks of zeros."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.graph.module import Module
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from support.compare import compare
from support.planted_faults import Fault


def check_harmless(module: Module, local: Module, missed: Sequence[Fault]) -> None:
    """Mistakes that a proof has missed change no result of a run."""
    inputs = inputs_for_module(module)
    right = simulate(local, inputs, poison=True) if missed else []
    for fault in missed:
        found = compare(simulate(fault.plant(local), inputs, poison=True), right)
        assert found.equal, f"{fault}: {found}\n{module.to_text()}"
