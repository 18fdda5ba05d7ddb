"""The forecast of a step: parts that add up, utilisation, rates, kernels, confidence."""

from __future__ import annotations

from dataclasses import replace

import hloom
import pytest
from hloom.cost.links import Link, Links
from hloom.cost.machine import Cluster
from hloom.cost.presets import PRESETS
from hloom.report.schedule import schedule_summary
from hloom.report.traffic import TrafficReport

MACHINE = Cluster(Links(((1, Link(1e-3, 1e9)),)), 1e9, 1e9, known_error=0.25)
STEP = """HloModule step
ENTRY e { x = f32[8,128,64] parameter(0), sharding={mesh['d'=4], [{'d'}, {}, {}]}
  w = f32[64,64] parameter(1), sharding={mesh['d'=4], [{'d'}, {}]}
  ids = s32[8,128] parameter(2), sharding={mesh['d'=4], [{'d'}, {}]}
  y = f32[8,128,64] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  z = f32[8,128,64] dot(y, w), lhs_contracting_dims={2}, rhs_contracting_dims={0},
    metadata={op_name="checkpoint/rematted_computation/dot"}
  ROOT t = (f32[8,128,64], s32[8,128]) tuple(z, ids) }
"""
WORK = 8 * 128 * 64 * 64  # multiply-adds of one product


def test_the_parts_are_the_step() -> None:
    module = hloom.parse(STEP)
    found = hloom.forecast(module, MACHINE)
    assert module.stage is hloom.Stage.GLOBAL
    assert found.devices == 4
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds)
    parts = {part.name: part.seconds for part in found.parts}
    assert parts["all-gather, 1 of 4 (d)"] == pytest.approx(1e-3 + 3 * 16 * 64 * 4 / 1e9)
    assert parts["products"] == pytest.approx(2 * WORK / 4 / 1e9)
    assert [part.seconds for part in found.parts] == sorted((p.seconds for p in found.parts), reverse=True)
    assert found.bound.seconds <= found.seconds * (1 + 1e-9)


def test_utilisation_counts_what_is_computed_once() -> None:
    found = hloom.forecast(hloom.parse(STEP), MACHINE)
    assert found.utilisation == pytest.approx(WORK / 1e9 / 4 / found.seconds)
    assert found.with_recomputation == pytest.approx(2 * WORK / 1e9 / 4 / found.seconds)
    local = hloom.partition(hloom.parse(STEP), machine=MACHINE)
    assert hloom.forecast(local, MACHINE).utilisation is None
    assert hloom.forecast(local, MACHINE).seconds == pytest.approx(found.seconds)


@pytest.mark.parametrize(("name", "count", "unit"), [("ids", 1024, "tokens"), ("x", 8, "samples")])
def test_rates(name: str, count: int, unit: str) -> None:
    module = hloom.parse(STEP)
    for given in (module, hloom.partition(module, machine=MACHINE)):
        found = hloom.forecast(given, MACHINE, batch_of=name)
        assert (found.rate, found.unit) == (pytest.approx(count / found.seconds), unit)


def test_a_parameter_that_is_none() -> None:
    with pytest.raises(hloom.CompileError, match="no parameter of step is the array 'idx'") as caught:
        hloom.forecast(hloom.parse(STEP), MACHINE, batch_of="idx")
    assert "known: ids" in str(caught.value)


def test_the_text_says_all() -> None:
    lines = str(hloom.forecast(hloom.parse(STEP), MACHINE, batch_of="ids")).splitlines()
    assert lines[0].endswith(" per step on 4 devices of the given machine")
    assert any(line.startswith("bounds: products, ") for line in lines)
    assert any(line.startswith("rate: ") and line.endswith(" per device") for line in lines)
    assert "confidence: forecasts of this machine were up to 25% off published steps" in lines
    assert any(line.startswith("peak memory: ") for line in lines)


def test_hidden_collectives_bound_the_step_if_nothing_hides_them() -> None:
    """A gather that runs beside the first product takes longer than all but the products."""
    text = """HloModule m
ENTRY e { x = f32[256,64] parameter(0), sharding={mesh['d'=4], [{'d'}, {}]}
  w = f32[64,64] parameter(1), sharding={mesh['d'=4], [{}, {}]}
  v = f32[64,64] parameter(2), sharding={mesh['d'=4], [{'d'}, {}]}
  y = f32[256,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[256,64] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    slow = Cluster(Links(((1, Link(1e-5, 1e10)),)), 1e12, 1e9)
    found = hloom.forecast(hloom.parse(text), slow)
    gather = next(part for part in found.parts if part.name == "all-gather, 1 of 4 (d)")
    assert gather.seconds == 0
    assert gather.running == pytest.approx(1e-5 + 3 * 16 * 64 * 4 / 1e10)
    assert (found.parts[0].name, found.next) == ("products", "all-gather, 1 of 4 (d)")
    assert found.seconds == pytest.approx(sum(part.seconds for part in found.parts))
    fast = hloom.forecast(hloom.parse(text), Cluster(Links(((1, Link(1e-9, 1e15)),)), 1e8, 1e6))
    assert (fast.parts[0].name, fast.next) == ("products", "all-gather, 1 of 4 (d)")


def test_a_machine_without_rows_says_so() -> None:
    assert PRESETS["tpu-v4"].error is None
    text = str(hloom.forecast(hloom.parse(STEP), replace(MACHINE, known_error=0.0)))
    assert "confidence: no step of this machine was compared" in text


def test_a_torus_has_the_shape_of_its_devices() -> None:
    found = hloom.forecast(hloom.parse(STEP), "tpu-v5e")
    assert found.torus == (2, 2)
    assert "links: a torus of 2x2 devices" in str(found)
    assert hloom.forecast(hloom.parse(STEP), "tpu-v5e:1x4").torus == (1, 4)


def test_a_part_of_a_torus_is_said_to_be_one() -> None:
    text = str(hloom.forecast(hloom.parse(STEP), "tpu-v5e:4x4"))
    assert "links: the first 4, row by row, of a torus of 4x4 devices" in text


def test_attention_is_said_to_be_a_kernel() -> None:
    text = """HloModule m
ENTRY e { q = bf16[8,512,64] parameter(0), sharding={mesh['d'=4], [{'d'}, {}, {}]}
  s = bf16[8,512,512] dot(q, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  p = bf16[8,512,512] exponential(s)
  ROOT o = bf16[8,512,64] dot(p, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1} }"""
    found = hloom.forecast(hloom.parse(text), "h100")
    assert found.kernels == 2
    assert "attention: 2 products as part of fused kernels" in str(found)
    assert hloom.forecast(hloom.parse(text), MACHINE).kernels == 0


TWICE = """HloModule m, num_partitions=4, replica_count=1
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
body { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  r = f32[8] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum
  ROOT t = (s32[], f32[8]) tuple(n, r) }
cond { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(100)
  ROOT lt = pred[] compare(i, n), direction=LT }
ENTRY e { y = f32[4096] parameter(0)
  x = f32[8] parameter(1)
  r = f32[4096] all-reduce(y), channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=sum
  z = s32[] constant(0)
  s = (s32[], f32[8]) tuple(z, x)
  w = (s32[], f32[8]) while(s), condition=cond, body=body
  ROOT t = (f32[4096], (s32[], f32[8])) tuple(r, w) }
"""


def test_collectives_of_one_name_in_two_computations_are_two() -> None:
    rows = hloom.forecast(hloom.parse(TWICE), MACHINE).schedule.collectives
    assert sorted((row.name, row.runs, row.bytes) for row in rows) == [("r", 1, 4 * 4096), ("r", 100, 4 * 8)]


OFFLOADED = """HloModule offloaded
ENTRY e { p = f32[1024,128] parameter(0), sharding={devices=[4,1]<=[4]}
  s = f32[1024,128]{1,0:S(5)} copy(p)
  t = f32[1024,128] sine(p)
  b = f32[1024,128] copy(s)
  ROOT m = f32[1024,128] multiply(t, b) }
"""


def test_moves_to_the_host_are_parts_of_the_step() -> None:
    """The only engine beside computation is the one of moves, which are no collectives."""
    found = hloom.forecast(hloom.parse(OFFLOADED), "h100")
    parts = {part.name: part for part in found.parts}
    assert {"moves to host", "moves from host"} <= parts.keys()
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds)
    assert found.next in parts
    line = found.schedule.timeline
    assert line.moves == pytest.approx(sum(parts[f"moves {way} host"].running or 0 for way in ("to", "from")))
    assert line.communication < line.exposed <= line.communication + line.moves
    said = f"of collectives and {1e3 * line.moves:.3g} ms of moves to and from the host"
    assert said in schedule_summary(found.schedule)


WRAPPED = """HloModule wrapped, is_scheduled=true, num_partitions=8
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
c { p = f32[64,128] parameter(0)
  ROOT r = f32[8,128] reduce-scatter(p), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true,
    dimensions={0}, to_apply=add }
ENTRY e { p = f32[64,128] parameter(0)
  s = ((f32[64,128]), f32[8,128]) async-start(p), calls=c
  ROOT d = f32[8,128] async-done(s), calls=c }
"""


def test_a_start_of_a_computation_is_the_collective_in_it() -> None:
    """XLA for GPUs wraps reduce-scatters so."""
    (row,) = hloom.forecast(hloom.parse(WRAPPED), "h100").schedule.collectives
    assert (row.name, row.kind, row.bytes) == ("r", "reduce-scatter", 64 * 128 * 4)


def test_calls_of_unknown_work_are_told() -> None:
    """A kernel in a loop of 100 trips, and one of another target beside it."""
    call = 'custom-call({0}), custom_call_target="{1}", metadata={{op_name="'
    text = TWICE.replace("all-reduce(x), ", call.format("x", "kernel"))
    text = text.replace("all-reduce(y), ", call.format("y", "one")).replace("to_apply=sum\n", '"}\n')
    found = hloom.forecast(hloom.parse(text), MACHINE)
    assert found.unknown == (("kernel", 100), ("one", 1))
    assert "of unknown time, counted by the bytes of their arrays: 100 of kernel, 1 of one" in str(found)
    assert hloom.forecast(hloom.parse(TWICE), MACHINE).unknown == ()


def test_kernels_may_state_their_work() -> None:
    """Pallas writes the estimate of a kernel's author beside its body; on MACHINE a multiply-add takes 1 ns."""
    config = '{"custom_call_config": {"body": "TUw=", "cost_estimate": {"transcendentals": 7, "flops": 4000000}}}'
    module = hloom.parse(f"""HloModule m, is_scheduled=true, num_partitions=2
ENTRY e {{ x = f32[8] parameter(0)
  ROOT k = f32[8] custom-call(x), custom_call_target="tpu_custom_call", backend_config={config} }}""")
    found = hloom.forecast(module, MACHINE)
    assert {part.name: part.seconds for part in found.parts} == {"products": pytest.approx(2e-3)}
    assert found.unknown == ()


def test_sends_are_told() -> None:
    """Pipelines of XLA for GPUs send from stage to stage without a collective."""
    text = """HloModule m, is_scheduled=true, num_partitions=2
ENTRY e { p = f32[8] parameter(0)
  t = token[] after-all()
  r = (f32[8], u32[], token[]) recv(t), channel_id=1
  s = (f32[8], u32[], token[]) send(p, t), channel_id=1
  d = (f32[8], token[]) recv-done(r), channel_id=1
  e = token[] send-done(s), channel_id=1
  ROOT g = f32[8] get-tuple-element(d), index=0 }"""
    assert hloom.forecast(hloom.parse(text), MACHINE).unknown == (("send", 1),)
    told = TrafficReport.of(hloom.parse(text), hloom.PassContext()).text()
    assert "m: 1 send of 32 bytes, which are not among these" in told
