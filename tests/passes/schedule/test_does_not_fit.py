"""Messages of memory limits that cost time, or that nothing meets: buffers with their lines, bytes that no order goes
below, and the ways that were tried with the memory that each reached.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import hloom
import pytest
from hloom.cost.attention import OutsideOfAttention
from hloom.cost.memory import at_peak, live_memory, peak_memory
from hloom.cost.presets import PRESETS
from hloom.cost.sizes import Bytes, sized
from hloom.ir.diagnostics import Diagnostic, Diagnostics
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.base import PassContext, run_pass
from hloom.passes.pipelines import partition
from hloom.passes.schedule.does_not_fit import DoesNotFit
from hloom.passes.schedule.fastest import REWRITES, Fastest
from hloom.passes.schedule.least_held import least_held
from hloom.passes.schedule.limits import Limits
from hloom.passes.schedule.memory_order import memory_orders
from hloom.passes.schedule.schedule import ScheduleCollectives
from hloom.passes.scheduling import schedule
from hloom.report.remarks import FEW, chosen
from support.fsdp_steps import fsdp_step
from support.layered_programs import Model

MACHINE = PRESETS["cpu-cluster"]
EXAMPLES = Path(__file__).parents[3] / "examples"


@cache
def _step() -> Module:
    """A step in which each product has a line."""
    lines = fsdp_step(4, layers=2, width=16, batch=64).splitlines()
    said = (f'{line}, metadata={{source_file="models/model.py" source_line={n}}}' if " dot(" in line else line
            for n, line in enumerate(lines))  # fmt: skip
    return partition(hloom.parse("\n".join(said)), PassContext(machine=MACHINE))


def _within(limit: int) -> list[Diagnostic]:
    context = PassContext(machine=MACHINE)
    run_pass(ScheduleCollectives(Bytes(limit), trials=20, budget=200), clone_module(_step()), context)
    return context.diagnostics.found


def test_a_limit_that_costs_time_is_said_with_buffers_ways_and_the_least() -> None:
    peak = live_memory(_step()).peak
    limit = int(0.8 * peak)
    noise = Diagnostics()
    for number in range(5):
        noise.remark(f"lost {number} otherwise", cost=1e12)
    shown, left_out = chosen(noise.found + _within(limit), FEW)
    assert left_out > 0
    first = shown[0]  # whatever else costs much
    found = re.match(r"schedule: faster programs need more than (\S+ KB), as (\S+ KB) for \S+ us; at ", first.message)
    assert found is not None
    assert found[1] == sized(limit)
    assert Bytes(found[2]) > limit
    assert re.search(r"\S+ \(temporary, \S+ K?B, model.py:\d+\)", first.message)
    tried, least = (note.message for note in first.notes)
    ways = dict(re.findall(r"(?:tried: |; )([a-z ]+?) (?:at least )?([\d.]+ [KM]B) \(\S+ [mu]s\)", tried))
    assert {"the order of the text", "buckets", "values computed again"} <= set(ways)
    assert Bytes(ways["the order of the text"]) == Bytes(sized(peak))
    assert Bytes(ways["values computed again"]) <= limit
    assert least.startswith("no order of these ops takes less than ")


def test_an_error_says_what_was_tried_and_the_least() -> None:
    with pytest.raises(DoesNotFit) as caught:
        _within(1000)
    (error,) = caught.value.diagnostics
    assert "model.py:" in (error.help or "")
    tried, least = (note.message for note in error.notes)
    reached = [Bytes(text) for text in re.findall(r"at least ([\d.]+ [KM]B)", tried)]
    assert len(reached) >= 4
    assert min(reached) == Bytes(sized(caught.value.peak))
    found = re.match(r"no order of these ops takes less than (\S+ KB): (\S+ KB) of parameters and constants, and those",
                     least)  # fmt: skip
    assert found is not None
    assert Bytes(found[2]) <= Bytes(found[1]) <= caught.value.peak


def test_a_large_program_whose_least_is_too_large_is_refused_at_once() -> None:
    least = least_held(_step(), MACHINE).bytes
    large = ScheduleCollectives(Bytes(least - 1), limits=Limits(large=1))
    with pytest.raises(DoesNotFit) as caught:
        run_pass(large, clone_module(_step()), PassContext(machine=MACHINE))
    (error,) = caught.value.diagnostics
    assert re.fullmatch(r"tried: the order of the text at least \S+ KB \(\S+ us\)", error.notes[0].message)
    assert caught.value.peak == peak_memory(_step(), OutsideOfAttention.on(MACHINE))


def test_an_error_has_the_rewrites_that_do_not_fit_either() -> None:
    text = Model(kind="fsdp", data=4, layers=2, batch=16, width=8, hidden=8).text()
    module = partition(hloom.parse(text), PassContext(machine=MACHINE))
    tight = ScheduleCollectives(Bytes(1), trials=20, budget=200)
    ways = Fastest(REWRITES[2:3], None, None, None, None, earlier=None, final=tight)
    with pytest.raises(DoesNotFit) as caught:
        run_pass(ways, module, PassContext(machine=MACHINE))
    (error,) = caught.value.diagnostics
    (others,) = (n.message for n in error.notes if n.message.startswith("tried as well: "))
    assert re.fullmatch(r"tried as well: (carry-reduce-scatters|the program as it is) at least \S+ K?B", others)
    assert Bytes(others.split(" at least ")[1]) >= Bytes(sized(caught.value.peak))


@pytest.mark.parametrize("name", ["h100", "cpu-cluster"])
@pytest.mark.parametrize("file", ["mlp_named.hlo", pytest.param("transformer_scan_train.hlo", marks=pytest.mark.slow)])
def test_no_order_goes_below_the_least(name: str, file: str) -> None:
    machine = PRESETS[name]
    local = partition(hloom.parse((EXAMPLES / file).read_text()), PassContext(machine=machine))
    for module in (local, *(other for other, _ in memory_orders(local))):
        kernels = OutsideOfAttention.on(machine)
        least = least_held(module, machine)
        assert least.given <= least.bytes <= peak_memory(module, kernels)
        assert least.given == sum(b.bytes for b in live_memory(module, kernels).buffers
                                  if b.kind in ("parameter", "constant"))  # fmt: skip
        assert at_peak(module, kernels)[0] == peak_memory(module, kernels)


def test_the_least_of_a_loop_is_its_state_and_of_its_readers_what_they_read() -> None:
    """Elements of a state that nobody reads any more are not held by the readers of others."""
    text = """HloModule m
body {
  s = (s32[], f32[1000], f32[1000]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  a = f32[1000] get-tuple-element(s), index=1
  b = f32[1000] get-tuple-element(s), index=2
  c = f32[1000] add(a, b)
  ROOT r = (s32[], f32[1000], f32[1000]) tuple(next, c, a)
}
cond {
  s = (s32[], f32[1000], f32[1000]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  most = s32[] constant(5)
  ROOT p = pred[] compare(n, most), direction=LT
}
ENTRY e {
  x = f32[1000] parameter(0)
  zero = s32[] constant(0)
  u = f32[1000] sine(x)
  v = f32[1000] cosine(x)
  i = (s32[], f32[1000], f32[1000]) tuple(zero, u, v)
  w = (s32[], f32[1000], f32[1000]) while(i), body=body, condition=cond
  k = f32[1000] get-tuple-element(w), index=1
  ROOT y = f32[1000] tanh(k)
}"""
    module = hloom.parse(text)
    least = least_held(module, MACHINE)
    assert (least.at.name, least.bytes - least.given) == ("w", 8000)
    read = text.replace("ROOT y = f32[1000] tanh(k)", """z = f32[1000] sine(k)
  ROOT y = f32[] dot(k, z), lhs_contracting_dims={0}, rhs_contracting_dims={0}""")
    least = least_held(hloom.parse(read), MACHINE)
    assert (least.at.name, least.bytes - least.given) == ("y", 8004)


def test_what_fits_into_less_memory_fits_into_more() -> None:
    """What is left of all that can go may fit where an aim at the limit itself misses it."""
    local = hloom.partition(hloom.parse(Model(layers=2, batch=16, width=16, hidden=128, loop=False).text())).module
    context = PassContext(machine=PRESETS["h100"].of_devices(4))
    with pytest.raises(DoesNotFit) as caught:
        schedule(clone_module(local), context, memory=1)
    for limit in (caught.value.peak, round(1.05 * caught.value.peak), round(1.12 * caught.value.peak)):
        found = clone_module(local)
        schedule(found, context, memory=limit)
        assert live_memory(found, OutsideOfAttention.on(context.machine)).peak <= limit
