"""Programs that random search found to be wrong once, made small by `shrink`: they give the numbers of one device."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from partition_check import difference
from random_programs import inputs_of

_ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"

FOUND = {
    "padded updates of a scatter without places": _ADD + """ENTRY e {
  x = f32[2] parameter(0), sharding={replicated}
  updates = f32[2,3] iota(), iota_dimension=0, sharding={mesh['a'=2,'b'=2], [{'a'}, {'b'}]}
  places = s32[2,3,0] constant({ { {}, {}, {} }, { {}, {}, {} } }), sharding={replicated}
  ROOT r = f32[2] scatter(x, places, updates), update_window_dims={}, inserted_window_dims={},
    scatter_dims_to_operand_dims={}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=2,
    to_apply=add, sharding={replicated} }""",
}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_found(name: str) -> None:
    module = parse(f"HloModule m, num_partitions=4\n{FOUND[name]}")
    assert difference(module, inputs_of(module)) is None
