"""The forecast of time: links, trips and fusions count; programs of XLA and of Hloom are read alike."""

from __future__ import annotations

import hloom
import pytest
from hloom.cost.forecast import forecast
from hloom.cost.memory_traffic import touched
from hloom.cost.presets import PRESETS, parse_machine
from hloom.cost.seconds import Clock
from hloom.passes.base import PassContext, run_pass
from hloom.passes.fusion.fuse import FusionPass

# What XLA prints: trips of loops in the backend's words, an update in place and a slice inside of fusions.
COMPILED = """HloModule compiled, is_scheduled=true, num_partitions=4
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
update {
  old = f32[100,64]{1,0} parameter(0)
  row = f32[1,64]{1,0} parameter(1)
  at = s32[] parameter(2)
  zero = s32[] constant(0)
  ROOT new = f32[100,64]{1,0} dynamic-update-slice(old, row, at, zero)
}
row {
  all = f32[100,64]{1,0} parameter(0)
  at = s32[] parameter(1)
  zero = s32[] constant(0)
  cut = f32[1,64]{1,0} dynamic-slice(all, at, zero), dynamic_slice_sizes={1,64}
  ROOT twice = f32[1,64]{1,0} add(cut, cut)
}
product {
  a = f32[8,16]{1,0} parameter(0)
  b = f32[16,4]{1,0} parameter(1)
  ROOT d = f32[8,4]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
body {
  s = (s32[], f32[100,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[100,64]{1,0} get-tuple-element(s), index=1
  cut = f32[1,64]{1,0} fusion(x, i), kind=kLoop, calls=row
  r = f32[1,64]{1,0} all-reduce(cut), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=sum
  new = f32[100,64]{1,0} fusion(x, r, i), kind=kLoop, calls=update
  ROOT t = (s32[], f32[100,64]) tuple(i, new)
}
condition {
  s = (s32[], f32[100,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ROOT c = pred[] compare(i, i), direction=LT
}
ENTRY main {
  x = f32[100,64]{1,0} parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[100,64]) tuple(zero, x)
  w = (s32[], f32[100,64]) while(s), condition=condition, body=body, backend_config={"known_trip_count":{"n":"3"}}
  a = f32[8,16]{1,0} parameter(1)
  b = f32[16,4]{1,0} parameter(2)
  d = f32[8,4]{1,0} fusion(a, b), kind=kOutput, calls=product
  start = (f32[8,4], f32[32,4]) all-gather-start(d), channel_id=2, replica_groups=[1,4]<=[4], dimensions={0},
    use_global_device_ids=true
  ROOT done = f32[32,4]{1,0} all-gather-done(start)
}
"""
MACHINE = "work=f32:1G;memory=1GB"
LINKS = "1us/1GB;2:10us/1GB"


def test_by_hand() -> None:
    module = hloom.parse(COMPILED)
    found = forecast(module, parse_machine(MACHINE, LINKS))
    # Three sums of 256 bytes within pairs, 256 bytes received each; 384 bytes gathered across pairs, over slower links.
    assert found.collectives == pytest.approx(3 * (1e-6 + 256e-9) + 10e-6 + 384e-9)
    assert found.work == 0  # the product waits for memory: 512 ns of multiply-adds, 896 of bytes
    row, index = 256, 4
    update = row + index + (row + 2 * index)  # writes at most as much as its smaller operands have
    trip = (row + index + row) + update + (4 + 1)  # the condition compares a number with itself
    assert found.memory == pytest.approx((3 * trip + 4 * (8 * 16 + 16 * 4 + 8 * 4)) * 1e-9)
    assert found.seconds == found.collectives + found.memory + found.work
    slower = forecast(module, parse_machine("work=f32:0.5G;memory=1GB", LINKS))
    assert slower.work == pytest.approx(8 * 16 * 4 * 2e-9)
    assert found.memory - slower.memory == pytest.approx(4 * (8 * 16 + 16 * 4 + 8 * 4) * 1e-9)


def test_other_bytes_of_single_collectives() -> None:
    module = hloom.parse(COMPILED)
    machine = parse_machine(MACHINE, LINKS)
    less = forecast(module, machine, {"r": 128}).collectives
    assert forecast(module, machine).collectives - less == pytest.approx(3 * 128e-9)


def test_combined_collectives_share_a_latency() -> None:
    text = """HloModule m, num_partitions=4, is_scheduled=true
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[64] parameter(0)
  y = f32[192] parameter(1)
  ROOT r = (f32[64], f32[192]) all-reduce(x, y), channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true,
    to_apply=sum }"""
    module, machine = hloom.parse(text), parse_machine(MACHINE, "1us/1GB")
    (found,) = hloom.collectives(module)
    assert found.arrays == 2
    together, apart = (forecast(module, machine, combined=c).collectives for c in (True, False))
    assert together == pytest.approx(1e-6 + found.wire_bytes * 1e-9)
    assert apart - together == pytest.approx(1e-6)


def test_permutes_take_the_links_between_their_devices() -> None:
    text = """HloModule m, num_partitions=16, is_scheduled=true
ENTRY e {{ x = f32[1024] parameter(0)
  ROOT y = f32[1024] collective-permute(x), channel_id=1, source_target_pairs={{{pairs}}} }}"""
    near, far = (
        forecast(hloom.parse(text.format(pairs=pairs)), PRESETS["h100"]).collectives
        for pairs in ("{0,1},{1,0},{8,9},{9,8}", "{0,8},{8,0}")
    )
    assert near == pytest.approx(25e-6 + 4096 / 368e9)
    assert far == pytest.approx(150e-6 + 4096 / 50e9)


def test_memory_of_ops_that_move_or_overwrite_elements() -> None:
    module = hloom.parse("""ENTRY e { x = f32[100,8] parameter(0)
  u = f32[1,8] parameter(1)
  i = s32[] constant(0)
  cut = f32[2,8] slice(x), slice={[0:2], [0:8]}
  new = f32[100,8] dynamic-update-slice(x, u, i, i)
  view = f32[800] reshape(new)
  spread = f32[4,800] broadcast(view), dimensions={1}
  ROOT t = (f32[2,8], f32[4,800]) tuple(cut, spread) }""")
    found = {i.name: touched(i) for i in module.entry}
    assert found == {
        "x": 0, "u": 0, "i": 0, "cut": 128, "new": 32 + 8 + 40, "view": 0, "spread": 3200 + 12800, "t": 0,
    }  # fmt: skip


def test_slower_machines_take_longer() -> None:
    local = hloom.partition(hloom.parse("""ENTRY e { x = f32[512,512] parameter(0), sharding={devices=[1,8]<=[8]}
  w = f32[512,512] parameter(1), sharding={devices=[8,1]<=[8]}
  ROOT y = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated} }"""))
    times = [forecast(local, PRESETS[name]).seconds for name in ("tpu-v5p", "h100", "cpu-cluster")]
    assert times == sorted(times)
    assert times[0] > 0


NORM = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[256,512] parameter(0)
  s = f32[256,512] multiply(x, x)
  zero = f32[] constant(0)
  r = f32[256] reduce(s, zero), dimensions={1}, to_apply=sum
  d = f32[256,512] broadcast(r), dimensions={0}
  y = f32[256,512] divide(x, d)
  ROOT z = f32[256,512] add(y, x) }"""


def test_a_nest_of_loops_reads_a_value_once() -> None:
    """As the fusion of these ops does; outside of the nest each op reads its operands."""
    module, size = hloom.parse(NORM), 256 * 512 * 4
    machine = hloom.parse_machine("memory=1GB;work=f32:1000T")
    fused = hloom.parse(NORM)
    run_pass(FusionPass(), fused, PassContext())
    assert [i.opcode for i in fused.entry if i.operands] == ["fusion"]
    assert forecast(module, machine).memory == pytest.approx(2 * size / 1e9)
    assert forecast(fused, machine).memory == pytest.approx(2 * size / 1e9)
    clock = Clock.of(module, machine)
    alone = {i.name: clock.alone(i).memory for i in module.entry}
    assert alone["s"] == alone["y"] == pytest.approx(size / 1e9)
    assert alone["z"] == pytest.approx(2 * size / 1e9)
    assert clock.parts(module.entry.root).memory == pytest.approx(size / 1e9)


def sliced(text: str, parts: str) -> float:
    """Returns the bytes that a sum of slices of 256 x 512 numbers reads and writes."""
    module = hloom.parse(f"HloModule m\nENTRY e {{\n  x = f32[256,512] parameter(0)\n{parts}\n  {text} }}")
    return forecast(module, hloom.parse_machine("memory=1GB;work=f32:1000T")).memory * 1e9


def test_overlapping_slices_read_a_value_once() -> None:
    """Those of a stencil lie in caches; slices that do not overlap read what they take."""
    places = {"a": "[0:254], [0:512]", "b": "[1:255], [0:512]", "c": "[2:256], [0:512]"}
    parts = "\n".join(f"  {n} = f32[254,512] slice(x), slice={{{at}}}" for n, at in places.items())
    both = "  d = f32[254,512] add(a, b)\n  e = f32[254,512] negate(c)"
    result, whole = 254 * 512 * 4, 256 * 512 * 4
    assert sliced("ROOT r = f32[254,512] add(d, e)", f"{parts}\n{both}") == pytest.approx(whole + result, rel=1e-6)
    halves = "\n".join(f"  {n} = f32[256,128] slice(x), slice={{[0:256], [{at}]}}" for n, at in
                       {"a": "0:128", "b": "256:384"}.items())  # fmt: skip
    assert sliced("ROOT r = f32[256,128] add(a, b)", halves) == pytest.approx(3 * 256 * 128 * 4, rel=1e-6)
    rolled = "\n".join(
        f"  {n}{m} = f32[{size},512] slice(x), slice={{[{at}], [0:512]}}" for n, by in (("a", 1), ("b", 255))
        for m, size, at in ((0, 256 - by, f"{by}:256"), (1, by, f"0:{by}"))) + "\n" + "\n".join(
        f"  {n} = f32[256,512] concatenate({n}0, {n}1), dimensions={{0}}" for n in "ab")  # fmt: skip
    assert sliced("ROOT r = f32[256,512] add(a, b)", rolled) == pytest.approx(2 * whole, rel=1e-6)
