"""Programs per device that Hloom did not make: XLA's own, compiled for several devices, and hand-written ones."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.tools.spmd import is_per_device

F = np.float32
RING = """HloModule ring, num_partitions=4
ENTRY e {
  x = f32[2] parameter(0)
  p = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  n = u32[] partition-id()
  f = f32[] convert(n)
  b = f32[2] broadcast(f), dimensions={}
  ROOT s = f32[2] add(p, b)
}
"""
NUMBERS = np.repeat(np.arange(4, dtype=F)[:, None], 2, 1)


def test_what_nothing_places_is_the_same_on_all_devices_or_counted_by_the_first_dimension() -> None:
    module = hloom.parse(RING)
    one, each = np.array([10, 20], F), np.arange(8, dtype=F).reshape(4, 2)
    np.testing.assert_array_equal(hloom.simulate(module, [one])[0], one + NUMBERS)
    np.testing.assert_array_equal(hloom.simulate(module, [each])[0], each[[3, 0, 1, 2]] + NUMBERS)
    with pytest.raises(hloom.CompileError, match=r"dimensions \[3, 2\], the program takes f32\[4,2\]"):
        hloom.simulate(module, [each[:3]])


def test_shardings_place_whole_arrays() -> None:
    module = hloom.parse(RING.replace("parameter(0)", "parameter(0), sharding={devices=[4]<=[4]}"))
    x = np.arange(8, dtype=F)
    np.testing.assert_array_equal(hloom.simulate(module, [x])[0], x.reshape(4, 2)[[3, 0, 1, 2]] + NUMBERS)
    narrow = hloom.parse(RING.replace("num_partitions=4", "replica_count=4").replace(
        "channel_id=1, ", "").replace("partition-id", "replica-id").replace(
        "parameter(0)", "parameter(0), sharding={devices=[2]<=[2]}"))  # fmt: skip
    with pytest.raises(hloom.CompileError, match="is over 2 devices, the program has 1"):
        hloom.simulate(narrow, [x])


def test_replicas_are_devices() -> None:
    text = RING.replace("num_partitions=4", "replica_count=4").replace("channel_id=1, ", "")
    module = hloom.parse(text.replace("partition-id", "replica-id"))
    np.testing.assert_array_equal(hloom.simulate(module, [np.zeros(2, F)])[0], NUMBERS)


@pytest.mark.parametrize(
    ("text", "per_device"),
    [
        (RING, True),
        ("HloModule m, is_scheduled=true, num_partitions=2\nENTRY e { ROOT x = f32[2] parameter(0) }", True),
        ("HloModule m, is_scheduled=true\nENTRY e { ROOT x = f32[2] parameter(0) }", False),
        ("HloModule m, num_partitions=2\nENTRY e { ROOT x = f32[2] parameter(0) }", False),
        ("HloModule m, num_partitions=4\nENTRY e { x = f32[2] parameter(0)\n"
         "ROOT r = f32[2] collective-permute(x), source_target_pairs={{0,0}} }", False),
    ],
    ids=["communicates", "scheduled", "scheduled alone", "silent", "one replica"],
)  # fmt: skip
def test_programs_per_device_are_recognised(text: str, per_device: bool) -> None:
    module = hloom.parse(text)
    assert is_per_device(module) is per_device
    x = [np.ones(2, F)]
    runs, refuses = (hloom.simulate, hloom.evaluate) if per_device else (hloom.evaluate, hloom.simulate)
    runs(module, x)
    with pytest.raises(hloom.CompileError, match="and cannot run on one" if per_device else "partition it first"):
        refuses(module, x)


def test_what_is_scheduled_for_several_devices_is_not_divided_again() -> None:
    text = "HloModule m, is_scheduled=true, num_partitions=2\nENTRY e { ROOT x = f32[2] parameter(0) }"
    with pytest.raises(hloom.CompileError, match="it is the program of each of them already"):
        hloom.partition(hloom.parse(text))


def test_ranks_too_are_told_to_partition_first() -> None:
    module = hloom.parse("HloModule m, num_partitions=4\nENTRY e { ROOT x = f32[4] parameter(0) }")
    one_rank: Any = type("Comm", (), {"size": 1, "rank": 0})()
    with pytest.raises(hloom.CompileError, match="m is not partitioned yet") as error:
        hloom.run(module, [], one_rank)
    assert error.value.diagnostics[0].help == "partition it first: hloom.partition(module)"


def compiled(function: Any, arguments: tuple[Any, ...], ins: Any, outs: Any = None) -> str:
    """XLA's program per device, on a mesh of 2 x 4 devices."""
    jax: Any = pytest.importorskip("jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("x", "y"))

    def place(spec: Any) -> Any:
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))

    options = {} if outs is None else {"out_shardings": tuple(map(place, outs))}
    jitted = jax.jit(function, in_shardings=tuple(map(place, ins)), **options)
    return jitted.lower(*arguments).compile().as_text()


def test_compiled_by_xla() -> None:
    """Fusions and combined collectives; the parameters carry shardings, the results do not."""
    jnp: Any = pytest.importorskip("jax.numpy")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((8, 16)).astype(F), rng.standard_normal((16, 8)).astype(F)
    outs = [("x", None), (), (None, "y")]

    def function(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w), x.sum(), jnp.sort(w, axis=0)

    module = hloom.parse(compiled(function, (x, w), [("x", "y"), ("y", None)], outs))
    product, total, ordered = hloom.simulate(module, [x, w])
    assert product.shape == (8, 4, 8)
    np.testing.assert_allclose(np.concatenate([product[0], product[4]]), np.tanh(x @ w), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, np.full(8, x.sum()), rtol=1e-5)
    np.testing.assert_array_equal(np.concatenate(ordered[:4], 1), np.sort(w, 0))
