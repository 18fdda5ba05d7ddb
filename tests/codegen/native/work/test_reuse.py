"""The bytes that caches no longer hold when a program uses them again."""

from __future__ import annotations

import hloom
from hloom.codegen.native.work.reuse import Reuse, lost
from hloom.cost.host import HOST

SIZE = HOST.near_cache // 4  # bytes of each array


def _of(text: str, size: int = SIZE) -> dict[str, tuple[float, float]]:
    """Returns the bytes that the last cache holds, and those that none does, by the names of ops."""
    reuse = Reuse(hloom.parse(text.replace("N]", f"{size // 4}]")), lambda _: None)
    return {instruction.name: (found.near, found.far) for instruction, found in reuse.of.items()}


def test_a_value_that_was_just_made_is_near_and_one_of_the_run_before_is_not() -> None:
    found = _of("""ENTRY e { x = f32[N] parameter(0)
 y = f32[N] parameter(1)
 a = f32[N] negate(x)
 b = f32[N] negate(a)
 ROOT c = f32[N] add(b, y) }""")
    assert 0.8 * SIZE < found["a"][0] < SIZE  # x, for its last use is four other arrays away
    assert found["b"][0] < 0.01 * SIZE  # the arena is half of the cache
    assert 1.6 * SIZE < found["c"][0] < 2 * SIZE  # y and the result, which lies outside of the arena
    assert all(far == 0 for _, far in found.values())


def test_a_cache_loses_bytes_before_it_is_full() -> None:
    """An array that is used all the time; pages that lie anywhere leave room in some sets and none in others."""
    shares = [lost(filled) for filled in (0, 0.5, 0.75, 1, 1.5, 2, 4)]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert shares[1] < 0.01 < 0.1 < shares[2] < 0.2 < 0.5 < shares[3] < 0.6 < 0.95 < shares[4]


def test_arrays_that_exceed_all_caches_are_far() -> None:
    count = 4 * HOST.streamed
    found = _of(f"ENTRY e {{ x = f32[{count}] parameter(0)\n ROOT a = f32[{count}] negate(x) }}")
    assert found["a"] == (0.0, 8.0 * count)


def test_slices_of_trips_are_read_for_the_first_time_and_state_is_not() -> None:
    loop = """body { p = (s32[], f32[N], f32[16,N]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 one = s32[] constant(1)
 zero = s32[] constant(0)
 next = s32[] add(i, one)
 x = f32[N] get-tuple-element(p), index=1
 all = f32[16,N] get-tuple-element(p), index=2
 row = f32[1,N] dynamic-slice(all, i, zero), dynamic_slice_sizes={1,N}
 flat = f32[N] reshape(row)
 y = f32[N] add(x, flat)
 ROOT t = (s32[], f32[N], f32[16,N]) tuple(next, y, all) }
test { p = (s32[], f32[N], f32[16,N]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant(16)
 ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { i = s32[] constant(0)
 x = f32[N] parameter(0)
 all = f32[16,N] parameter(1)
 t = (s32[], f32[N], f32[16,N]) tuple(i, x, all)
 ROOT w = (s32[], f32[N], f32[16,N]) while(t), condition=test, body=body }"""
    size = SIZE // 2
    found = _of(loop.replace("{1,N}", f"{{1,{size // 4}}}"), size)
    assert sum(found["row"]) >= size  # no trip before has read it
    assert sum(found["y"]) < 0.01 * size  # all is in the cache
