"""Scheduled models run on XLA's devices as unscheduled: XLA takes combined collectives as they are meant.

The models compute in bf16, where XLA rounds elsewhere than the simulator, so that both programs run by XLA.
"""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.passes.base import PassContext
from hloom.passes.pipelines import partition
from hloom.passes.scheduling import schedule
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.xla import run_on_xla

pytest.importorskip("jax")
models = pytest.importorskip("models")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if name == "ring" else pytest.mark.slow) for name in models.MODELS
])  # fmt: skip
def test_model(name: str) -> None:
    context = PassContext(machine=hloom.parse_machine("h100"))
    local = partition(hloom.parse(models.MODELS[name].small().module.to_text()), context)
    inputs = inputs_for_module(local)
    plain = run_on_xla(local, inputs)
    schedule(local, context, 0)
    for found, wanted in zip(run_on_xla(local, inputs), plain, strict=True):
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-3 * max(1.0, np.abs(wanted).max()))
