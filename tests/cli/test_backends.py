"""`--backend`: the examples and random programs give the same numbers whoever computes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hloom.cli.backends import BACKENDS, Backend
from hloom.ir.graph.module import Module
from hloom.runtime.evaluator import evaluate
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.plan.kernels import NUMPY, KernelProvider
from hloom.runtime.simulator import simulate
from hypothesis import HealthCheck, given, settings
from programs.random.generate import REGIONS, programs
from support.command_line import EXAMPLES, hloom
from support.compare import compare
from support.partition_check import partitioned

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mlp_named", "transformer_train", "transformer_scan_train"])
def test_examples_pass_the_check(name: str, backend: str, tmp_path: Path) -> None:
    done = hloom("run", EXAMPLES / f"{name}.hlo", "--check", "--backend", backend, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "check passed" in done.out


def test_the_environment_names_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def kernels(self: Backend) -> KernelProvider:
        asked.append(self.name)
        return NUMPY

    monkeypatch.setattr(Backend, "kernels", kernels)
    hloom("eval", EXAMPLES / "mlp_named.hlo", cwd=tmp_path, HLOOM_BACKEND="numpy")
    hloom("eval", EXAMPLES / "mlp_named.hlo", cwd=tmp_path)
    assert asked == ["numpy", "reference"]


def test_unknown_backends_are_refused(tmp_path: Path) -> None:
    for arguments, variables in ((["--backend", "fast"], {}), ([], {"HLOOM_BACKEND": "fast"})):
        done = hloom("eval", EXAMPLES / "mlp_named.hlo", *arguments, cwd=tmp_path, **variables)
        assert done.code == 2
        assert "fast" in done.err


def agree(module: Module, by_numpy: bool) -> None:
    """Compares both programs, fused and with native kernels for all sizes, with the reference."""
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=3)
    local, fuse = partitioned(module), Backend("native").prepared
    with np.errstate(all="ignore"):
        pairs = [
            (simulate(fuse(local), inputs, True, NativeKernels(0, by_numpy)), simulate(local, inputs)),
            (evaluate(fuse(module), inputs, NativeKernels(0, by_numpy)), evaluate(module, inputs)),
        ]
    for found, expected in pairs:
        same = compare(found, expected)
        assert same.equal, f"{same}\n{module.to_text()}"


@settings(max_examples=40, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_random_programs_agree(module: Module) -> None:
    agree(module, by_numpy=False)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=QUIET)
@given(programs(outer=REGIONS))
def test_many_random_programs_agree(module: Module) -> None:
    agree(module, by_numpy=False)
    agree(module, by_numpy=True)
