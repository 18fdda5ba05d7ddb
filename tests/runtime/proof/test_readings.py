"""Programs are equal to those that XLA's compilers have made of them; mistakes in these are found."""

from __future__ import annotations

import hloom
import pytest

ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"
ENTRY = "ENTRY e { x = f32[8] parameter(0), sharding={devices=[4]<=[4]}\n"


def _outcome(original: str, local: str, x: str = "f32[8]") -> str:
    """The verdict on bodies of programs of eight numbers, and of two on each of four devices, that end in y."""
    whole = f"{ADD}{ENTRY}{original}\nROOT r = {x} copy(y), sharding={{devices=[4]<=[4]}} }}"
    part = f"HloModule m, num_partitions=4\n{ADD}{ENTRY}{local}\nROOT r = {x} copy(y) }}".replace("[8]", "[2]")
    found = hloom.prove(hloom.parse(whole.replace("f32[8] par", f"{x} par")),
                        hloom.parse(part.replace("f32[2] par", f"{x} par".replace("[8]", "[2]"))))  # fmt: skip
    is_same = original == local
    assert ("up to the rounding of constants" in str(found)) is (found.outcome == "equal" and not is_same)
    return found.outcome


def _scaled(opcode: str, *constants: str) -> str:
    lines, value = list[str](), "x"
    for n, constant in enumerate(constants):
        name = "y" if n == len(constants) - 1 else f"v{n}"
        lines += [f"c{n} = f32[] constant({constant})  b{n} = f32[8] broadcast(c{n}), dimensions={{}}"]
        lines += [f"{name} = f32[8] {opcode}({value}, b{n})"]
        value = name
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("original", "right", "wrong"),
    [
        (_scaled("divide", "9"), "0.111111112", "0.11111"),
        (_scaled("divide", "2.82842708"), "0.353553385", "0.3536"),
        (_scaled("multiply", "0.044715", "0.797884583"), "0.0356774069", "0.03568"),
        (_scaled("divide", "-3", "7"), "-0.0476190485", "0.0476190485"),
    ],
)
def test_products_and_reciprocals_of_constants(original: str, right: str, wrong: str) -> None:
    assert _outcome(original, _scaled("multiply", right)) == "equal"
    assert _outcome(original, _scaled("multiply", wrong)) == "differs"


def test_a_constant_that_is_one_unit_off_is_a_mistake_whatever_else_would_explain_it() -> None:
    original = _scaled("multiply", "0.6", "0.5", "0.3")
    assert _outcome(original, original) == "equal"
    assert _outcome(original, original.replace("0.3", "0.30000004")) == "differs"
    made = "c = f32[8] constant({0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8})  z = f32[] constant(0)"
    made += "  zs = f32[8] broadcast(z), dimensions={}"
    made += "  m = f32[8] maximum(c, zs)  e = f32[8] exponential(m)  s = f32[8] add(m, e)  y = f32[8] multiply(x, s)"
    whole = f"ENTRY e {{ x = f32[8] parameter(0) {made} ROOT r = f32[8] copy(y) }}"
    assert hloom.prove(hloom.parse(whole), hloom.parse(whole)).is_equal
    assert hloom.prove(hloom.parse(whole), hloom.parse(whole.replace("0.3,", "0.30000004,"))).outcome == "differs"


INDEX = """q = f32[] constant(0.9)  ten = f32[] constant(10)  at = f32[] multiply(q, ten)  low = f32[] floor(at)
  n = s32[] convert(low)  f = f32[] convert(n)  b = f32[8] broadcast(f), dimensions={}  y = f32[8] multiply(x, b)"""


def test_functions_of_constants_are_computed() -> None:
    """The index of a quantile: 0.9 times 10 is 9 in f32 alone."""
    assert _outcome(INDEX, _scaled("multiply", "9")) == "equal"
    assert _outcome(INDEX, _scaled("multiply", "8")) == "differs"


TABLE = """i = f32[8] iota(), iota_dimension=0  c = f32[] constant(-0.7)  b = f32[8] broadcast(c), dimensions={}
  s = f32[8] multiply(i, b)  e = f32[8] exponential(s)  y = f32[8] multiply(x, e)"""
TABLES = """k = f32[4,2] constant({{1, 0.496585309}, {0.246596962, 0.122456424}, {0.0608100593, 0.0301973829},
  {0.0149955759, 0.00744658569}})  p = u32[] partition-id()  z = u32[] constant(0)
  t = f32[1,2] dynamic-slice(k, p, z), dynamic_slice_sizes={1,2}  e = f32[8] reshape(t)  y = f32[8] multiply(x, e)"""


def test_tables_that_are_computed_from_constants_and_the_device_number() -> None:
    assert _outcome(TABLE, TABLES) == "equal"
    assert _outcome(TABLE, TABLES.replace("0.246596962", "0.246606962")) == "differs"
    assert _outcome(TABLE, TABLES.replace("dynamic-slice(k, p, z)", "dynamic-slice(k, z, z)")) == "differs"


@pytest.mark.parametrize(
    ("original", "right", "wrong"),
    [
        ("s = f32[8] sqrt(x)  y = f32[8] divide(x, s)", "s = f32[8] rsqrt(x)  y = f32[8] multiply(x, s)",
         "s = f32[8] rsqrt(x)  y = f32[8] divide(x, s)"),
        (_scaled("power", "0.5"), "y = f32[8] sqrt(x)", "y = f32[8] rsqrt(x)"),
        (_scaled("power", "-2"), "o = f32[] constant(1)  b = f32[8] broadcast(o), dimensions={}"
         "  m = f32[8] multiply(x, x)  y = f32[8] divide(b, m)", "y = f32[8] multiply(x, x)"),
        ("a = f32[8] abs(x)  s = f32[8] sqrt(a)  y = f32[8] multiply(s, s)", "y = f32[8] abs(x)", "y = f32[8] copy(x)"),
        (_scaled("add", "1.17549435e-38"), "y = f32[8] copy(x)", "y = f32[8] negate(x)"),
    ],
)  # fmt: skip
def test_other_forms_of_roots_and_magnitudes(original: str, right: str, wrong: str) -> None:
    assert _outcome(original, right) == "equal"
    assert _outcome(original, wrong) == "differs"


WIDE = "w = f32[8] convert(x)  s = f32[8] {}  y = bf16[8] convert(s)"


def test_where_narrow_numbers_are_rounded_is_left_to_plain_numbers() -> None:
    original = "y = bf16[8] multiply(x, x)"
    assert _outcome(original, WIDE.format("multiply(w, w)"), "bf16[8]") == "unproved"
    assert _outcome(original, WIDE.format("add(w, w)"), "bf16[8]") == "differs"
    narrower = "w = f32[8] multiply(x, x)  v = bf16[8] convert(w)  y = f32[8] convert(v)"
    assert _outcome("y = f32[8] multiply(x, x)", narrower) == "differs"
