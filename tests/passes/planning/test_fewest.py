"""The fewest annotations that reproduce a plan."""

from __future__ import annotations

import hloom
from hloom.cost.links import parse_links
from hloom.cost.machine import Cluster
from hloom.passes.annotating.strategy import Strategy, apply_strategy, parse_strategy
from hloom.passes.base import PassContext
from hloom.passes.planning.fewest import fewest
from hloom.passes.planning.judge import Judged, judge

from .test_plan import FAST, SLOW, STEP


def test_each_annotation_of_a_strategy_matters() -> None:
    text = """HloModule two
ENTRY e {
  x = f32[32,16] parameter(0)
  w = f32[16,64] parameter(1)
  y = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[64,8] parameter(2)
  b = f32[8,128] parameter(3)
  c = f32[64,128] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[32,64], f32[64,128]) tuple(y, c)
}"""
    found = hloom.plan(hloom.parse(text), SLOW, mesh="2x2", seconds=1)
    strategy = found.strategy()

    def judged(settings: dict[str, str]) -> Judged:
        module = hloom.parse(text)
        apply_strategy(module, Strategy.of(settings, dict(strategy.mesh.axes)))
        return judge(module, PassContext(machine=SLOW), strategy.mesh.size)

    assert strategy.reproduces
    assert judged(dict(strategy.shardings)) == strategy.judged
    assert len(strategy.shardings) > 1
    for name in strategy.shardings:
        without = judged({key: value for key, value in strategy.shardings.items() if key != name})
        is_slower = without.seconds > found.seconds * 1.001
        assert is_slower or without.peak > max(found.peak, strategy.judged.peak), name


def test_one_annotation_that_changes_nothing_is_left_out() -> None:
    """Whole is how propagation has all values without annotations."""
    found = hloom.plan(hloom.parse(STEP), FAST, devices=4, seconds=0.1, keep=["*=-,-"])
    strategy = found.strategy()
    assert strategy.reproduces
    assert not strategy.shardings


def test_the_strategy_of_an_annotated_program_leaves_its_annotations_out() -> None:
    """Whole values are faster here, which few settings say to a program without annotations."""
    text = """HloModule a
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[8,4] tanh(x)
  ROOT z = f32[8,4] reverse(y), dimensions={0}, sharding={devices=[1,4]<=[4]}
}"""
    context = PassContext(machine=Cluster(links=parse_links("1ms/1GB")))
    given, planned, module = (hloom.parse(text) for _ in range(3))
    apply_strategy(planned, Strategy.of({"x": ",", "y": ",", "z": ","}, {"data": 4}))
    wanted = judge(planned, context, 4)
    mesh = hloom.Mesh.of(data=4)
    strategy = fewest(
        given, planned, mesh, wanted, lambda one, left: judge(one, context, 4, left=left), context, seconds=60
    )
    apply_strategy(module, parse_strategy(strategy.text()))
    assert strategy.reproduces
    assert judge(module, context, 4) == strategy.judged
    assert judge(given, context, 4).seconds > 2 * wanted.seconds


def test_what_is_kept_stays_in_the_strategy() -> None:
    """Without the divisions that were given, whole values are faster."""
    module = hloom.parse("""HloModule m
ENTRY e {
  x = f32[8,4] parameter(0)
  y = f32[8,4] tanh(x)
  v = f32[8,4] parameter(1)
  ROOT z = f32[8,4] add(y, v)
}""")
    found = hloom.plan(module, Cluster(links=parse_links("1ms/1GB")), mesh="x=2,y=2", keep=["x=x,", "v=,y"], seconds=1)
    assert dict(found.strategy().shardings) == {"x": "x,", "v": ",y"}
    assert found.strategy().reproduces
