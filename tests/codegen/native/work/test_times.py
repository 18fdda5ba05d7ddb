"""Counts of what native code does, and forecasts by them."""

from __future__ import annotations

import re

import hloom
import pytest
from hloom.codegen.native.products.product import is_provided
from hloom.codegen.native.work.counts import KernelWork
from hloom.codegen.native.work.reuse import Reuse
from hloom.cost.machine import Cluster
from hloom.cost.native_speed import NativeSpeed
from hloom.driver.backend import NATIVE, Backend
from hloom.driver.calibration import NativePrograms
from hloom.driver.native_clock import native_clock, program_work
from hloom.driver.native_cold import with_updates
from hloom.driver.native_nests import nests
from hloom.driver.native_programs import native_programs
from hloom.runtime.calibrate import Timer

pytestmark = pytest.mark.skipif(not is_provided(), reason="needs native code")

ROWS = """add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[8,64] parameter(0)
  z = f32[] constant(0)
  s = f32[8] reduce(x, z), dimensions={1}, to_apply=add
  b = f32[8,64] broadcast(s), dimensions={0}
  ROOT r = f32[8,64] divide(x, b)
}"""
LOOP = """body { p = (s32[], f32[4,64]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 one = s32[] constant(1)
 zero = s32[] constant(0)
 next = s32[] add(i, one)
 old = f32[4,64] get-tuple-element(p), index=1
 row = f32[1,64] constant({...})
 new = f32[4,64] dynamic-update-slice(OLD, row, i, zero)
 ROOT t = (s32[], f32[4,64]) tuple(next, new) }
test { p = (s32[], f32[4,64]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant(5)
 ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { i = s32[] constant(0)
 x = f32[4,64] parameter(0)
 t = (s32[], f32[4,64]) tuple(i, x)
 ROOT w = (s32[], f32[4,64]) while(t), condition=test, body=body }"""


def _counts(text: str) -> dict[str, float]:
    found = KernelWork()
    for times, work in program_work(Backend(NATIVE).prepared(hloom.parse(text))):
        found.add(work, times)
    return {name: count for name, count in found.items() if count}


def test_a_product_counts_its_multiply_adds_with_whole_strips_of_columns() -> None:
    text = """ENTRY e { x = f32[32,24] parameter(0)
 y = f32[24,40] parameter(1)
 ROOT d = f32[32,40] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    found = _counts(text)
    assert 0 < found.pop("cold") < 1  # few bytes since the run before
    assert found == {"entry": 1, "table": 1, "held": 3, "run": 1, "array": 3, "tile": 1, "panel": 24 * 48,
                     "tile_multiply": (5 * 6 * 3 + 8) * 16 * 24, "tile_element": 32 * (24 + 48)}  # fmt: skip


def test_a_product_with_a_vector_is_not_one_of_matrices() -> None:
    """BLAS has a routine of its own for vectors, whose call takes less; machine code decides alike."""
    text = """ENTRY e { x = f32[6,ROWS,20] parameter(0)
 y = f32[6,COLUMNS,20] parameter(1)
 ROOT d = f32[6,ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={2}, rhs_contracting_dims={2}, lhs_batch_dims={0},
  rhs_batch_dims={0} }"""
    for rows, columns, kind in ((12, 1, "vector"), (1, 12, "vector"), (12, 2, "blas")):
        found = _counts(text.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)))
        assert (found[kind], found[f"{kind}_multiply"]) == (6, 6 * rows * columns * 20)
        assert len(found.keys() & {"vector", "blas", "tile"}) == 1


def test_tiles_of_few_rows_and_columns_wait_for_their_sums() -> None:
    """Of six rows and a vector a tile has six sums, where a processor adds to eight at once; of 24 as many as it likes.
    """
    text = """ENTRY e { x = f32[ROWS,24] parameter(0)
 y = f32[24,COLUMNS] parameter(1)
 ROOT d = f32[ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    for rows, columns, sums in ((33, 8, 7 * 8), (36, 64, 6 * 24), (38, 64, 6 * 24 + 8), (36, 72, 6 * 24 + 6 * 8)):
        found = _counts(text.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)))
        assert found["tile_multiply"] == sums * 16 * 24, (rows, columns)


def test_a_loop_copies_the_state_that_it_changes_past_the_cache() -> None:
    """In: three megabytes are read and written, and twelve kilobytes stay where they are."""
    large, small = (sum(_copied(width)) for width in (16384, 64))
    assert 6 << 20 < large < 8 << 20
    assert small < 1


def _copied(width: int) -> tuple[float, float]:
    """Returns the bytes past caches of copying the state of a loop of the calibration, which writes 24 stacks."""
    text = next(t for t in native_programs() if f"new23 = f32[2,{width}]" in t)
    module = hloom.parse(text)
    return Reuse(module, lambda _: None, lambda _: True).of[module.entry.root][1:]


def test_python_whose_code_other_python_displaces() -> None:
    """Windows that numpy computes come once in a run; updates by Python come all the time."""
    text = next(t for t in native_programs() if "reduce-window" in t)
    assert "displaced" not in _counts(text)
    assert 85 < _counts(with_updates(text))["displaced"] < 120  # microseconds of the windows, and little of the updates


def test_rows_with_a_sum_are_a_fold_each_and_move_their_strips() -> None:
    found = _counts(ROWS)
    assert (found["fold"], found["nest"], found["table"]) == (8, 1, 1)
    assert found["division"] == 8 * 4
    assert found["move"] >= 8 * 4 * 2  # read and written, 16 columns at a time


def test_loops_that_update_arrays_are_machine_code() -> None:
    """An array of the state is updated in place, and so is one that the trip makes; one that is read later is copied.
    """
    text = LOOP.replace("constant({...})", f"constant({{{{{','.join(['1'] * 64)}}}}})")
    found = [_counts(text.replace("OLD", "old"))]
    found.append(_counts(re.sub(r"new = (.*)OLD", r"turned = f32[4,64] negate(old)\n new = \1turned", text)))
    later = "put = \\1old, row, i, zero)\n new = f32[4,64] add(old, put)\n ROOT t"
    found.append(_counts(re.sub(r"new = (.*)OLD, row, i, zero\)\n ROOT t", later, text)))
    assert [(f["loop"], f["trip"], f.get("call", 0)) for f in found] == [(1, 5, 0)] * 3
    put = 5 * 2 * 256 / 64  # in five trips a row is read and written
    rest = found[1]["move"] - found[0]["move"]  # of the negation
    assert found[0]["move"] == pytest.approx(put)
    assert 0 < rest < found[2]["move"] - put
    assert found[2]["move"] > 5 * put, "the whole array is copied, added and put"


def test_only_python_starts_a_loop() -> None:
    """A loop in machine code costs that once; the loops in its trips cost a few trips more."""
    found = [_counts(text) for text in nests()]
    assert [f["loop"] for f in found] == [1, 1]
    assert [f["trip"] for f in found] == [2000 + 2000 * (2 + 5), 300 + 300 * (12 + 5)]


def test_an_update_of_a_repeated_number_writes_the_whole_array() -> None:
    """Nothing can be written into a broadcast; an array of the program is updated in its place."""
    text = """add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e { i = s32[256,1] parameter(0)
 u = f32[256] parameter(1)
 z = f32[] constant(0)
 p = f32[1048576] parameter(2)
 x = f32[1048576] OPERAND
 ROOT r = f32[1048576] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, to_apply=add,
  scatter_dims_to_operand_dims={0}, index_vector_dim=1 }"""
    repeated, made = (_counts(text.replace("OPERAND", o)) for o in ("broadcast(z), dimensions={}", "negate(p)"))
    assert repeated["near"] > 0.7 * 4 * 1048576, "all that the second cache does not hold"
    assert made["near"] == pytest.approx(2 * 4 * 1048576, rel=0.01), "what the negation reads and writes"


def test_converted_operands_and_results_of_products_pass_through_memory() -> None:
    text = """ENTRY e { x = TYPE[32,128,8] parameter(0)
 y = TYPE[32,8,128] parameter(1)
 ROOT d = TYPE[32,128,128] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
  rhs_contracting_dims={1} }"""
    near = {kind: _counts(text.replace("TYPE", kind)).get("near", 0) for kind in ("bf16", "f32")}
    result = 4 * 32 * 128 * 128
    assert near["f32"] == pytest.approx(result, rel=0.2)
    assert near["bf16"] > 1.8 * result, "the result is written in f32 and then read"


def test_updates_by_python_are_calls() -> None:
    text = "ENTRY e { x = f32[4,64] parameter(0)\n p = f32[1,64] parameter(1)\n i = TYPE[] constant(1)\n "
    text += "ROOT r = f32[4,64] dynamic-update-slice(x, p, i, i) }"
    python, table = (_counts(text.replace("TYPE", kind)) for kind in ("u64", "s32"))
    assert (python["update"], python["taken"]) == (1, 5 * 256)
    assert (table["entry"], table["move"], table["taken"], table["held"]) == (1, 2 * 256 / 64, 4 * 256, 3)
    assert "update" not in table


def test_all_branches_are_counted_and_the_first_one_is_the_time() -> None:
    text = """yes { a = f32[64,128] parameter(0)
 ROOT r = f32[64,128] divide(a, a) }
no { b = f32[64,128] parameter(0)
 ROOT r = f32[64,128] negate(b) }
ENTRY e { p = pred[] parameter(0)
 x = f32[64,128] parameter(1)
 y = f32[64,128] parameter(2)
 ROOT r = f32[64,128] conditional(p, x, y), true_computation=yes, false_computation=no }"""
    found = _counts(text)
    assert (found["division"], found["table"], found["call"]) == (64 * 8, 1, 2)


def test_accesses_that_share_a_place_of_the_first_cache_are_crowded() -> None:
    """Rows of 4096 bytes begin at one place, which holds twelve of the 64 that a row of the result reads."""
    text = """ENTRY e { x = f32[64,WIDTH] parameter(0)
 t = f32[WIDTH,64] transpose(x), dimensions={1,0}
 s = f32[HALF,64] slice(t), slice={[0:WIDTH:2],[0:64]}
 ROOT r = f32[HALF,64] negate(s) }"""
    aligned, padded = (_counts(text.replace("WIDTH", str(2 * half)).replace("HALF", str(half))) for half in (512, 520))
    assert aligned["scattered"] == aligned["crowded"] == 64 * 512
    assert padded["scattered"] == 64 * 520
    assert "crowded" not in padded


def test_views_take_no_time() -> None:
    """A transposition and a slice that others read where they lie are no kernels, and move nothing."""
    speed = NativeSpeed(move=1e-9, turned=1e-9, run=1e-5, table=2e-6)
    as_run = native_clock(hloom.parse("""HloModule m
ENTRY e { x = f32[64,96] parameter(0)
 t = f32[96,64] transpose(x), dimensions={1,0}
 s = f32[48,64] slice(t), slice={[0:96:2],[0:64]}
 b = f32[48,64] opt-barrier(s)
 ROOT n = f32[48,64] negate(b) }"""), Cluster(native_speed=speed))  # fmt: skip
    assert as_run is not None
    module, clock = as_run
    taken = {i.opcode: clock.parts(i).total for i in module.entry}
    assert taken["transpose"] == taken["slice"] == 0.0
    assert taken[module.entry.root.opcode] > 0.0


_TURNED = """ENTRY e { x = TYPE[ROWS,WIDTH] parameter(0)
 t = TYPE[WIDTH,ROWS] transpose(x), dimensions={1,0}
 ROOT r = TYPE[WIDTH,ROWS] negate(t) }"""


def test_turned_elements_count_by_strips() -> None:
    text = _TURNED.replace("ROWS", "40").replace("WIDTH", "1040")
    word, half = (_counts(text.replace("TYPE", element)) for element in ("f32", "s16"))
    assert word["turned"] == 2 * half["turned"] == 48 * 1040
    assert "crowded" not in word
    assert "scattered" not in word


def test_lines_of_turned_squares_are_crowded_where_they_share_a_place() -> None:
    """Each line of 16 elements counts once: of 64 that are 4 KB apart all are lost, of 64 that are 2 KB apart some."""
    text = _TURNED.replace("ROWS", "64").replace("TYPE", "f32")
    near, far = (_counts(text.replace("WIDTH", width)) for width in ("512", "1024"))
    assert far["crowded"] == 64 * 1024 / 16
    assert 0 < near["crowded"] < 64 * 512 / 16


def test_elements_of_half_a_word_that_move_alone_count_apart() -> None:
    """Processors gather words, and take narrower elements one by one: here every other one of a
    transposed array.
    """
    text = """ENTRY e { x = TYPE[48,160] parameter(0)
 t = TYPE[160,48] transpose(x), dimensions={1,0}
 s = TYPE[80,48] slice(t), slice={[0:160:2],[0:48]}
 ROOT r = TYPE[80,48] negate(s) }"""
    word, half = (_counts(text.replace("TYPE", element)) for element in ("f32", "bf16"))
    assert word["scattered"] == half["narrow"] == 80 * 48
    assert "narrow" not in word
    assert "scattered" not in half


def test_lines_that_a_convolution_adds_to_are_crowded_if_they_share_a_place() -> None:
    """Of 64 rows of a result, 4 KB apart, no more than twelve stay; with rows of 65 lines all do."""
    text = """ENTRY e { x = f32[1,64,WIDTH,16] parameter(0)
 k = f32[3,3,16,16] parameter(1)
 ROOT r = f32[1,64,WIDTH,16] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f }"""
    aligned, padded = (_counts(text.replace("WIDTH", str(width))) for width in (64, 65))
    assert aligned["tile_crowded"] > 64 * 64
    assert "tile_crowded" not in padded


def test_windows_that_numpy_computes_count_their_positions() -> None:
    text = """max { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
ENTRY e { x = f32[25,25,8] parameter(0)
 low = f32[] constant(-inf)
 ROOT r = f32[9,9,8] reduce-window(x, low), window={size=9x9x1 stride=2x2x1}, to_apply=max }"""
    found = _counts(text)
    assert (found["call"], found["window"], found["windowed"]) == (1, 18, 9 * 9 * 25 * 8 + 9 * 9 * 9 * 8)


def test_python_is_cold_after_kernels_that_touch_more_than_the_cache() -> None:
    text = "ENTRY e { x = f32[SIZE] parameter(0)\n ROOT r = f32[SIZE] negate(x) }"
    small, large = (_counts(text.replace("SIZE", str(size))) for size in (1024, 1 << 18))
    assert large["cold"] > 100 * small["cold"] > 0
    assert "near" not in small
    assert large["near"] > 0


def test_a_forecast_is_the_time_of_the_counts() -> None:
    speed = NativeSpeed(fold=1e-6, division=1e-8, run=1e-5, table=2e-6)
    as_run = native_clock(hloom.parse(ROWS), Cluster(native_speed=speed))
    assert as_run is not None
    module, clock = as_run
    line = hloom.timeline(module, Cluster(native_speed=speed), clock)
    assert line.seconds == pytest.approx(8e-6 + 32e-8 + 1e-5 + 2e-6)
    assert native_clock(hloom.parse(ROWS), Cluster()) is None


def test_the_programs_of_the_calibration_do_all_that_is_measured() -> None:
    """Each program is read; their texts differ, and none is one of the models. With a large array one takes longer."""
    texts = list(native_programs())
    assert len(set(texts)) == len(texts) > 60
    done = set[str]()
    for text in texts[::9]:
        done |= set(_counts(text))
    assert {"operation", "move", "tile_multiply", "nest", "run"} <= done


def test_a_few_programs_give_a_speed() -> None:
    backend = Backend(NATIVE)
    few = NativePrograms(Timer(None, backend.kernels), backend, list(native_programs())[:2])
    for _ in range(3):
        few.measure(0.001)
    assert all(len(turns) == 3 and 0 < min(turns) < 1 for turns in few.seconds)
    speed, error = few.fit()
    assert speed.is_known
    assert error < 0.2


def test_parts_that_lie_otherwise_are_put_word_by_word_or_run_by_run() -> None:
    text = """HloModule m
ENTRY e {{ x = bf16[{part}] parameter(0)
 w = bf16[4,16,32] parameter(1)
 i = s32[] parameter(2)
 z = s32[] constant(0)
 y = bf16[{part}] negate(x)
 v = bf16[4,16,32] negate(w)
 t = {view}
 p = bf16[1,16,32] reshape(t)
 ROOT u = bf16[4,16,32] dynamic-update-slice(v, p, i, z, z) }}"""
    turned = text.format(part="32,16", view="bf16[16,32] transpose(y), dimensions={1,0}")
    cut = text.format(part="16,40", view="bf16[16,32] slice(y), slice={[0:16], [0:32]}")
    dense = text.format(part="16,32", view="bf16[16,32] copy(y)")
    words, runs, none = (_counts(one).get("narrow", 0) for one in (turned, cut, dense))
    assert words == 16 * 32
    assert none == 0 < runs < words


def test_divisions_are_free_beside_many_operations() -> None:
    text = "HloModule m\nENTRY e {{ x = f32[8,64] parameter(0)\n y = f32[8,64] parameter(1)\n {} }}"
    alone = _counts(text.format("ROOT r = f32[8,64] divide(x, y)"))
    beside = _counts(text.format("e = f32[8,64] exponential(x)\n ROOT r = f32[8,64] divide(e, y)"))
    assert alone["division"] == 8 * 64 / 16
    assert beside.get("division", 0) == 0
    assert beside["operation"] > alone["operation"] > 0


def test_long_rows_compute_apart_from_what_they_move() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[8,64] parameter(0)
 z = f32[] constant(0)
 m = f32[8] reduce(x, z), dimensions={1}, to_apply=add
 b = f32[8,64] broadcast(m), dimensions={0}
 d = f32[8,64] subtract(x, b)
 e = f32[8,64] exponential(d)
 s = f32[8] reduce(e, z), dimensions={1}, to_apply=add
 c = f32[8,64] broadcast(s), dimensions={0}
 ROOT r = f32[8,64] subtract(d, c) }"""
    short, long = _counts(text), _counts(text.replace(",64]", ",1024]"))
    assert "apart" not in short
    assert 0 < long["apart"] < long["operation"] - 8 * 512
