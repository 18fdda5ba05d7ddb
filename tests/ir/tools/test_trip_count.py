"""How often loops run: what the text says, and nothing where it does not."""

from __future__ import annotations

import pytest
from hloom import parse
from hloom.ir.tools.trip_count import runs_of_computations, trip_count


@pytest.mark.parametrize(
    ("start", "step", "limit", "direction", "trips"),
    [(0, 2, 7, "LT", 4), (0, 2, 6, "LE", 4), (8, -2, 0, "NE", 4), (0, 2, 8, "NE", 4), (9, 1, 7, "LT", 0),
     (0, 2, 7, "NE", None), (0, -1, 7, "NE", None), (0, -1, 7, "LT", None), (0, 1, 0, "EQ", None)],
)  # fmt: skip
def test_trips(start: int, step: int, limit: int, direction: str, trips: int | None) -> None:
    """A counter that steps over the value it is compared with goes on: how long, the width of its type would say."""
    module = parse(
        f"HloModule m\nc {{ s = s32[] parameter(0) n = s32[] constant({limit}) ROOT r = compare(s, n), "
        f"direction={direction} }}\nb {{ s = s32[] parameter(0) one = s32[] constant({step}) ROOT r = add(s, one) }}\n"
        f"ENTRY e {{ i = s32[] constant({start}) ROOT w = s32[] while(i), condition=c, body=b }}"
    )
    assert trip_count(module.entry.root) == trips


@pytest.mark.parametrize(("step", "trips"), [("add(c, one)", 7), ("add(one, c)", 7), ("add(x, one)", None)])
def test_a_fusion_may_compute_the_next_value_of_the_counter(step: str, trips: int | None) -> None:
    """Its parameters stand for its operands, of which the second is the counter."""
    module = parse(f"""HloModule m
    f {{ x = s32[] parameter(0) c = s32[] parameter(1) one = s32[] constant(1) n = s32[] {step}
        y = s32[] multiply(n, x) ROOT t = (s32[], s32[]) tuple(y, n) }}
    c {{ s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(7)
        ROOT r = pred[] compare(i, n), direction=LT }}
    b {{ s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0
        x = s32[] get-tuple-element(s), index=1 f = (s32[], s32[]) fusion(x, i), kind=kLoop, calls=f
        y = s32[] get-tuple-element(f), index=0 n = s32[] get-tuple-element(f), index=1
        ROOT r = (s32[], s32[]) tuple(n, y) }}
    ENTRY e {{ i = s32[] constant(0) x = s32[] parameter(0) t = (s32[], s32[]) tuple(i, x)
        ROOT w = (s32[], s32[]) while(t), condition=c, body=b }}""")
    assert trip_count(module.entry.root) == trips


def test_a_fusion_of_one_result_is_the_next_value_of_the_counter() -> None:
    module = parse("""HloModule m
    f { c = s32[] parameter(0) one = s32[] constant(2) ROOT n = s32[] add(c, one) }
    c { s = s32[] parameter(0) n = s32[] constant(7) ROOT r = pred[] compare(s, n), direction=LT }
    b { s = s32[] parameter(0) ROOT r = s32[] fusion(s), kind=kLoop, calls=f }
    ENTRY e { i = s32[] constant(0) ROOT w = s32[] while(i), condition=c, body=b }""")
    assert trip_count(module.entry.root) == 4


def test_an_element_of_a_tuple_within_a_fusion_is_no_state() -> None:
    """The fusion adds one to the other element of the state."""
    module = parse("""
    f { q = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(q), index=0 one = s32[] constant(1)
        ROOT r = s32[] add(i, one) }
    b { s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 x = s32[] get-tuple-element(s), index=1
        t = (s32[], s32[]) tuple(x, i) n = s32[] fusion(t), kind=kLoop, calls=f ROOT r = (s32[], s32[]) tuple(n, i) }
    c { s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 k = s32[] constant(5)
        ROOT r = pred[] compare(i, k), direction=LT }
    ENTRY e { z = s32[] constant(0) s = (s32[], s32[]) tuple(z, z)
        ROOT w = (s32[], s32[]) while(s), condition=c, body=b }""")
    assert trip_count(module.entry.root) is None


def test_a_computation_runs_as_often_as_all_that_call_it() -> None:
    """The branches of a conditional exclude each other."""
    module = parse("""HloModule m
more { p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT }
same { x = f32[] parameter(0)
  ROOT r = f32[] negate(x) }
layer { p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  b = pred[] compare(i, one), direction=EQ
  y = f32[] conditional(b, x, x), true_computation=same, false_computation=same
  ROOT r = (s32[], f32[]) tuple(j, y) }
ENTRY e { x = f32[] parameter(0)
  b = pred[] parameter(1)
  zero = s32[] constant(0)
  y = f32[] conditional(b, x, x), true_computation=same, false_computation=same
  s = (s32[], f32[]) tuple(zero, y)
  first = (s32[], f32[]) while(s), condition=more, body=layer
  z = f32[] get-tuple-element(first), index=1
  t = (s32[], f32[]) tuple(zero, z)
  second = (s32[], f32[]) while(t), condition=more, body=layer
  ROOT r = f32[] get-tuple-element(second), index=1 }""")
    runs = {computation.name: count for computation, count in runs_of_computations(module).items()}
    assert runs == {"e": 1, "more": 10, "layer": 10, "same": 11}
