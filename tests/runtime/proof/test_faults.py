"""The proof finds planted mistakes of all kinds: those that the check has to find, and smaller ones.

`bench/prove_faults.py` counts more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import hloom
import pytest
from hloom.ir.graph.module import Module
from support.command_line import EXAMPLES
from support.fault_census import Census
from support.golden import golden_texts
from support.planted_edits import EDITS
from support.planted_faults import Fault, all_faults, some


def _found(module: Module, tried: Sequence[Fault], census: Census) -> Counter[str]:
    outcomes = {fault: census.outcome(fault) for fault in tried}
    missed = [fault for fault, outcome in outcomes.items() if outcome == "missed"]
    assert missed == [], f"{[census.reasons[f] for f in missed]}\n{module.to_text()}"
    return Counter(fault.kind for fault, outcome in outcomes.items() if outcome == "caught")


SLOW = pytest.mark.slow
SLOWER = pytest.param("transformer_scan_train", 2, 38, marks=SLOW)


@pytest.mark.parametrize(
    ("name", "each", "least"), [("mlp_named", 2, 15), pytest.param("mlp_train", 1, 12, marks=SLOW), SLOWER]
)
def test_mistakes_in_examples_are_found(name: str, each: int, least: int) -> None:
    module = hloom.load(EXAMPLES / f"{name}.hlo")
    census = Census(module, hloom.partition(module))
    assert _found(module, some(list(all_faults(census.local)), each), census).total() >= least


@pytest.mark.parametrize(
    ("stem", "step", "least"),
    [
        ("halo", 240, 3), ("partial", 8, 7), pytest.param("partial", 4, 20, marks=SLOW),
        *(pytest.param("halo", step, least, marks=SLOW) for step, least in ((1, 300), (8, 50), (24, 10), (48, 5))),
        pytest.param("partial", 1, 60, marks=SLOW),
    ],
)  # fmt: skip
def test_mistakes_in_exchanged_edges_are_found(stem: str, step: int, least: int) -> None:
    """Permutes, masks and offsets, which the examples have few of."""
    found = Counter[str]()
    for text in golden_texts(stem, "EVAL")[::step]:
        module = hloom.parse(text)
        census = Census(module, hloom.partition(module))
        if census.is_proved():
            found += _found(module, some(list(all_faults(census.local)), 1), census)
    assert found.total() >= least


SMALL = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[10,10] parameter(0), sharding={devices=[4,1]<=[4]}  w = f32[10,10] parameter(1)
  zero = f32[] constant(0)  scale = f32[] constant(0.3)
  zeros = f32[10,10] broadcast(zero), dimensions={}  scales = f32[10,10] broadcast(scale), dimensions={}
  down = f32[10,10] pad(x, zero), padding=1_-1x0_0  up = f32[10,10] pad(x, scale), padding=-2_2x0_0
  less = f32[10,10] subtract(up, w)  more = pred[10,10] compare(less, zeros), direction=GT
  some = f32[10,10] select(more, down, scales)  i = s32[10,10] iota(), iota_dimension=1
  f = f32[10,10] convert(i)  t = f32[10,10] multiply(some, f)
  left = f32[10,4] slice(t), slice={[0:10], [1:5]}  right = f32[10,4] slice(w), slice={[0:10], [2:6]}
  both = f32[10,8] concatenate(left, right), dimensions={1}
  sums = f32[8] reduce(both, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[8], f32[10,10]) tuple(sums, t), sharding={{replicated}, {devices=[1,4]<=[4]}} }"""


@SLOW
@pytest.mark.parametrize("each", [2, 1000])
def test_every_kind_of_small_mistake_is_found(each: int) -> None:
    module = hloom.parse(SMALL)
    census = Census(module, hloom.partition(module))
    assert census.is_proved()
    found = _found(module, some(list(all_faults(census.local)), each), census)
    assert {kind for kind, _, _ in EDITS} <= set(found)
