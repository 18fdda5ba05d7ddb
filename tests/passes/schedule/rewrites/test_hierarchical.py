"""Collectives over two levels of links are split where the machine says so, and compute the same."""

from __future__ import annotations

import hloom
import pytest
from hloom.passes.base import PassContext
from hloom.passes.schedule.rewrites.base import RewriteProgram
from hloom.passes.scheduling import schedule
from support.rewrites import collectives, differences, rewritten

PASS = "hierarchical-collectives"
HEAD = """HloModule m, num_partitions=8
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
odd { a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] add(a, b)  ROOT r = f32[] tanh(c) }
ENTRY e {
"""
HOSTS = hloom.parse_machine("", "1us/100GB;4:5us/5GB")  # of four devices
ALL, BY_DEVICE, BY_HALF = "{{0,1,2,3,4,5,6,7}}", "{{0,4,1,5,2,6,3,7}}", "{{0,1,4,5},{2,3,6,7}}"


def reduce(dims: str, groups: str = ALL, by: str = "add") -> str:
    return (f"{HEAD}  x = f32[{dims}] parameter(0)\n  ROOT s = f32[{dims}] all-reduce(x), channel_id=1, "
            f"replica_groups={groups}, use_global_device_ids=true, to_apply={by}\n}}")  # fmt: skip


def gather(before: str, after: str, dim: int, groups: str) -> str:
    return (f"{HEAD}  x = f32[{before}] parameter(0)\n  ROOT g = f32[{after}] all-gather(x), channel_id=1, "
            f"replica_groups={groups}, use_global_device_ids=true, dimensions={{{dim}}}\n}}")  # fmt: skip


def scatter(before: str, after: str, dim: int, groups: str) -> str:
    return (f"{HEAD}  x = f32[{before}] parameter(0)\n  ROOT g = f32[{after}] reduce-scatter(x), channel_id=1, "
            f"replica_groups={groups}, use_global_device_ids=true, dimensions={{{dim}}}, to_apply=add\n}}")  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        reduce("64,100"), reduce("100,64"), reduce("99,101"), reduce("99,101", by="most"), reduce("64,100", BY_HALF),
        reduce("64,100", BY_DEVICE), reduce("64,100", "{{0,5,1,4,3,2,6,7}}"),
    ],
    ids=["even", "second dimension", "padded", "maximum", "halves", "devices first", "any order"],
)  # fmt: skip
def test_all_reduces(text: str) -> None:
    module, remarks = rewritten(text, PASS, HOSTS)
    assert collectives(module) == {"reduce-scatter": 1, "all-reduce": 1, "all-gather": 1}
    assert "in place of" in remarks[0]
    assert differences(text, module, exact=True, whole=True) == ""
    assert differences(text, module) == ""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (gather("100,60", "800,60", 0, ALL), "all-gather"),
        (gather("100,60", "100,480", 1, ALL), "all-gather"),
        (gather("100,60", "100,480", 1, BY_DEVICE), "all-gather"),
        (gather("100,60", "400,60", 0, BY_HALF), "all-gather"),
        (scatter("800,60", "100,60", 0, ALL), "reduce-scatter"),
        (scatter("100,480", "100,60", 1, ALL), "reduce-scatter"),
        (scatter("100,480", "100,60", 1, BY_DEVICE), "reduce-scatter"),
        (scatter("400,60", "100,60", 0, BY_HALF), "reduce-scatter"),
    ],
)
def test_gathers_and_scatters(text: str, kind: str) -> None:
    module, _ = rewritten(text, PASS, HOSTS)
    assert collectives(module) == {kind: 2}
    assert differences(text, module, exact=True, whole=True) == ""


@pytest.mark.parametrize(
    ("text", "machine", "why"),
    [
        (reduce("64,100"), hloom.parse_machine(), ""),
        (reduce("64,100", "{{0,1,2,3},{4,5,6,7}}"), HOSTS, ""),
        (reduce("64,100", "{{0,4},{1,5},{2,6},{3,7}}"), HOSTS, ""),
        (reduce("2,2"), HOSTS, "in two levels"),
        (reduce("64,100", "{{0,1,4},{2,3,5,6,7}}"), HOSTS, "as many devices in each host"),
        (reduce("64,100", by="odd"), HOSTS, "associative"),
        (gather("100,60", "800,60", 0, "{{0,5,1,4,3,2,6,7}}"), HOSTS, "mixes hosts"),
    ],
    ids=["one level", "in a host", "across hosts", "small", "uneven groups", "any reduction", "order"],
)
def test_one_step(text: str, machine: hloom.Machine, why: str) -> None:
    module, remarks = rewritten(text, PASS, machine)
    assert module.to_text() == hloom.parse(text).to_text()
    assert any(why in r for r in remarks) if why else not remarks


def test_fewer_bytes_cross_the_slow_links() -> None:
    """A quarter of the array, twice, less the device's own part."""
    module, _ = rewritten(reduce("640,100"), PASS, HOSTS)
    program = RewriteProgram(module, PassContext(machine=HOSTS))
    across = [c for c in hloom.collectives(module) if c.kind == "all-reduce"]
    assert [c.wire_bytes for c in across] == [640 * 100 * 4 // 4]
    before = program.time("all-reduce", 640 * 100 * 4, ((0, 1, 2, 3, 4, 5, 6, 7),))
    after = sum(c.wire_bytes / (5e9 if c.kind == "all-reduce" else 100e9) + (5e-6 if c.kind == "all-reduce" else 1e-6)
                for c in hloom.collectives(module)) * 1e12  # fmt: skip
    assert after < before / 2


def test_a_schedule_tries_levels() -> None:
    """It takes them where the whole program is faster, and leaves what a machine of one level has."""
    text = (f"{HEAD}  x = f32[512,64] parameter(0)\n  w = f32[64,64] parameter(1)\n"
            "  y = f32[512,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            f"  s = f32[512,64] all-reduce(y), channel_id=1, replica_groups={ALL}, use_global_device_ids=true, "
            "to_apply=add\n  ROOT r = f32[512,64] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}")
    module, remarks = hloom.parse(text), PassContext(machine=HOSTS)
    plain = schedule(hloom.parse(text), PassContext(machine=hloom.parse_machine("", "1us/5GB")))
    schedule(module, remarks)
    assert collectives(plain) == {"all-reduce": 1}
    assert collectives(module) == {"reduce-scatter": 1, "all-reduce": 1, "all-gather": 1}
    said = [d.message for d in remarks.diagnostics.found]
    assert any(m.startswith("hierarchical-collectives: ") and m.endswith(" without") for m in said)
    assert differences(text, module, exact=True, whole=True) == ""
