"""Programs on complex numbers, on bits of floats, of mixed precision and dynamic sizes: right ones are equal, planted
mistakes are found.
"""

from __future__ import annotations

from typing import Any

import hloom
import pytest
from hloom import prove
from hloom.runtime.inputs.inputs import inputs_for_module
from hloom.runtime.simulator import simulate
from support.compare import compare
from support.planted_faults import faults, some

COMPLEX = """HloModule m
add { a = c64[] parameter(0)  b = c64[] parameter(1)  ROOT r = c64[] add(a, b) }
last { c = c64[] parameter(0)  d = c64[] parameter(1)  m = c64[] multiply(c, d)  s = c64[] add(c, d)
  ROOT r = c64[] add(m, s) }
ENTRY e { x = c64[10,4] parameter(0), sharding={devices=[4,1]<=[4]}  y = c64[4,10] parameter(1)
  d = c64[10,10] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  re = f32[10,10] real(d)  im = f32[10,10] imag(d)  minus = f32[10,10] negate(im)  conj = c64[10,10] complex(re, minus)
  q = c64[10,10] divide(conj, d)  size = f32[10,10] abs(q)  angle = c64[10,10] log(q)
  zero = c64[] constant((0, 0))  zeros = c64[10,10] broadcast(zero), dimensions={}
  same = pred[10,10] compare(d, zeros), direction=EQ
  kept = c64[10,10] select(same, q, angle)
  half = c64[] constant((0.5, -1))
  padded = c64[12,10] pad(kept, half), padding=1_1x0_0
  sum = c64[10] reduce(padded, zero), dimensions={0}, to_apply=add
  scan = c64[10] reduce(d, half), dimensions={0}, to_apply=last
  wide = c128[10,10] convert(kept)
  ROOT t = (f32[10,10], c64[10], c64[10], c128[10,10]) tuple(size, sum, scan, wide) }"""

TRANSFORM = """HloModule m
ENTRY e { x = c64[16] parameter(0), sharding={devices=[4]<=[4]}
  y = c64[16] fft(x), fft_type=FFT, fft_length={16}
  z = c64[16] fft(y), fft_type=IFFT, fft_length={16}  ROOT t = (c64[16], c64[16]) tuple(y, z) }"""

RANDOM = """HloModule m
ENTRY e { x = u32[8,12] parameter(0), sharding={devices=[4,1]<=[4]}
  nine = u32[] constant(9)  nines = u32[8,12] broadcast(nine), dimensions={}
  one = u32[] constant(1065353216)  ones = u32[8,12] broadcast(one), dimensions={}
  low = u32[8,12] shift-right-logical(x, nines)  bits = u32[8,12] or(low, ones)
  f = f32[8,12] bitcast-convert(bits)
  unit = f32[] constant(1)  units = f32[8,12] broadcast(unit), dimensions={}
  r = f32[8,12] subtract(f, units)
  parts = u16[8,12,2] bitcast-convert(r)  back = f32[8,12] bitcast-convert(parts)
  ROOT t = (f32[8,12], u16[8,12,2]) tuple(back, parts) }"""

MIXED = """HloModule m
ENTRY e { x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}  w = bf16[8,4] parameter(1)
  a = f32[8,4] add(x, w)  b = bf16[8,4] multiply(a, x)  ROOT c = f32[8,4] maximum(b, w) }"""

NOT_ELEMENTWISE = """HloModule m
f { a = f32[] parameter(0)  b = f32[] parameter(1)  v = f32[1] reshape(a)  w = f32[1] reshape(b)
  p = f32[] dot(v, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}  s = f32[] add(a, b)
  ROOT r = f32[] add(p, s) }
ENTRY e { x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}  y = f32[8,4] parameter(1)
  m = f32[8,4] map(x, y), dimensions={0,1}, to_apply=f  one = f32[] constant(1)
  ROOT r = f32[8] reduce(m, one), dimensions={1}, to_apply=f }"""

SORTED_BY_BITS = """HloModule m
c { a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] bitcast-convert(a)  j = s32[] bitcast-convert(b)
  ROOT r = pred[] compare(i, j), direction=LT }
ENTRY e { x = f32[8,40] parameter(0), sharding={devices=[4,1]<=[4]}
  ROOT s = f32[8,40] sort(x), dimensions={1}, to_apply=c }"""

SCALES = """HloModule m
greater { a = f8e8m0fnu[] parameter(0)  b = f8e8m0fnu[] parameter(1)  ROOT r = f8e8m0fnu[] maximum(a, b) }
ENTRY e { x = f32[10,4] parameter(0), sharding={devices=[4,1]<=[4]}
  s = f8e8m0fnu[10,4] convert(x)  least = f8e8m0fnu[] constant(5.877e-39)
  m = f8e8m0fnu[4] reduce(s, least), dimensions={0}, to_apply=greater
  ROOT r = f32[4] convert(m) }"""

UNREDUCED = """HloModule m
ENTRY e { x = c64[8,4] parameter(0), sharding={devices=[1,4]<=[4]}  w = c64[4,6] parameter(1)
  ROOT y = c64[8,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    sharding={devices=[1,1,4]<=[4] last_tile_dims={unreduced}} }"""

UNREDUCED_INPUT = """HloModule m
ENTRY e { x = c64[2,5] parameter(0), sharding={mesh['a'=3,'y'=2], [{},{}], unreduced={'a'}}
  ROOT y = c64[2,5] copy(x), sharding={mesh['a'=3,'y'=2], [{'y'},{}]} }"""

MATRICES = """HloModule m
ENTRY e { x = c64[8,3,3] parameter(0), sharding={devices=[4,1,1]<=[4]}
  ROOT y = c64[8,3,3] cholesky(x), lower=true }"""

DYNAMIC = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[8,4] parameter(0)  n = s32[] parameter(1)  z = f32[] constant(0)
  d = f32[<=8,4] set-dimension-size(x, n), dimensions={0}  t = f32[<=8,4] tanh(d)  s = f32[<=8,4] add(t, d)
  ROOT r = f32[4] reduce(s, z), dimensions={0}, to_apply=add }"""

PROGRAMS = {
    "complex": COMPLEX, "transform": TRANSFORM, "random": RANDOM, "mixed": MIXED, "not_elementwise": NOT_ELEMENTWISE,
    "sorted_by_bits": SORTED_BY_BITS, "scales": SCALES, "unreduced": UNREDUCED,
    "unreduced_input": UNREDUCED_INPUT, "dynamic": DYNAMIC,
    "matrices": MATRICES,
}  # fmt: skip


def proved(name: str, *wrong: str) -> Any:
    """The verdict on a program; its partitioned form is that of the program with a text replaced."""
    text = PROGRAMS[name]
    if wrong:
        assert wrong[0] in text
    changed = text.replace(wrong[0], wrong[1], 1) if wrong else text
    return prove(hloom.parse(text), hloom.partition(hloom.parse(changed)))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_equal(name: str) -> None:
    verdict = proved(name)
    assert verdict.agrees, verdict


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("complex", "negate(im)", "copy(im)"), ("complex", "complex(re, minus)", "complex(minus, re)"),
        ("complex", "(0.5, -1)", "(0.5, 1)"), ("complex", "log(q)", "exponential(q)"),
        ("complex", "direction=EQ", "direction=NE"), ("complex", "abs(q)", "real(q)"),
        ("complex", "r = c64[] add(m, s)", "r = c64[] subtract(s, m)"),
        ("transform", "fft_type=FFT", "fft_type=IFFT"),
        ("random", "constant(9)", "constant(8)"), ("random", "1065353216", "1065353217"),
        ("mixed", "b = bf16[8,4] multiply(a, x)", "b = f32[8,4] multiply(a, x)"),
        ("not_elementwise", "add(p, s)", "subtract(s, p)"), ("not_elementwise", "constant(1)", "constant(2)"),
        ("sorted_by_bits", "direction=LT", "direction=GT"), ("scales", "maximum", "minimum"),
        ("matrices", "lower=true", "lower=false"), ("dynamic", "tanh(d)", "copy(d)"),
        ("dynamic", "add(t, d)", "subtract(t, d)"),
    ],
)  # fmt: skip
def test_other_programs_differ(name: str, right: str, wrong: str) -> None:
    assert proved(name, right, wrong).outcome == "differs"


def test_mistakes_in_divided_transforms_are_found() -> None:
    divided = "fft_length={16}, sharding={devices=[4]<=[4]}\n  z ="  # else so few elements are gathered
    module = hloom.parse(TRANSFORM.replace("fft_length={16}\n  z =", divided))
    local = hloom.partition(module)
    assert "cosine" in local.to_text()
    inputs = inputs_for_module(module)
    right, found = simulate(local, inputs), 0
    for fault in some(list(faults(local)), 3):
        wrong = fault.plant(local)
        if compare(simulate(wrong, inputs), right).equal:
            continue  # it changes nothing: the remainder of a device number by more than there are
        assert prove(module, wrong, trials=1).outcome == "differs", fault
        found += 1
    assert found > 5


OTHER_LENGTHS = """HloModule m
ENTRY e { x = f32[6,9,4] parameter(0), sharding={devices=[2,2,1]<=[4]}  t = f32[4,6,9] transpose(x), dimensions={2,0,1}
  y = c64[4,6,5] fft(t), fft_type=RFFT, fft_length={6,9}
  ROOT z = f32[4,6,9] fft(y), fft_type=IRFFT, fft_length={6,9} }"""


def test_transforms_of_other_lengths_are_functions_of_rows() -> None:
    module = hloom.parse(OTHER_LENGTHS)
    verdict = prove(module, hloom.partition(module))
    assert verdict.outcome == "equal", verdict
    wrong = hloom.parse(OTHER_LENGTHS.replace("fft(y)", "fft(w)").replace("ROOT", """r = f32[4,6,5] real(y)
      i = f32[4,6,5] imag(y)  m = f32[4,6,5] negate(i)  w = c64[4,6,5] complex(r, m)  ROOT"""))
    assert prove(module, hloom.partition(wrong)).outcome == "differs"


def test_transforms_made_of_ones_of_other_lengths_are_unproved_unless_numbers_differ() -> None:
    """The partitioner divides a transform of 12 elements into ones of 2 and 6, which the field has no roots for."""
    text = TRANSFORM.replace("16", "12")
    whole, parts = "y = c64[12] fft(x), fft_type=FFT, fft_length={12}", """r = c64[2,6] reshape(x)
      g = c64[2,6] fft(r), fft_type=FFT, fft_length={6}  h = c64[12] reshape(g)"""
    unused = f"""{parts}  o = c64[] constant((0, 0))  b = c64[12] broadcast(o), dimensions={{}}
      n = c64[12] multiply(h, b)  {whole.replace("y =", "w =")}  y = c64[12] add(w, n)"""
    verdict = prove(hloom.parse(text), hloom.partition(hloom.parse(text.replace(whole, unused))))
    assert verdict.outcome == "unproved"
    assert "no roots of unity for transforms of these lengths" in str(verdict)
    wrong = text.replace(whole, parts.replace("h =", "y ="))
    verdict = prove(hloom.parse(text), hloom.partition(hloom.parse(wrong)))
    assert verdict.outcome == "differs"
    assert "elements differ in f64" in str(verdict)


@pytest.mark.parametrize("length", [1 << 17, 1025])
def test_long_transforms_are_unproved(length: int) -> None:
    module = hloom.parse(TRANSFORM.replace("16", str(length)).replace("devices=[4]<=[4]", "replicated"))
    verdict = prove(module, hloom.partition(module))
    assert verdict.outcome == "unproved"
    assert f"a transform of {length} elements, without a root of unity, is too long" in str(verdict)


CHOICE = """HloModule m, num_partitions=4
ENTRY e { x = bf16[20,300] parameter(0), sharding={maximal device=1}  ROOT y = bf16[20,300] copy(x),
  sharding={devices=[4,1]<=[4]} }"""


@pytest.mark.parametrize(("columns", "outcome"), [(300, "equal"), (4000, "unproved")])
def test_floats_that_travel_as_bits_arrive(columns: int, outcome: str) -> None:
    """In 16 bits there are not enough patterns for more than 65,536 elements."""
    module = hloom.parse(CHOICE.replace("300", str(columns)))
    local = hloom.partition(module)
    assert "bitcast-convert" in local.to_text()
    assert prove(module, local, trials=1).outcome == outcome


def test_narrow_numbers_that_were_wider_in_between_are_themselves() -> None:
    """As XLA's compilers send them."""
    original = "ENTRY e { x = bf16[8] parameter(0)  ROOT y = bf16[8] multiply(x, x) }"
    local = """ENTRY e { z = bf16[8] parameter(0)  w = f32[8] convert(z)  x = {}[8] convert(w)
      ROOT y = bf16[8] multiply(x, x) }"""
    assert prove(hloom.parse(original), hloom.parse(local.replace("{}", "bf16"))).is_equal
    assert prove(hloom.parse(original), hloom.parse(local.replace("{}", "f16"))).outcome == "differs"
