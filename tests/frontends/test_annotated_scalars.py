"""Annotations inside of computations on elements, as JAX writes them into partly manual regions: they mean nothing."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.diagnostics import CompileError
from hloom.ir.graph.monoid import reduction_monoid
from hloom.ir.ops.calls.custom_call import is_annotation
from hloom.runtime.check.simulated import check_simulated
from hloom.runtime.evaluator import evaluate

NOTE = 'custom-call(VALUE), custom_call_target="Sharding", sharding={replicated}'


def noted(value: str) -> str:
    return NOTE.replace("VALUE", value)


PROGRAM = f"""HloModule m, num_partitions=4
inner {{ a = f32[] parameter(0)  b = f32[] parameter(1)  s = f32[] add(a, b)  ROOT r = f32[] {noted("s")} }}
sum {{
  a = f32[] parameter(0)
  c = f32[] {noted("a")}
  b = f32[] parameter(1)
  d = f32[] {noted("b")}
  s = f32[] call(c, d), to_apply=inner
  ROOT r = f32[] {noted("s")}
}}
second {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] {noted("b")} }}
less {{
  a = f32[] parameter(0)
  c = f32[] {noted("a")}
  b = f32[] parameter(1)
  d = f32[] {noted("b")}
  s = pred[] compare(c, d), direction=LT
  ROOT r = pred[] {noted("s")}
}}
ENTRY e {{
  x = f32[64,8] parameter(0), sharding={{devices=[4,1]<=[4]}}
  zero = f32[] constant(0)
  start = f32[] {noted("zero")}
  sorted = f32[64,8] sort(x), dimensions={{0}}, to_apply=less
  total = f32[8] reduce(sorted, start), dimensions={{0}}, to_apply=sum
  running = f32[64,8] reduce-window(x, zero), window={{size=64x1 pad=63_0x0_0}}, to_apply=sum
  place = s32[1] constant({{2}})
  new = f32[1,8] reshape(total)
  set = f32[64,8] scatter(sorted, place, new), update_window_dims={{0,1}}, inserted_window_dims={{}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=0, to_apply=second
  ROOT out = (f32[8], f32[64,8], f32[64,8]) tuple(total, running, set)
}}"""


def expected(x: Any) -> list[Any]:
    ordered = np.sort(x, axis=0)
    placed = ordered.copy()
    placed[2] = ordered.sum(0)
    return [ordered.sum(0), np.cumsum(x, 0), placed]


def test_annotations_of_elements_are_dropped() -> None:
    module = hloom.parse(PROGRAM)
    assert {i.parent for c in module for i in c if is_annotation(i)} == {module.entry}
    reduce = module.entry.find("total")
    assert reduce is not None
    assert reduction_monoid(reduce.called()[0]) is not None
    x = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    for found, wanted in zip(evaluate(module, [x]), expected(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_programs_without_them_are_divided_as_well() -> None:
    module = hloom.parse(PROGRAM)
    x = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    local = hloom.partition(module).module
    assert check_simulated(module, local, [x]).passed
    text = local.to_text()
    assert "all-reduce(" in text  # since the monoid is known
    wrong = hloom.parse(text.replace("add(", "subtract(", 1))
    assert not check_simulated(module, wrong, [x]).passed


def test_annotations_of_values_that_control_flow_computes_stay() -> None:
    """A computation that is run and applied is left alone."""
    text = f"""HloModule m, num_partitions=4
sum {{ a = f32[] parameter(0)  b = f32[] parameter(1)  s = f32[] add(a, b)  ROOT r = f32[] {noted("s")} }}
ENTRY e {{
  x = f32[8] parameter(0)
  zero = f32[] constant(0)
  total = f32[] reduce(x, zero), dimensions={{0}}, to_apply=sum
  ROOT r = f32[] call(total, total), to_apply=sum
}}"""
    module = hloom.parse(text)
    assert module.to_text().count("Sharding") == 1
    np.testing.assert_array_equal(evaluate(module, [np.ones(8, np.float32)])[0], 16)


def test_wrong_annotations_are_still_reported() -> None:
    text = PROGRAM.replace('s = f32[] add(a, b)  ROOT r = f32[] custom-call(s)',
                           's = f32[] add(a, b)  ROOT r = f32[] custom-call(s, a)')  # fmt: skip
    with pytest.raises(CompileError, match="takes one operand"):
        hloom.parse(text)


def test_sums_in_partly_manual_regions_of_jax_have_a_monoid() -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.AbstractMesh((2, 3), ("d", "m"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    p = jax.sharding.PartitionSpec

    def rows(x: Any) -> Any:
        return jax.lax.psum(jax.numpy.sort(x, axis=0), "d"), jax.lax.pmax(jax.numpy.cumsum(x, 0), "d")

    def program(x: Any) -> Any:
        return jax.shard_map(rows, mesh=mesh, in_specs=p("d"), out_specs=p(), axis_names={"d"})(x)

    spec = jax.sharding.NamedSharding(mesh, p("d", "m"))
    module = hloom.jax.from_jax(program, jax.ShapeDtypeStruct((8, 6), np.float32, sharding=spec))
    reducers = [i.called()[0] for c in module for i in c if i.op.is_collective]
    assert len(reducers) == 2
    assert None not in [reduction_monoid(r) for r in reducers]
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    summed, largest = evaluate(module, [x])
    np.testing.assert_allclose(summed, np.sort(x[:4], 0) + np.sort(x[4:], 0), rtol=1e-6)
    np.testing.assert_allclose(largest, np.maximum(np.cumsum(x[:4], 0), np.cumsum(x[4:], 0)), rtol=1e-5)
    local = hloom.partition(module).module
    assert check_simulated(module, local, [x]).passed
    wrong = hloom.parse(local.to_text().replace(" maximum(", " minimum("))
    assert not check_simulated(module, wrong, [x]).passed
