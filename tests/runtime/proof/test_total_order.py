"""Ops that order floats totally: masks of NaN with a sign are the ends of that order, and padding may be anywhere."""

from __future__ import annotations

import re

import hloom
import pytest
from hloom import prove
from hloom.ir.graph.module import Module

ONES = {"f32": 2**32 - 1, "bf16": 2**16 - 1, "s32": -(2**31)}


def top(element: str, batch: str = "", largest: bool = True, size: int = 130) -> tuple[Module, str]:
    """A top-k of unevenly divided elements, and the text of its program per device."""
    shape, tiles = f"{element}[{batch}{size}]", f"[{'1,' * bool(batch)}4]"
    module = hloom.parse(f"""HloModule m
ENTRY e {{ p = {shape} parameter(0), sharding={{devices={tiles}<=[4]}}
  ROOT t = ({element}[{batch}3], s32[{batch}3]) topk(p), k=3, largest={str(largest).lower()} }}""")
    return module, hloom.partition(module).to_text()


def outcome(original: Module, local: str) -> str:
    return prove(original, hloom.parse(local), trials=4).outcome


def unmasked(local: str) -> str:
    """A program whose padding stays in place."""
    wrong = re.sub(r"select\((.*?), (%p), .*?\)", r"select(\1, \2, \2)", local)
    assert wrong != local
    return wrong


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", ONES)
@pytest.mark.parametrize("batch", ["", "3,"])
def test_masks_of_padding_are_right(element: str, batch: str, largest: bool) -> None:
    module, local = top(element, batch, largest)
    assert "select(" in local
    assert outcome(module, local) == "agrees"


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", ONES)
@pytest.mark.parametrize("mistake", ["none", "late", "wrong"])
def test_mistakes_in_masks_are_found(element: str, mistake: str, largest: bool) -> None:
    module, local = top(element, largest=largest)
    if mistake == "none":
        wrong = unmasked(local)
    elif mistake == "late":
        wrong = local.replace("s32[] constant(130)", "s32[] constant(132)")
    else:
        ones = ONES[element]  # the least, of which a shift or a complement is the greatest
        ends = (ones, ~ones) if ones < 0 else (ones, ones >> 1)
        right, other = ends if largest else ends[::-1]
        wrong = local.replace(f"constant({right})", f"constant({other})")
    assert wrong != local
    assert outcome(module, wrong) == "differs"


@pytest.mark.parametrize(
    ("element", "op", "start"),
    [("s32", "minimum", 2**31 - 1), ("s32", "maximum", -(2**31)), ("pred", "and", "true"), ("pred", "or", "false")],
)
def test_padding_of_exact_numbers_is_at_either_end(element: str, op: str, start: object) -> None:
    module = hloom.parse(f"""HloModule m
f {{ a = {element}[] parameter(0)  b = {element}[] parameter(1)  ROOT r = {element}[] {op}(a, b) }}
ENTRY e {{ p = {element}[3] parameter(0), sharding={{devices=[2]<=[2]}}  i = {element}[] constant({start})
  ROOT t = {element}[] reduce(p, i), dimensions={{0}}, to_apply=f }}""")
    local = hloom.partition(module).to_text()
    assert prove(module, hloom.parse(local)).agrees
    assert prove(module, hloom.parse(unmasked(local))).outcome == "differs"


@pytest.mark.parametrize(("bits", "expected"), [(2**32 - 1, "agrees"), (2**31 - 1, "differs")])
def test_a_sort_puts_a_negative_nan_first(bits: int, expected: str) -> None:
    order = """less { a = f32[] parameter(0)  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }"""
    original = f"""HloModule m
{order}
ENTRY e {{ x = f32[5] parameter(0)  ROOT s = f32[5] sort(x), dimensions={{0}}, to_apply=less }}"""
    local = f"""HloModule m, num_partitions=1
{order}
ENTRY e {{ x = f32[5] parameter(0)  u = u32[] constant({bits})  n = f32[] bitcast-convert(u)
  p = f32[7] pad(x, n), padding=0_2  s = f32[7] sort(p), dimensions={{0}}, to_apply=less
  ROOT r = f32[5] slice(s), slice={{[2:7]}} }}"""
    assert outcome(hloom.parse(original), local) == expected


def test_the_sign_of_nan_in_a_result_is_no_difference() -> None:
    text = """HloModule m, num_partitions=1
ENTRY e { x = f32[2] parameter(0)  n = f32[] constant(nan)  ROOT t = (f32[2], f32[]) tuple(x, n) }"""
    original = hloom.parse(text.replace(", num_partitions=1", ""))
    assert outcome(original, text.replace("(nan)", "(-nan)")) == "unproved"  # as NaN is undefined on both sides


BITS = """{r} = {i}[] bitcast({x})
  {r}n = pred[] compare({r}, zero), direction=LT
  {r}t = {i}[] xor(greatest, {r})
  {r}k = {i}[] select({r}n, {r}t, {r})
"""


def sorted_by_bits(element: str = "f32", integer: str = "s32", greatest: int = 2**31 - 1, less: str = "LT") -> str:
    """A sort as XLA's compilers write it: they compare bits, those below zero turned round."""
    keys = "".join(BITS.format(r=r, x=x, i=integer) for r, x in (("b", "x"), ("c", "y")))
    return f"""HloModule m
less {{ x = {element}[] parameter(0)
  y = {element}[] parameter(1)
  zero = {integer}[] constant(0)
  greatest = {integer}[] constant({greatest})
  {keys} ROOT l = pred[] compare(bk, ck), direction={less} }}
ENTRY e {{ p = {element}[9] parameter(0)
  ROOT s = {element}[9] sort(p), dimensions={{0}}, to_apply=less, is_stable=true }}"""


def sorted_totally(element: str) -> Module:
    return hloom.parse(f"""HloModule m
less {{ x = {element}[] parameter(0)
  y = {element}[] parameter(1)
  ROOT l = pred[] compare(x, y), direction=LT, type=TOTALORDER }}
ENTRY e {{ p = {element}[9] parameter(0)
  ROOT s = {element}[9] sort(p), dimensions={{0}}, to_apply=less, is_stable=true }}""")


def test_comparisons_of_bits_are_those_of_floats() -> None:
    assert outcome(sorted_totally("f32"), sorted_by_bits()) == "agrees"
    assert outcome(sorted_totally("f16"), sorted_by_bits("f16", "s16", 2**15 - 1)) == "agrees"
    assert outcome(sorted_totally("f32"), sorted_by_bits(less="GT")) == "differs"


def test_other_uses_of_bits_prove_nothing_and_a_run_on_numbers_decides() -> None:
    assert outcome(sorted_totally("f32"), sorted_by_bits().replace("xor(greatest", "or(greatest")) == "differs"
    below = hloom.parse("""ENTRY e { x = f32[9] parameter(0)
      a = f32[9] abs(x)
      ROOT y = pred[9] compare(x, a), direction=LT }""")
    sign = """ENTRY e { x = f32[9] parameter(0)
      b = s32[9] bitcast-convert(x)
      z = s32[] constant(0)
      zs = s32[9] broadcast(z), dimensions={}
      ROOT n = pred[9] compare(b, zs), direction=LT }"""
    assert outcome(below, sign) == "unproved"
    assert outcome(below, sign.replace("LT", "GT")) == "differs"


def test_relations_know_comparisons_of_bits() -> None:
    (row,) = (r for r in hloom.relate(sorted_totally("f32"), hloom.parse(sorted_by_bits())).rows() if r.name == "s")
    assert (row.kind, row.value) == ("tile", "s")
