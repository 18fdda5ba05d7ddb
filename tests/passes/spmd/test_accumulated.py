"""Sums that a loop adds up stay sums of parts until they are added, so that a schedule reduces the total once."""

from __future__ import annotations

import hloom
import numpy as np
import pytest
from hloom.runtime.evaluator import evaluate
from hloom.runtime.inputs.inputs import inputs_for_module

# The gradient of a parameter that a loop broadcasts along the batch, as JAX writes it.
PROGRAM = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
body {
  s = (s32[], f32[16], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = f32[16] get-tuple-element(s), index=1
  x = f32[8,16] get-tuple-element(s), index=2
  one = s32[] constant(1)
  nil = f32[] constant(0)
  j = s32[] add(i, one)
  y = f32[8,16] sine(x)
  t = f32[16] reduce(y, nil), dimensions={0}, to_apply=add
  u = f32[1,16] reshape(t)
  d = f32[16] reduce(u, nil), dimensions={0}, to_apply=add
  h = f32[16] add(g, d)
  inner = (f32[16], f32[8,16]) tuple(h, y)
  h2 = f32[16] get-tuple-element(inner), index=0
  y2 = f32[8,16] get-tuple-element(inner), index=1
  ROOT next = (s32[], f32[16], f32[8,16]) tuple(j, h2, y2)
}
condition {
  s = (s32[], f32[16], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  g = f32[16] parameter(0), sharding={replicated}
  x = f32[8,16] parameter(1), sharding={devices=[4,1]<=[4]}
  begin = (s32[], f32[16], f32[8,16]) tuple(zero, g, x)
  end = (s32[], f32[16], f32[8,16]) while(begin), condition=condition, body=body
  ROOT r = f32[16] get-tuple-element(end), index=1, sharding={replicated}
}
"""
READ = PROGRAM.replace("y = f32[8,16] sine(x)", """k = f32[8,16] broadcast(g), dimensions={1}
  y = f32[8,16] multiply(x, k)""")


@pytest.mark.parametrize(("text", "kinds"), [(PROGRAM, ["all-reduce"]), (READ, ["all-gather"])], ids=["added", "read"])
def test_a_sum_that_a_loop_adds_up_is_reduced_once(text: str, kinds: list[str]) -> None:
    """Alone, the reduction of so few bytes takes longer than a gather of the batch."""
    whole = hloom.parse(text)
    inputs = inputs_for_module(whole)
    local = hloom.partition(whole, machine="tpu-v5p")
    assert [c.kind for c in hloom.collectives(local)] == kinds
    assert sum("select" in line for line in local.module.to_text().splitlines()) == 0, "zeros need no masks"
    program = hloom.compile(whole, machine="tpu-v5p", schedule=True)
    assert {c.count for c in hloom.collectives(program.local)} == {1 if text is PROGRAM else 5}
    for one in (local, program.local):
        (found,), (expected,) = hloom.simulate(one, inputs), evaluate(whole, inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


CHAIN = """HloModule chain
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  t = f32[33,16] parameter(0), sharding={mesh['x'=2,'y'=4], [{TABLE}, {}]}
  i = s32[63,1] parameter(1), sharding={mesh['x'=2,'y'=4], [{'y'}, {}]}
  u = f32[63,16] parameter(2), sharding={mesh['x'=2,'y'=4], [{'y'}, {}]}
  j = s32[63,1] parameter(3), sharding={mesh['x'=2,'y'=4], [{OTHER}, {}]}
  v = f32[63,16] parameter(4), sharding={mesh['x'=2,'y'=4], [{OTHER}, {}]}
  one = f32[33,16] scatter(t, i, u), HOW
  two = f32[33,16] scatter(one, j, v), HOW
  ROOT three = f32[33,16] scatter(two, i, v), HOW
}
""".replace("HOW", "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
            "index_vector_dim=1, to_apply=add")  # fmt: skip


@pytest.mark.parametrize(("table", "other", "reductions"), [("'x'", "'y'", 1), ("", "'y'", 1), ("", "'x'", 2)])
def test_scatters_into_one_table_are_reduced_once(table: str, other: str, reductions: int) -> None:
    """Where updates are divided alike, each scatter begins with the part of the table that the one before has left."""
    module = hloom.parse(CHAIN.replace("TABLE", table).replace("OTHER", other))
    local = hloom.partition(module)
    assert sum(c.kind == "all-reduce" for c in hloom.collectives(local)) <= reductions
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-40, 40, p.shape.dims).astype(p.shape.element.numpy) for p in module.entry.parameters]
    np.testing.assert_array_equal(hloom.simulate(local, inputs)[0], hloom.evaluate(module, inputs)[0])


# Messages along the edges of a graph: eight edges for each row of the table.
MESSAGES = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  h = f32[512,32] parameter(0), sharding={devices=[4,1]<=[4]}
  from = s32[4096] parameter(1), sharding={devices=[4]<=[4]}
  to = s32[4096] parameter(2), sharding={devices=[4]<=[4]}
  zero = f32[] constant(0)
  none = f32[512,32] broadcast(zero), dimensions={}
  sent = f32[4096,32] gather(h, from), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,32}
  ROOT r = f32[512,32] scatter(none, to, sent), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add, sharding={devices=[4,1]<=[4]}
}
"""


@pytest.mark.parametrize("machine", ["tpu-v3", "tpu-v4"])
def test_what_stays_partial_is_read_in_full_by_the_next_op(machine: str) -> None:
    """A gather from a divided table gives each device parts of all messages, which the scatter would have to read."""
    whole = hloom.parse(MESSAGES)
    inputs = inputs_for_module(whole)
    local = hloom.partition(whole, machine=machine)
    assert [c.kind for c in hloom.collectives(local)] == ["all-gather", "reduce-scatter"]
    (sent,) = (i for i in local.module.entry if i.opcode == "gather")
    assert sent.shape.dims == (1024, 32)
    np.testing.assert_allclose(hloom.simulate(local, inputs)[0], evaluate(whole, inputs)[0], rtol=1e-5, atol=1e-5)
