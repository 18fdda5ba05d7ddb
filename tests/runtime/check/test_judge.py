"""Judging results beside a reference: what rounding explains and what it does not."""

from __future__ import annotations

from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.types.element_type import ELEMENT_TYPES
from hloom.runtime.check.check import judge, wide_program
from hloom.runtime.check.errors import Bands, distance
from hloom.runtime.check.reference import Reference, widened
from hloom.runtime.check.retype import retyped
from hloom.runtime.evaluator import UnpartitionedProgram, evaluate
from hloom.runtime.simulator import simulate

Array = np.ndarray[Any, Any]

SUMS = """HloModule sums
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[64,32] parameter(0)
  zero = f32[] constant(0)
  small = f32[] constant(1e-9)
  smalls = f32[64,32] broadcast(small), dimensions={}
  y = f32[64,32] multiply(x, smalls)
  total = f32[64] reduce(y, zero), dimensions={1}, to_apply=add
  e = f32[64,32] exponential(x)
  ROOT out = (f32[64], f32[64,32]) tuple(total, e)
}
"""

BEST = """HloModule best
greater {
  a = bf16[] parameter(0)  b = bf16[] parameter(1)  p = s32[] parameter(2)  q = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
ENTRY e {
  x = bf16[8] parameter(0)
  y = bf16[8] parameter(1)
  s = bf16[8] add(x, y)
  i = s32[8] iota(), iota_dimension=0
  sorted = (bf16[8], s32[8]) sort(s, i), dimensions={0}, is_stable=true, to_apply=greater
  ROOT places = s32[8] get-tuple-element(sorted), index=1
}
"""


def reference(text: str, *inputs: Array, seconds: float = 30.0) -> Reference:
    return Reference(UnpartitionedProgram(hloom.parse(text)), list(inputs), seconds)


def normal(*dims: int) -> Array:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def verdict(found: Reference, outputs: list[Array], in_f64: list[Array] | None = None, **options: Any) -> Any:
    assert found.wide is not None
    return judge(found, outputs, found.wide if in_f64 is None else in_f64, 4, **options)


def test_equal_results_pass_and_say_how_exactly() -> None:
    found = reference(SUMS, normal(64, 32))
    said = verdict(found, found.own)
    assert said.passed
    assert str(said).splitlines()[0] == "0/2 outputs differ from those of one device"
    assert "in f64: error 0.0e+00" in str(said)


def test_small_results_count() -> None:
    """All of the first result is below 1e-7: one element that is off by a thousandth is found."""
    found = reference(SUMS, normal(64, 32))
    outputs = [a.copy() for a in found.own]
    outputs[0][3] *= np.float32(1.001)
    said = verdict(found, outputs)
    assert [d.output for d in said.differences] == [0]
    assert "1 of 64 elements differ, most at [3]: " in str(said)


def test_elements_of_one_result_are_judged_by_their_own_size() -> None:
    found = reference(SUMS, np.where(np.arange(2048).reshape(64, 32) % 2, 12.0, -12.0).astype(np.float32))
    outputs = [a.copy() for a in found.own]
    outputs[1][0, 0] *= np.float32(1.0001)  # 6e-6 beside elements of 1.6e5
    assert [d.output for d in verdict(found, outputs).differences] == [1]


def test_a_part_in_a_million_is_found_in_f64() -> None:
    found = reference(SUMS, normal(64, 32))
    assert found.wide is not None
    wide = [a.copy() for a in found.wide]
    wide[1] *= 1 + 1e-9
    said = verdict(found, found.own, wide)
    assert [d.output for d in said.differences] == [1]
    assert "elements differ in f64" in str(said)


def test_near_ties_are_told_from_mistakes() -> None:
    """Two sums lie a small part of a unit apart, so that rounding to bf16 decides which is greater."""
    x = np.array([1, 1, 0, 4, 8, 16, 32, 64]).astype(hloom_bf16())
    y = np.array([2**-8, 7 * 2**-11, 0, 0, 0, 0, 0, 0]).astype(hloom_bf16())
    found = reference(BEST, x, y)
    turned = found.own[0].copy()
    places = [int(np.nonzero(turned == i)[0][0]) for i in (0, 1)]
    turned[places] = turned[places[::-1]]
    said = verdict(found, [turned])
    assert said.passed
    assert said.turned == 2
    assert "2 elements differ where rounding decides (near ties)" in str(said)
    wrong = found.own[0].copy()
    wrong[[0, 7]] = wrong[[7, 0]]
    assert [d.output for d in verdict(found, [wrong]).differences] == [0]


def hloom_bf16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def test_nan_proves_nothing() -> None:
    text = SUMS.replace("exponential(x)", "log(x)")
    found = reference(text, normal(64, 32))
    said = verdict(found, found.own)
    assert not said.passed
    assert "this proves nothing: 1 of 2 results contain NaN, first at output 1 [" in str(said)
    assert verdict(found, found.own, allow_nan=True).passed
    other = [a.copy() for a in found.own]
    other[1][np.isnan(other[1])] = 0
    assert not verdict(found, other, allow_nan=True).passed


SEGMENTS = """max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  i = s32[4,1] parameter(1)
  none = f32[] constant(-inf)
  empty = f32[6] broadcast(none), dimensions={}
  ROOT r = f32[6] scatter(empty, i, x), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=max
}"""


def test_infinities_that_the_program_writes_are_values() -> None:
    places = np.array([[0], [2], [2], [5]], np.int32)
    found = reference(SEGMENTS, normal(4), places)
    assert np.isneginf(found.own[0]).sum() == 3
    assert verdict(found, found.own).passed
    for other in (np.inf, 0.0):
        wrong = found.own[0].copy()
        wrong[1] = other
        assert [d.output for d in verdict(found, [wrong]).differences] == [0]
    nothing = reference(SEGMENTS, normal(4), places + 6)  # all outside
    assert "1 of 1 results contain infinity, first at output 0 [0]" in str(verdict(nothing, nothing.own))
    overflow = SEGMENTS.replace("r = f32[6] scatter(empty", "r = f32[6] scatter(large").replace(
        "empty =", "big = f32[] constant(3e38)\n  two = f32[] add(big, big)\n"
        "  large = f32[6] broadcast(two), dimensions={}\n  empty =")  # fmt: skip
    found = reference(overflow, normal(4), places)
    assert "results contain infinity" in str(verdict(found, found.own))


def test_nan_in_own_types_alone_is_no_difference() -> None:
    """Where f32 overflows and f64 does not, equal results are equal."""
    text = """ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] multiply(x, x)
  b = f32[64] multiply(a, a)
  ROOT r = f32[64] subtract(b, b)
}"""
    x = normal(64)
    x[5] = 1e10
    found = reference(text, x)
    assert np.isnan(found.own[0][5])
    assert verdict(found, found.own, allow_nan=True).passed
    other = [found.own[0].copy()]
    other[0][5] = 1.0
    assert not verdict(found, other, allow_nan=True).passed


def test_nan_of_a_scalar_proves_nothing() -> None:
    found = reference("ENTRY e { x = f32[] parameter(0) ROOT r = f32[] log(x) }", np.full((), -1, np.float32))
    assert "1 of 1 results contain NaN, first at output 0 []" in str(verdict(found, found.own))


def test_nan_of_the_inputs_is_no_failure() -> None:
    x = normal(64, 32)
    x[0, 0] = np.nan
    found = reference(SUMS, x)
    assert verdict(found, found.own).passed


def test_infinities_prove_nothing_either() -> None:
    found = reference(SUMS, np.full((64, 32), 1000, np.float32))
    assert "2048" not in str(verdict(found, found.own))
    assert "1 of 2 results contain infinity, first at output 1 [0, 0]" in str(verdict(found, found.own))


def test_sums_of_a_narrower_type_round_more() -> None:
    """A thousandth is a rounding error of bf16 and none of f32; in f64 it is a mistake all the same."""
    found = reference(SUMS, normal(64, 32))
    assert found.wide is not None
    near, far = ([a * np.float32(by) for a in found.own] for by in (1.001, 1.4))
    assert not verdict(found, near).passed
    assert verdict(found, near, exchanged=[ELEMENT_TYPES["bf16"]]).passed
    assert not verdict(found, near, exchanged=[ELEMENT_TYPES["f64"]]).passed
    assert not verdict(found, far, exchanged=[ELEMENT_TYPES["bf16"]]).passed
    wide = [a * 1.001 for a in found.wide]
    assert not verdict(found, near, wide, exchanged=[ELEMENT_TYPES["bf16"]]).passed


def test_rounding_that_a_program_states_stays_in_f64() -> None:
    text = "ENTRY e { x = f32[64,32] parameter(0) ROOT r = f32[64,32] round-nearest-even(x) }"
    found = reference(text, normal(64, 32))
    assert found.wide is not None
    assert (found.wide[0] == np.rint(found.inputs[0].astype(np.float64))).all()


def test_tolerance_replaces_what_rounding_explains() -> None:
    found = reference(SUMS, normal(64, 32))
    outputs = [a * np.float32(1.001) for a in found.own]
    assert not verdict(found, outputs).passed
    assert verdict(found, outputs, tolerance=1e-2).passed
    assert not verdict(found, outputs, tolerance=1e-4).passed


def test_types_dimensions_and_numbers_of_outputs() -> None:
    found = reference(SUMS, normal(64, 32))
    wide = found.own[0].astype(np.float64)
    assert "output 0: f64[64] instead of f32[64]" in str(verdict(found, [wide, found.own[1]]))
    assert "there are 1 outputs, 2 were expected" in str(judge(found, found.own[:1], None, 4))


@pytest.mark.parametrize("grid", [26, 0])
def test_samples_predict_rounding_errors(grid: int) -> None:
    """The deviation of a sample is that of a run in f32, scaled by the bits that its grid has more."""
    module = hloom.parse(SUMS)
    inputs = [normal(64, 32)]
    found = Reference(UnpartitionedProgram(module), inputs)
    assert found.wide is not None
    sample = evaluate(retyped(module, grid=grid, seed=3), widened(inputs))
    for own, wide, rounded in zip(found.own, found.wide, sample, strict=True):
        error, deviation = distance(own, wide).max(), distance(rounded, wide).max() * 2.0**grid
        assert 0.2 < deviation / error < 5


def test_values_on_the_grid_are_not_rounded() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[64] parameter(0)
  y = f32[64] negate(x)
  m = f32[64] maximum(x, y)
  ROOT r = pred[64] compare(m, x), direction=EQ
}
"""
    x = normal(64)
    sample = evaluate(retyped(hloom.parse(text), grid=0, seed=1), widened([x]))
    np.testing.assert_array_equal(sample[0], x > 0)


def test_bits_are_read_in_own_types() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  b = s32[4] bitcast-convert(x)
  r = f32[4] reduce-precision(x), exponent_bits=8, mantissa_bits=7
  ROOT t = (s32[4], f32[4]) tuple(b, r)
}
"""
    x = np.array([1, -2, 1.01, 3], np.float32)
    bits, rounded = evaluate(retyped(hloom.parse(text)), widened([x]))
    np.testing.assert_array_equal(bits, x.view(np.int32))
    assert rounded.dtype == np.float64
    np.testing.assert_array_equal(rounded, x.astype(hloom_bf16()).astype(np.float64))


def test_integers_that_carry_bits_become_wider() -> None:
    """A value on one device is sent as bits; nothing of it is rounded on the way."""
    text = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[8,4] parameter(0), sharding={maximal device=2}
  a = f32[8,4] exponential(x), sharding={maximal device=2}
  ROOT r = f32[8,4] negate(a), sharding={devices=[4,1]<=[4]}
}
"""
    module = hloom.parse(text)
    local = hloom.partition(module)
    assert "bitcast-convert" in local.to_text()
    found = Reference(UnpartitionedProgram(module), [normal(8, 4)])
    wide = wide_program(found, local)
    assert wide is not None
    in_f64 = hloom.simulate(wide.program, wide.inputs)
    assert found.wide is not None
    np.testing.assert_array_equal(in_f64[0], found.wide[0])


def test_loops_that_never_end_in_f64_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """In f32 adding 1e-9 to 1 changes nothing, and the loop ends; in f64 it goes on."""
    text = """HloModule m
cond { s = (f32[], pred[]) parameter(0)  ROOT p = pred[] get-tuple-element(s), index=1 }
body {
  s = (f32[], pred[]) parameter(0)
  x = f32[] get-tuple-element(s), index=0
  d = f32[] constant(1e-9)
  y = f32[] add(x, d)
  p = pred[] compare(x, y), direction=NE
  ROOT r = (f32[], pred[]) tuple(y, p)
}
ENTRY e {
  x = f32[] parameter(0)
  t = pred[] constant(true)
  s = (f32[], pred[]) tuple(x, t)
  w = (f32[], pred[]) while(s), condition=cond, body=body
  ROOT r = f32[] get-tuple-element(w), index=0
}
"""
    found = reference(text, np.array(1, np.float32), seconds=0.2)
    assert found.wide is None
    said = judge(found, found.own, None, 4)
    assert said.passed
    assert "there is no reference in f64: it takes more than" in str(said)
    assert not judge(found, [found.own[0] + np.float32(0.01)], None, 4).passed


def test_bands_of_few_elements_take_the_errors_of_the_next() -> None:
    values = np.concatenate([np.full(100, 100.0), [1e-3], [0.0]])
    bands = Bands.of(values)
    errors = np.where(values == 100, 1e-5, 0.0)
    allowed = bands.per_element(bands.largest(errors))
    assert allowed[100] == 1e-5
    assert allowed[101] == 0


ZEROS = """HloModule zeros
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] exponential(x)
  b = f32[4] exponential(y)
  total = f32[4] add(a, b)
  rest = f32[4] subtract(total, a)
  nothing = f32[4] subtract(rest, b)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  decided = f32[4] multiply(nothing, zeros)
  ROOT out = (f32[4], f32[4]) tuple(x, decided)
}
"""


def test_zeros_keep_their_signs_unless_rounding_decides() -> None:
    x = np.array([0.0, -0.0, 1.0, -0.0], np.float32)
    found = reference(ZEROS, x, np.array([0.1, 0.7, 0.3, 0.2], np.float32))
    assert found.wide is not None
    moved, decided = found.wide
    lost = verdict(found, list(found.own), [moved + 0.0, decided])
    assert [str(d) for d in lost.differences] == [
        "output 0: 2 of 4 elements are zeros of the other sign in f64, first at [1]: 0.0 instead of -0.0"
    ]
    assert verdict(found, list(found.own), [moved, -decided]).passed
    assert verdict(found, list(found.own), [moved + 0.0, decided], tolerance=1e-3).passed


CENTRED = """HloModule m, num_partitions=3
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[3000] parameter(0), sharding={devices=[3]<=[3]}
  zero = f32[] constant(0)
  n = f32[] constant(3000)
  e = f32[3000] exponential(x)
  sum = f32[] reduce(e, zero), dimensions={0}, to_apply=add
  mean = f32[] divide(sum, n)
  means = f32[3000] broadcast(mean), dimensions={}
  centred = f32[3000] subtract(e, means)
  noise = f32[] reduce(centred, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[], f32[]) tuple(SECOND, noise)
}"""


@pytest.mark.parametrize(("second", "passes"), [("sum", True), ("noise", False)])
def test_rounding_errors_are_said_not_to_be_tested(second: str, passes: bool) -> None:
    text, x = CENTRED.replace("SECOND", second), normal(3000)
    found, local = reference(text, x), hloom.partition(hloom.parse(text)).module
    run = wide_program(found, local)
    assert run is not None
    said = verdict(found, simulate(local, [x]), simulate(run.program, run.inputs))
    assert (said.passed, said.noise) == (passes, (1,) if passes else (0, 1))
    assert f"{len(said.noise)}/2 outputs are rounding errors with these inputs, even in f64" in str(said)
    assert said.in_f64 is not None
    assert (said.in_f64.error < 1e-9) == passes  # of what is tested, if anything is
    assert ("rounding decides about all results; give other --inputs" in str(said)) is not passes
