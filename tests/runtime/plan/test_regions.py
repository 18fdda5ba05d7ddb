"""What manual regions mean, without the partitioner: `evaluate` runs them on all devices."""

from __future__ import annotations

import random

import hloom
import numpy as np
import pytest
from hloom.ir.graph.module import Module
from hloom.ir.tools.process_grid import ProcessGrid
from hloom.ir.tools.spmd import has_regions
from hloom.runtime.fabric.local import LocalFabric
from hloom.runtime.plan.executable import Executable
from programs.random.generate import REGIONS, inputs_of, program
from support.region_reference import whole_results

X = np.arange(32, dtype=np.float32).reshape(4, 8)
MESH = 'frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=2, "b"=2]>}}'


COLUMNS = r'<@mesh, [{?}, {\"b\", ?}]>'


def border(leaves: bool, axis: str, sharding: str) -> str:
    """The attributes of the border of a region in Shardy's form."""
    target, key = ("LocalToGlobalShape", "out") if leaves else ("GlobalToLocalShape", "in")
    axes = f'#sdy<manual_axes{{\\"{axis}\\"}}>'
    return (f'custom_call_target="xla.sdy.{target}", custom_call_has_side_effect=true, frontend_attributes={{'
            f'xla.sdy.manual_axes="{axes}",'
            f'xla.sdy.{key}_shardings="#sdy.sharding_per_value<[{sharding}]>"}}')  # fmt: skip


def gspmd(whole: str, part: str, outside: str, body: str, before: str = "copy(p)") -> Module:
    """A region of four devices in GSPMD's form: `before` it x comes from the parameter, `body` computes b from a."""
    return hloom.parse(f"""HloModule m, num_partitions=4
add {{ p = f32[] parameter(0)  q = f32[] parameter(1)  ROOT r = f32[] add(p, q) }}
ENTRY e {{
  p = f32[{whole}] parameter(0)
  x = f32[{whole}] {before}, sharding={outside}
  a = f32[{part}] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={{manual}}
  {body}
  c = f32[{part}] custom-call(b), custom_call_target="Sharding", sharding={{manual}}
  ROOT z = f32[{whole}] custom-call(c), custom_call_target="SPMDShardToFullShape", sharding={outside}
}}
""")


# JAX's words for `x * axis_index("b")` where the region takes "b" alone: the number is a region of its own, over "a".
AXIS_INDEX = f"""HloModule m, {MESH}
place {{
  n = u32[] partition-id()
  two = u32[] constant(2)
  m = u32[] remainder(n, two)
  ROOT r = f32[] convert(m)
}}
body {{
  x = f32[4,4] parameter(0)
  s = f32[] call(), to_apply=place, frontend_attributes={{inlineable="false"}}
  g = f32[] custom-call(s), {border(True, "a", "<@mesh, []>")}
  b = f32[4,4] broadcast(g), dimensions={{}}
  ROOT m = f32[4,4] multiply(x, b)
}}
ENTRY e {{
  x = f32[4,8] parameter(0)
  l = f32[4,4] custom-call(x), {border(False, "b", COLUMNS)}
  c = f32[4,4] call(l), to_apply=body
  ROOT r = f32[4,8] custom-call(c), {border(True, "b", COLUMNS)}
}}
"""


def test_a_number_that_depends_on_nothing_is_in_the_region_that_uses_it() -> None:
    module = hloom.parse(AXIS_INDEX)
    expected = np.concatenate([X[:, :4] * 0, X[:, 4:]], 1)
    for found in (hloom.evaluate(module, [X]), hloom.simulate(hloom.partition(module), [X])):
        np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 4))])
def test_random_regions_mean_what_the_program_per_device_does(part: int) -> None:
    """The reference against a program per device that is written by hand, to the bit."""
    met = 0
    for seed in range(part, 800, 4):
        module = program(random.Random(seed).randint, outer=REGIONS)
        if has_regions(module):
            met += 1
            inputs = inputs_of(module)
            for ours, theirs in zip(hloom.evaluate(module, inputs), whole_results(module, inputs), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert met >= 5


def test_a_sharded_program_means_the_same() -> None:
    for text in (AXIS_INDEX, gspmd("4,8", "1,8", "{devices=[4,1]<=[4]}", "b = f32[1,8] tanh(a)").to_text()):
        module = hloom.parse(text)
        expected = hloom.evaluate(module, [X])
        np.testing.assert_array_equal(hloom.evaluate(hloom.propagate(module), [X])[0], expected[0])


def test_collectives_in_a_region_are_those_of_all_devices() -> None:
    body = "b = f32[1,8] all-reduce(a), channel_id=1, replica_groups={}, use_global_device_ids=true, to_apply=add"
    (found,) = hloom.evaluate(gspmd("4,8", "1,8", "{devices=[4,1]<=[4]}", body), [X])
    np.testing.assert_array_equal(found, np.tile(X.sum(0), (4, 1)))


def test_tiles_lie_where_the_order_of_devices_says() -> None:
    body = """n = u32[] partition-id()
  f = f32[] convert(n)
  b = f32[1,8] broadcast(f), dimensions={}"""
    (found,) = hloom.evaluate(gspmd("4,8", "1,8", "{devices=[4,1]0,3,1,2}", body), [X])
    np.testing.assert_array_equal(found[:, 0], [0, 3, 1, 2])


def test_uneven_tiles_are_padded_inside() -> None:
    (found,) = hloom.evaluate(gspmd("5,1", "2,1", "{devices=[4,1]<=[4]}", "b = f32[2,1] negate(a)"), [X[:1, :5].T])
    np.testing.assert_array_equal(found, -X[:1, :5].T)


def test_devices_that_disagree_about_a_whole_value_are_named() -> None:
    body = """n = u32[] partition-id()
  f = f32[] convert(n)
  b = f32[4,8] broadcast(f), dimensions={}"""
    with pytest.raises(hloom.CompileError, match="devices 0 and 1 hold the same part of result 0 but disagree"):
        hloom.evaluate(gspmd("4,8", "4,8", "{replicated}", body), [X])


@pytest.mark.parametrize(
    ("whole", "part", "outside", "message"),
    [
        ("4,8", "2,8", "{devices=[4,1]<=[4]}", r"f32\[4,8\] outside of the manual region and f32\[2,8\] inside do not"),
        ("4,8", "1,8", "{replicated}", r"do not fit the sharding \{replicated\}"),
    ],
)
def test_borders_that_do_not_fit_are_refused_before_anything_runs(
    whole: str, part: str, outside: str, message: str
) -> None:
    module = gspmd(whole, part, outside, f"b = f32[{part}] negate(a)")
    with pytest.raises(hloom.CompileError, match=message) as error:
        hloom.evaluate(module, [])  # else it would complain of the inputs
    assert error.value.diagnostics[0].location is not None


def test_more_devices_than_a_process_can_run_are_refused_before_anything_runs() -> None:
    text = gspmd("4,8", "4,8", "{replicated}", "b = f32[4,8] negate(a)").to_text()
    module = hloom.parse(text.replace("num_partitions=4", "num_partitions=1000000000"))
    with pytest.raises(hloom.CompileError, match="1,000,000,000 devices cannot be simulated in one process"):
        hloom.evaluate(module, [X])


def test_what_all_devices_compute_is_computed_once() -> None:
    module = gspmd("4,8", "1,8", "{devices=[4,1]<=[4]}", "b = f32[1,8] tanh(a)", before="negate(p)")
    module.entry.root = module.entry.build("tanh", module.entry.root)
    grid = ProcessGrid(partitions=4)
    (first,), *others = Executable(module, grid).run(range(4), [[X]] * 4, LocalFabric())
    assert all(other is first for (other,) in others)
