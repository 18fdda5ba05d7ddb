"""Removing the annotations of a program."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.runtime.inputs.inputs import inputs_for_module

ANNOTATED = """HloModule m, num_partitions=4, frontend_attributes={xla.sdy.meshes="{m = #sdy.mesh<[\\"a\\"=4]>}"},
  allow_spmd_sharding_propagation_to_output={true}
ENTRY e {
  x = f32[8,4] parameter(0), sharding={mesh['a'=2,'b'=2], [{'a'}, {'b'}]}
  w = f32[4,8] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [{}, {\\"a\\"}]>",other="1"}
  pin = f32[8,4] custom-call(x), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}
  y = f32[8,8] dot(pin, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
  g = () custom-call(y), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true,
    frontend_attributes={xla.sdy.sharding_group_id="0 : i64"}
  ROOT r = f32[8,8] custom-call(y), custom_call_target="xla.sdy.FuncResultSharding"
}
"""
PLAIN = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,8] parameter(1), frontend_attributes={other="1"}
  ROOT y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_nothing_of_the_shardings_stays_and_the_numbers_do() -> None:
    module, annotated = hloom.parse(ANNOTATED), hloom.parse(ANNOTATED)
    hloom.strip_annotations(module)
    assert module.to_text() == hloom.parse(PLAIN).to_text()
    inputs = inputs_for_module(annotated)
    for a, b in zip(hloom.evaluate(module, inputs), hloom.evaluate(annotated, inputs), strict=True):
        assert np.array_equal(a, b)
    assert hloom.partition(module, 1).devices == 1


def test_a_manual_region_is_named() -> None:
    text = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  in = f32[4] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}
  same = f32[4] custom-call(in), custom_call_target="Sharding", sharding={manual}
  ROOT out = f32[8] custom-call(same), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]}
}
"""
    with pytest.raises(hloom.CompileError, match=r"in begins or ends a manual region[^$]*outside of shard_map"):
        hloom.strip_annotations(hloom.parse(text))


def test_what_is_on_one_device_for_its_effects_stays_on_one() -> None:
    """Such as the call of a Python function, which every device would make."""
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  told = () custom-call(x), custom_call_target="tell", custom_call_has_side_effect=true, sharding={maximal device=3}
  sent = f32[8] custom-call(x), custom_call_target="send", custom_call_has_side_effect=true,
    sharding={maximal device=3}
  ROOT y = f32[8] add(x, sent), sharding={maximal device=3}
}
"""
    module = hloom.parse(text)
    hloom.strip_annotations(module)
    hloom.verify(module)
    found = {i.name: str(i.sharding) for i in module.entry if i.sharding is not None}
    assert found == {"told": "{maximal device=0}", "sent": "{maximal device=0}"}
    again = hloom.parse(module.to_text())
    assert hloom.partition(again, 2).devices == 2


def test_only_a_global_program_has_annotations() -> None:
    with pytest.raises(hloom.CompileError, match="m is local"):
        hloom.strip_annotations(hloom.partition(hloom.parse(PLAIN), 2))
