"""Programs as artifacts of `jax.export`: JAX runs them, and Hloom reads them back."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import hloom
import hloom.jax
import numpy as np
import pytest
from support.command_line import NAMED

jax: Any = pytest.importorskip("jax")


def inputs(module: hloom.Module) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]


def test_partitioned_programs_run_in_jax(tmp_path: Path) -> None:
    if len(jax.devices()) < 8:
        pytest.skip("XLA has fewer than eight devices")
    pytest.importorskip("flatbuffers")
    module = hloom.load(NAMED)
    local = hloom.partition(module)
    exported = hloom.jax.exported(local)
    assert exported.nr_devices == 8
    (tmp_path / "mlp.bin").write_bytes(exported.serialize())
    again = importlib.import_module("jax.export").deserialize(bytearray((tmp_path / "mlp.bin").read_bytes()))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("d",))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    arguments = [jax.device_put(value, whole) for value in inputs(module)]
    for found, wanted in zip(jax.jit(again.call)(*arguments), hloom.evaluate(module, inputs(module)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert hloom.load(tmp_path / "mlp.bin").num_partitions == 8


def test_programs_of_one_device() -> None:
    module = hloom.parse("ENTRY e { a = f32[4] parameter(0)  b = f32[4] sine(a)  ROOT r = f32[4] add(a, b) }")
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(jax.jit(hloom.jax.exported(module).call)(x)[0], x + np.sin(x), rtol=1e-6)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_programs_for_platforms_that_are_not_here(platform: str) -> None:
    for module in (hloom.parse("ENTRY e { ROOT a = f32[4] parameter(0) }"), hloom.partition(hloom.load(NAMED))):
        assert hloom.jax.exported(module, platform).platforms == (platform,)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: hloom.load(NAMED), "has shardings, which are not exported"),
    (lambda: hloom.partition(hloom.parse(
        "ENTRY e { a = f32[7] parameter(0), sharding={devices=[2]<=[2]}  ROOT b = f32[7] sine(a) }")),
     "is not divided evenly"),
])  # fmt: skip
def test_programs_that_cannot_be_exported(make: Any, message: str) -> None:
    with pytest.raises(hloom.CompileError, match=message):
        hloom.jax.exported(make())
