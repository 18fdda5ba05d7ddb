"""Reductions that XLA's CPU runtime lacks, or gets wrong, in the forms that it gets right."""

from __future__ import annotations

import importlib
from typing import Any

import hloom
import ml_dtypes
import numpy as np
import pytest
from hloom.codegen.for_cpu import for_cpu

PROGRAM = """HloModule m, num_partitions=4
f {{ a = {type}[] parameter(0)  b = {type}[] parameter(1)  ROOT r = {type}[] {op}(a, b) }}
ENTRY e {{
  x = {type}[8,6,4] parameter(0), sharding={{devices=[4,1,1]<=[4]}}
  i = {type}[] constant({start})
  whole = {type}[6,4] reduce(x, i), dimensions={{0}}, to_apply=f
  odd = {type}[] reduce(x, i), dimensions={{0,1,2}}, to_apply=f
  part = {type}[6,4] reduce(x, i), dimensions={{0}}, to_apply=f, sharding={{devices=[1,4]<=[4]}}
  ROOT t = ({type}[6,4], {type}[], {type}[6,4]) tuple(whole, odd, part), sharding={{{{replicated}}, {{replicated}}, {{devices=[1,4]<=[4]}}}}
}}
"""  # noqa: E501
FLOATS = ("f16", "bf16", "f32", "f64")


def program(op: str, type: str, start: str) -> hloom.Module:
    return hloom.partition(hloom.parse(PROGRAM.format(op=op, type=type, start=start)))


def values(type: str) -> Any:
    rng = np.random.default_rng(3)
    if type == "pred":
        return rng.integers(0, 2, (8, 6, 4)).astype(bool)
    if type in FLOATS:
        x = rng.standard_normal((8, 6, 4)).astype(np.float32)
        x[0, 0, 0], x[1, 1, 1], x[2, 2, 2], x[:, 3, 3] = np.nan, np.inf, -np.inf, -0.0
        return x.astype({"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}[type])
    return rng.integers(0, 100, (8, 6, 4)).astype({"s32": np.int32, "u8": np.uint8}[type])


CASES = [
    ("or", "s32", "0"), ("and", "s32", "-1"), ("xor", "s32", "0"), ("xor", "u8", "0"), ("xor", "pred", "false"),
    *((op, type, start) for type in FLOATS for op, start in (("maximum", "-inf"), ("minimum", "inf"))),
]  # fmt: skip


@pytest.mark.parametrize(("op", "type", "start"), CASES)
def test_the_same_numbers(op: str, type: str, start: str) -> None:
    local, x = program(op, type, start), values(type)
    changed = for_cpu(local)
    assert changed is not local
    hloom.verify(changed)
    for found, wanted in zip(hloom.simulate(changed, [x]), hloom.simulate(local, [x]), strict=True):
        np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(wanted, np.float64))


@pytest.mark.share(2)
@pytest.mark.parametrize(("op", "type", "start"), [CASES[0], CASES[2], CASES[4], CASES[9]])
def test_on_xla(op: str, type: str, start: str) -> None:
    jax: Any = pytest.importorskip("jax")
    if len(jax.devices()) < 4:
        pytest.skip("XLA has fewer than four devices")
    local, x = program(op, type, start), values(type)
    for found, wanted in zip(hloom.run_on_xla(local, [x]), hloom.simulate(local, [x]), strict=True):
        np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(wanted, np.float64))


def test_floats_send_as_many_bytes() -> None:
    local = program("maximum", "f32", "-inf")
    sent = [sum(c.sent_bytes for c in hloom.collectives(m)) for m in (local, for_cpu(local))]
    assert sent[0] == sent[1]


@pytest.mark.parametrize(
    ("op", "type", "start"), [("add", "f32", "0"), ("maximum", "s32", "0"), ("or", "pred", "false")]
)
def test_others_stay(op: str, type: str, start: str) -> None:
    local = program(op, type, start)
    assert for_cpu(local) is local


def test_jax_gets_them_wrong() -> None:
    """So that this is removed when it is no longer needed."""
    jax: Any = pytest.importorskip("jax")
    if len(jax.devices()) < 8:
        pytest.skip("XLA has fewer than eight devices")
    hloom_jax = importlib.import_module("hloom.jax")
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    floats = jax.device_put(np.array([1, np.nan, *range(14)], np.float32), sharding)
    numbers = jax.device_put(np.arange(16, dtype=np.int32), sharding)

    def greatest(x: Any) -> Any:
        return x.max()

    def xor(x: Any) -> Any:
        return jax.lax.reduce_xor(x, (0,))

    assert not np.isnan(jax.jit(greatest)(floats))
    assert np.isnan(hloom_jax.jit(greatest)(floats))
    with pytest.raises(jax.errors.JaxRuntimeError, match="Unsupported reduction"):
        jax.jit(xor)(numbers)
    assert hloom_jax.jit(xor)(numbers) == np.bitwise_xor.reduce(np.arange(16))
