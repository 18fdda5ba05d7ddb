"""Plans of models: partitioned on eight devices they compute what the model does, which a proof shows."""

from __future__ import annotations

from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.runtime.inputs.inputs import inputs_for_module
from support.command_line import EXAMPLES

pytest.importorskip("highspy")

SLOW = Cluster(links=parse_links("1ns/1GB"), memory_bytes=1e8, points=1e9)  # dividing pays for small programs, too


def check(module: hloom.Module, seconds: float = 10.0) -> None:
    found = hloom.plan(module, SLOW, mesh="4x2", seconds=seconds)
    own = [c.judged.seconds for c in found.candidates if c.name == "as annotated"]
    assert all(found.seconds <= seconds for seconds in own)
    local = hloom.partition(found.module, machine=SLOW)
    assert local.devices == 8
    inputs = inputs_for_module(module)
    for got, want in zip(hloom.simulate(local, inputs), hloom.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-4)
    assert hloom.prove(module, local, timeout=60).outcome not in ("differs", "unproved")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_train", "transformer_train", "transformer_scan_train"])
def test_plans_of_examples_compute_the_same(name: str) -> None:
    check(hloom.load(Path(EXAMPLES, f"{name}.hlo")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experts", "unet", "conformer", "decode"])
def test_plans_of_models_compute_the_same(name: str) -> None:
    pytest.importorskip("jax")
    from models import MODELS

    check(MODELS[name].small().module)
