"""Repeated work: it is reported with both costs, and avoided where that is slower."""

from __future__ import annotations

import re

import hloom
import pytest
from hloom.cost.presets import parse_machine
from hloom.ir.diagnostics import Diagnostics
from hloom.passes.base import PassContext
from hloom.passes.stages import to_local
from support.command_line import EXAMPLES

# Heads are divided in the operand and columns in the weight; the result wants neither.
GATHERED = """HloModule m
ENTRY e {
  x = f32[32,1024,16,128] parameter(0), sharding={devices=[2,1,4,1]<=[8]}
  w = f32[16,128,2048] parameter(1), sharding={devices=[4,1,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}
  ROOT y = f32[32,1024,2048] dot(x, w), lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1},
    sharding={devices=[2,1,1,4]<=[8] last_tile_dim_replicate}
}"""


def _work(machine: str, text: str) -> list[str]:
    local = hloom.partition(hloom.parse(text), machine=parse_machine(machine))
    return [f"{d.message}; {d.help}" for d in local.remarks if d.category == "work"]


def test_repeated_work_is_reported_with_both_costs() -> None:
    found = _work("", (EXAMPLES / "mlp_train.hlo").read_text())
    assert len(found) == 1
    numbers = re.search(
        r"groups of 8 devices: ([\d,]+) multiply-adds on each, (\d+)% of the program's, for ([\d,]+) bytes received; "
        r"divided ([\d,]+) for ([\d,]+) bytes received; dividing it is [\d.]+ ns slower", found[0],
    )  # fmt: skip
    assert numbers is not None, found
    now, share, bytes_now, divided, bytes_divided = (int(n.replace(",", "")) for n in numbers.groups())
    assert now == 8 * divided
    assert share > 50
    assert bytes_now < bytes_divided


def test_less_than_a_nanosecond_is_no_difference() -> None:
    text = """ENTRY e { x = f32[6,8] parameter(0), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}
 w = f32[8,8] parameter(1)
 ROOT y = f32[6,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
  sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate} }"""
    (found,) = _work("", text)
    assert "; dividing it takes as long by the times of this machine" in found


@pytest.mark.parametrize("remarks", [True, False])
def test_it_is_not_looked_for_without_remarks(remarks: bool) -> None:
    module, diagnostics = hloom.load(EXAMPLES / "mlp_train.hlo"), Diagnostics(remarks=remarks)
    to_local(module, PassContext(num_devices=8, diagnostics=diagnostics))
    assert ("work" in {d.category for d in diagnostics.found}) is remarks
    assert bool(diagnostics.found) is remarks


@pytest.mark.parametrize("machine", ["work=f32:1G", "cpu-cluster;work=f32:1M"])
def test_slow_devices_repeat_no_work(machine: str) -> None:
    assert not _work(machine, (EXAMPLES / "mlp_train.hlo").read_text())
    assert not _work(machine, GATHERED)


def test_a_contraction_is_divided_along_another_factor_than_its_operands() -> None:
    """Dividing rows more finely and gathering the result beats both a reduction and repeated work."""
    assert not _work("", GATHERED)
    local = hloom.partition(hloom.parse(GATHERED))
    dots = [i.shape.dims for i in local.entry if i.opcode == "dot"]
    assert dots == [(4, 1024, 2048)]


def test_of_nearly_equal_times_the_one_with_less_work_wins() -> None:
    """Where latency dominates, gathering the larger result takes half a per cent longer than gathering the operand."""
    text = """HloModule m
ENTRY e { x = f32[64,64] parameter(0), sharding={devices=[8,1]<=[8]}
  w = f32[64,256] parameter(1), sharding={replicated}
  ROOT y = f32[64,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated} }"""
    found = {}
    for machine in ("", "h100"):
        local = hloom.partition(hloom.parse(text), machine=parse_machine(machine))
        (gather,), (dot,) = hloom.collectives(local), hloom.contractions(local)
        found[machine] = gather.buffer_bytes, dot.work, dot.alike
    whole = 64 * 64 * 256
    assert found[""] == (64 * 64 * 4, whole, 8)  # bytes decide by far
    assert found["h100"] == (64 * 256 * 4, whole // 8, 1)


def test_what_runs_on_one_device_is_not_divided_there() -> None:
    """Where work is slow, the op leaves the device that has an operand, and is divided among all."""
    text = """HloModule m
ENTRY e { x = f32[64,64] parameter(0), sharding={maximal device=1}
  w = f32[64,64] parameter(1), sharding={devices=[2,2]<=[4]}
  ROOT y = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={maximal device=1} }"""
    module = hloom.parse(text)
    local = hloom.partition(module, machine=parse_machine("work=f32:1K"))
    dot = next(i for i in local.entry if i.opcode == "dot")
    assert dot.operands[0].shape.num_elements * dot.shape.dims[1] * 4 == 64**3
    assert hloom.prove(module, local, trials=1).is_equal


def test_a_contraction_is_divided_by_digits_that_no_value_around_it_has() -> None:
    """Rows are divided over one axis; on slow devices columns are divided over the other one, and gathered."""
    text = """HloModule m
ENTRY e { x = f32[512,512] parameter(0), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}
  w = f32[512,512] parameter(1), sharding={replicated}
  ROOT y = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate} }"""
    assert not _work("cpu-cluster", text)
    local = hloom.partition(hloom.parse(text), machine=parse_machine("cpu-cluster"))
    assert [c.work for c in hloom.contractions(local)] == [512**3 // 8]
    assert [c.kind for c in hloom.collectives(local)] == ["all-gather"]
    assert hloom.prove(hloom.parse(text), local, trials=1).is_equal
    assert len(_work("h100", text)) == 1


def test_fewer_bytes_of_a_sum_that_is_divided_further() -> None:
    """Parts of a sum are reduced and scattered; dividing columns over the idle axis halves them before."""
    text = """HloModule m
ENTRY e { x = f32[16,64] parameter(0), sharding={mesh['a'=2,'b'=4], [{}, {'b'}]}
  w = f32[64,32] parameter(1), sharding={mesh['a'=2,'b'=4], [{'b'}, {}]}
  ROOT y = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    sharding={mesh['a'=2,'b'=4], [{'b'}, {}]} }"""
    local = hloom.partition(hloom.parse(text))
    whole = 16 * 32 * 4
    assert {c.kind: c.sent_bytes for c in hloom.collectives(local)} == {
        "reduce-scatter": whole // 2 * 3 // 4, "all-gather": whole // 4 // 2
    }  # fmt: skip
