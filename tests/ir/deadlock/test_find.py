"""The deadlock checker: values that collectives make the same, numbers of devices, and no false alarms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import hloom
import numpy as np
import pytest
from comm_programs.cases import programs as annotated_programs
from hloom.cli import run as run_command
from hloom.ir.analysis.variation import Variations
from hloom.ir.diagnostics import Severity
from hloom.ir.graph.module import Module
from hloom.runtime.ranks.launch import launch
from hypothesis import HealthCheck, Phase, given, settings
from programs.random.generate import REGIONS, programs
from support.calls import calls
from support.command_line import hloom as command_line
from support.golden import FOLDER, cases_of
from support.schedule_programs import BRANCH, LOOP
from support.xla_runner import compile_text

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
XLA_DEFAULT = ("while_sharded_state", "conditional", "cholesky_divided")
_PREDICATED = """HloModule m, num_partitions=4, is_scheduled=true
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
yes { x = f32[4] parameter(0)
  ROOT s = f32[4] all-reduce(x), channel_id=9, replica_groups=GROUPS, use_global_device_ids=true, to_apply=add }
no { ROOT x = f32[4] parameter(0) }
ENTRY e {
  x = f32[4] parameter(0), sharding=SHARDING
  i = u32[] partition-id()
  zero = f32[] constant(0)
  t = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  u = VALUE
  p = pred[] compare(u, zero), direction=LT
  ROOT c = f32[4] conditional(p, x, x), true_computation=yes, false_computation=no
}"""
_ROWS = "{devices=[2,2]<=[4] last_tile_dim_replicate}"  # devices 0 and 1 hold the first tile
_SUM = "f32[] all-reduce(t), channel_id=1, replica_groups={%s}, use_global_device_ids=true, to_apply=add"


def predicated(value: str, groups: str = "{{0,1},{2,3}}", sharding: str = "{devices=[4]<=[4]}") -> list[str]:
    """The severities of the findings, where a collective over these groups stands under a predicate of a value."""
    text = _PREDICATED.replace("VALUE", value).replace("GROUPS", groups).replace("SHARDING", sharding)
    return [d.severity.value for d in hloom.find_deadlocks(hloom.parse(text))]


@pytest.mark.parametrize(
    ("value", "groups", "sharding"),
    [
        ("f32[] copy(t)", "{{0,1},{2,3}}", _ROWS),
        (_SUM % "{0,1},{2,3}", "{{0,1},{2,3}}", "{devices=[4]<=[4]}"),
        (_SUM % "{0,2},{1,3}", "{{0,2},{1,3}}", "{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"),
        (_SUM % "{0,1,2,3}", "{{0,3},{1,2}}", "{devices=[4]<=[4]}"),
        ("f32[] collective-permute(t), channel_id=1, source_target_pairs={{0,0},{0,1}}", "{{2,3},{0},{1}}", _ROWS),
        ("f32[] convert(i)", "{{0},{1},{2},{3}}", "{devices=[4]<=[4]}"),
    ],
)
def test_values_that_are_the_same_in_each_group(value: str, groups: str, sharding: str) -> None:
    assert predicated(value.replace("{0,0},", ""), groups, sharding) == []


@pytest.mark.parametrize(
    ("value", "groups", "sharding"),
    [
        ("f32[] copy(t)", "{{0,2},{1,3}}", _ROWS),
        (_SUM % "{0,1},{2,3}", "{{0,2},{1,3}}", "{devices=[4]<=[4]}"),
        ("f32[] collective-permute(t), channel_id=1, source_target_pairs={{2,1},{3,0}}", "{{0,2},{1,3}}", _ROWS),
        ("f32[] rng(zero, zero), distribution=rng_uniform", "{{0,1},{2,3}}", "{replicated}"),
        ('f32[] custom-call(t), custom_call_target="f", custom_call_has_side_effect=true', "{{0,1},{2,3}}", _ROWS),
    ],
)
def test_values_that_may_differ_in_a_group(value: str, groups: str, sharding: str) -> None:
    assert predicated(value, groups, sharding) == ["warning"]


def test_a_foreign_parameter_without_a_sharding_may_differ() -> None:
    text = _PREDICATED.replace("VALUE", "f32[] copy(t)").replace("GROUPS", "{{0,1},{2,3}}")
    assert len(hloom.find_deadlocks(hloom.parse(text.replace(", sharding=SHARDING", "")))) == 1


def test_results_of_groups() -> None:
    variations = Variations(4)
    rows = variations.by([0, 0, 1, 1])
    assert variations.grouped(rows, ((0, 2), (1, 3)), alike=True) is variations.same
    assert variations.grouped(rows, ((0, 2), (1, 3)), alike=False) is rows
    assert variations.grouped(rows, ((0, 2), (3, 1)), alike=True).classes.tolist() == [0, 1, 0, 1]
    assert variations.sent(rows, ((0, 1), (2, 3))).classes.tolist() == [0, 1, 0, 2]
    assert variations.together(rows, variations.by([0, 1, 0, 1])) is variations.different
    assert np.array_equal(variations.by("baab").classes, [0, 1, 1, 0])


def test_nothing_is_found_in_a_program_that_is_not_partitioned() -> None:
    assert hloom.find_deadlocks(hloom.parse("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }")) == []


def test_collectives_of_another_compiler_may_share_a_channel() -> None:
    """JAX gives all collectives of a shard_map channel 1; XLA does not tell them apart by it."""
    text = """HloModule m, num_partitions=2, is_scheduled=true
    add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
    ENTRY e {
      x = f32[4] parameter(0)
      s = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
      ROOT g = f32[8] all-gather(s), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}
    }"""
    assert hloom.find_deadlocks(hloom.parse(text)) == []


def test_an_outer_predicate_says_who_comes() -> None:
    """Devices 2 and 3 disagree about the inner predicate, but never come there."""
    outer = """upper { x = f32[4] parameter(0)
  i = u32[] partition-id()
  three = u32[] constant(3)
  q = pred[] compare(i, three), direction=EQ
  ROOT c = f32[4] conditional(q, x, x), true_computation=yes, false_computation=no }
ENTRY"""
    text = _PREDICATED.replace("ENTRY", outer).replace("GROUPS", "{{0,1},{2,3}}").replace("SHARDING", "{replicated}")
    text = text.replace("u = VALUE", "two = u32[] constant(2)").replace("compare(u, zero)", "compare(i, two)")
    assert hloom.find_deadlocks(hloom.parse(text.replace("true_computation=yes, false_computation=no\n}",
                                                         "true_computation=upper, false_computation=no\n}"))) == []
    found = hloom.find_deadlocks(hloom.parse(text.replace("true_computation=yes, false_computation=no\n}",
                                                          "true_computation=no, false_computation=upper\n}")))
    assert [d.severity for d in found] == [Severity.ERROR]


@pytest.mark.parametrize(
    ("header", "attributes", "help"),
    [
        (", num_partitions=4", "use_global_device_ids=false", "without channel_id the numbers count replicas"),
        (", num_partitions=4", "channel_id=1", "with use_global_device_ids=true the numbers count devices"),
        (", num_partitions=2", "channel_id=1, use_global_device_ids=true", ""),
    ],
)
def test_groups_out_of_range_have_help(header: str, attributes: str, help: str) -> None:
    text = f"""HloModule m{header}
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={{{{0,1,2,3}}}}, to_apply=sum, {attributes}
}}"""
    (found,) = hloom.find_deadlocks(hloom.parse(text))
    assert (found.line, found.column) == (5, 8)
    assert (found.help or "").startswith(help)
    assert bool(found.help) == bool(help)


def test_the_command(tmp_path: Path) -> None:
    wrong = BRANCH.replace("divide(i, two)", "remainder(i, two)")
    done = command_line("verify", "-", cwd=tmp_path, text=wrong)
    assert (done.code, done.out) == (0, "m: ok, 4 computations, 24 instructions\n")
    assert "<stdin>:25:8: warning: cannot show that predicate p of c" in done.err
    told = json.loads(command_line("verify", "-", "--json", cwd=tmp_path, text=wrong).out)
    assert (told["ok"], [d["category"] for d in told["diagnostics"]]) == (True, ["deadlock"])
    assert command_line("verify", "-", "--werror=deadlock", cwd=tmp_path, text=wrong).code == 65
    done = command_line("verify", "-", cwd=tmp_path, text=LOOP.replace("divide(i, two)", "copy(i)"))
    assert done.code == 65
    assert "error: all-reduce y: device 0 waits for ever for device 1, both of group {0,1}" in done.err


def test_more_devices_than_can_be_listed_are_a_warning(tmp_path: Path) -> None:
    text = """HloModule a, num_partitions=1073741824
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[8] parameter(0)
  ROOT y = f32[8] all-reduce(x), channel_id=1, replica_groups=[1,1073741824]<=[1073741824], use_global_device_ids=true,
    to_apply=add }"""
    done = command_line("verify", "-", cwd=tmp_path, text=text)
    assert done.code == 0
    assert "<stdin>:4:8: warning: cannot show that all devices come to all-reduce y" in done.err
    for ranks in ((), ("--ranks", "2")):
        assert command_line("run", "-", *ranks, cwd=tmp_path, text=text).code == 65


def _start_nothing(*_: object, **__: object) -> int:
    return 0


@pytest.mark.parametrize("command", ["run", "bench"])
def test_nothing_starts_that_waits_for_ever(tmp_path: Path, command: str) -> None:
    text = LOOP.replace("divide(i, two)", "copy(i)")
    for more in ((), ("--ranks", "2"), ("--ranks", "4", "--backend", "native")):
        with calls(launch) as started:
            done = command_line(command, "-", *more, cwd=tmp_path, text=text)
        assert (done.code, done.out, started) == (65, "", [])
        assert "error: all-reduce y: device 0 waits for ever for device 1, both of group {0,1}" in done.err


def test_ranks_that_are_not_sure_to_meet_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "launch", _start_nothing)
    text = _PREDICATED.replace("SHARDING", "{devices=[4]<=[4]}").replace("VALUE", "f32[] copy(t)")
    text = text.replace("GROUPS", "{{0,1},{2,3}}")
    done = command_line("run", "-", "--ranks", "2", cwd=tmp_path, text=text)
    assert (done.code, done.err.count("warning: cannot show that predicate p of c")) == (0, 1)
    assert command_line("run", "-", "--ranks", "2", "--werror=deadlock", cwd=tmp_path, text=text).code == 65


def _golden() -> Iterator[str]:
    for file in sorted(FOLDER.glob("*.hlo")):
        yield from (c.text for c in cases_of(file) if any(v.split()[0] in ("EVAL", "COLLECTIVES") for v in c.verbs))


@pytest.mark.share(3)
@pytest.mark.parametrize("part", range(3))
def test_no_false_alarm_in_golden_cases_and_examples(part: int) -> None:
    texts = [*_golden(), *(file.read_text() for file in (FOLDER.parents[2] / "examples").glob("*.hlo"))]
    found = [d for text in texts[part::3] for d in hloom.find_deadlocks(hloom.partition(hloom.parse(text)))]
    assert len(texts) > 50
    assert found == []


def _no_alarm(module: Module) -> None:
    local = hloom.partition(module)
    found = hloom.find_deadlocks(local)
    assert found == [], f"{found}\n{local.to_text()}"


@settings(max_examples=10, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_no_false_alarm_in_random_programs(module: Module) -> None:
    _no_alarm(module)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=QUIET, phases=[Phase.generate])
@given(programs(max_ops=8, outer=REGIONS))
def test_no_false_alarm_in_many_random_programs(module: Module) -> None:
    _no_alarm(module)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in XLA_DEFAULT else pytest.mark.slow) for n in annotated_programs()]
)
def test_no_false_alarm_in_what_xla_makes(name: str) -> None:
    text = annotated_programs()[name]
    executable = compile_text(text, partitions=hloom.parse(text).num_partitions)
    made = executable.loaded.hlo_modules()[0].to_string()
    assert hloom.find_deadlocks(hloom.parse(made)) == []
    assert hloom.find_deadlocks(hloom.partition(hloom.parse(text))) == []
