"""The JSON value of `hloom report`: sums are those of `hloom comm`, chains those of `hloom explain`, tiles those of
`hloom picture`, and every number leads to an entry.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import hloom
import pytest
from hloom.ir.sharding.digit import Digit, disjoint
from hloom.passes.base import PassContext
from hloom.report.data.plan import Reported, reported
from hloom.report.data.record import report_data
from hloom.report.picture import picture
from support.command_line import EXAMPLES, ROOT
from support.command_line import hloom as command

STACK = EXAMPLES / "transformer_train.hlo"
SCAN = EXAMPLES / "transformer_scan_train.hlo"
Record = dict[str, Any]


@cache
def _made(name: str) -> tuple[Reported, Record]:
    plan = reported(hloom.load(EXAMPLES / name), PassContext(machine=hloom.parse_machine("h100")))
    return plan, report_data(name, [plan])["plans"][0]


@pytest.fixture(params=[
    "mlp_train.hlo", pytest.param("transformer_train.hlo", marks=pytest.mark.slow), "transformer_scan_train.hlo",
])  # fmt: skip
def made(request: pytest.FixtureRequest) -> tuple[Reported, Record]:
    return _made(request.param)


def test_sums_are_those_of_comm(made: tuple[Reported, Record]) -> None:
    plan, record = made
    sent = sum(c.sent_bytes for c in hloom.collectives(plan.local))
    for key in ("sections", "rows", "collectives"):
        assert sum(part["sent_bytes"] for part in record[key]) == sent > 0
    assert sum(k["sent_bytes"] for k in record["summary"]["kinds"].values()) == sent
    assert sum(row["count"] for row in record["rows"]) == len(hloom.collectives(plan.local))
    assert sum(s["multiply_adds"] for s in record["sections"]) == sum(c.work for c in hloom.contractions(plan.local))
    spent = sum(section["seconds"] for section in record["sections"])
    schedule = plan.forecast.schedule
    assert spent == pytest.approx(sum(e.seconds * e.trips for e in schedule.timeline.events if not e.is_collective))
    assert spent >= schedule.compute * (1 - 1e-9)  # collectives slow computation on this machine
    assert sum(r["waited"] for r in record["rows"]) == pytest.approx(sum(s["waited"] for s in record["sections"]))


def test_command_prints_what_comm_prints() -> None:
    said = json.loads(command("report", STACK, "--json", cwd=ROOT).out)
    comm = json.loads(command("comm", STACK, "--json", cwd=ROOT).out)
    assert (said["version"], said["program"], said["file"]) == (1, comm["program"], "transformer_train.hlo")
    plan = said["plans"][0]
    assert plan["summary"]["kinds"] == comm["kinds"]
    assert sum(s["sent_bytes"] for s in plan["sections"]) == comm["sent_bytes"]
    by_name = {c["name"]: c for c in comm["collectives"]}
    assert {c["name"]: c | by_name[c["name"]] for c in plan["collectives"]} == {
        c["name"]: c for c in plan["collectives"]
    }


def _chain(values: Record, value: int, dim: int, axis: list[Any]) -> list[tuple[str, int, str | None]]:
    """Follows the links of a value as the page does."""
    columns, seen = values["columns"], set[tuple[int, int]]()
    steps: list[tuple[str, int, str | None]] = []
    digit = Digit(*axis[1:])
    while (value, dim) not in seen:
        seen.add((value, dim))
        flat = columns["links"][value]
        links = [flat[i : i + 5] for i in range(0, len(flat), 5)]
        sharing = [n for n in links if n[0] == dim and not disjoint([digit], _digits(values["digits"][n[1]]))]
        link = next(iter(sharing), None)
        if link is None:
            return steps
        steps.append((columns["name"][value], dim, values["texts"][link[2]] if link[2] >= 0 else None))
        if link[2] < 0:
            return steps
        value, dim = link[3], link[4]
    return steps


def _digits(said: list[list[int]]) -> list[Digit]:
    return [Digit(*digit) for digit in said]


def test_chains_are_those_of_explain(made: tuple[Reported, Record]) -> None:
    plan, record = made
    values = record["values"]
    names = values["columns"]["name"]
    sampled = [n for n, name in enumerate(names) if "[" not in name][:: max(1, len(names) // 4)]
    longest = 0
    for number in sampled:
        found = next(e for e in hloom.explain(plan.whole, names[number]) if e.value == names[number])
        sharding = values["shardings"][values["columns"]["sharding"][number]]
        assert sharding["text"] == found.sharding
        chains = [(dim, axis[0], _chain(values, number, dim, axis))
                  for dim, axes in enumerate(sharding["axes"]) for axis in axes]  # fmt: skip
        assert chains == [(a.dim, a.axis, [(s.value, s.dim, s.via) for s in a.steps]) for a in found.axes]
        longest = max(longest, *(len(c[2]) for c in chains), 0)
    assert longest > 2


def test_tiles_are_those_of_the_picture() -> None:
    plan, record = _made("transformer_train.hlo")
    values, columns = record["values"], record["values"]["columns"]
    assert plan.solved is not None
    checked = 0
    for name, leaf, sharding in plan.solved.named():
        if name in columns["name"] and leaf.shape.rank == 2 and any(d.axes for d in sharding.dims):
            said = values["shardings"][columns["sharding"][columns["name"].index(name)]]
            shown = picture(leaf.shape, sharding, plan.local.devices).splitlines()
            cells = [c.strip() for line in shown if "|" in line for c in line.split("|")[1:-1]]
            counts = [_product(digits) for digits in said["dims"]]
            holders = [[d for d in range(8) if _tile(said["dims"], d) == (r, c)]
                       for r in range(counts[0]) for c in range(counts[1])]  # fmt: skip
            assert [_listed(cell) for cell in cells] == holders
            checked += 1
            if checked == 12:
                return
    raise AssertionError("too few arrays")


def _product(digits: list[list[int]]) -> int:
    return digits[0][0] * _product(digits[1:]) if digits else 1


def _tile(dims: list[list[list[int]]], device: int) -> tuple[int, ...]:
    found: list[int] = []
    for digits in dims:
        index = 0
        for size, stride in digits:
            index = index * size + device // stride % size
        found.append(index)
    return tuple(found)


def _listed(cell: str) -> list[int]:
    """Reads `0-3,6`, or `0,2,..,6`."""
    parts = cell.split(",")
    if ".." in parts:
        first, second, last = int(parts[0]), int(parts[1]), int(parts[-1])
        return list(range(first, last + 1, second - first))
    spans = [part.split("-") for part in parts]
    return [d for span in spans for d in range(int(span[0]), int(span[-1]) + 1)]


def test_every_number_leads_somewhere(made: tuple[Reported, Record]) -> None:
    _, record = made
    values, columns = record["values"], record["values"]["columns"]
    count, sections, collectives = len(columns["name"]), len(record["sections"]), len(record["collectives"])
    assert {len(column) for column in columns.values()} == {count}
    for key, table in (("shape", "shapes"), ("sharding", "shardings"), ("opcode", "texts"), ("source", "texts"),
                       ("op_name", "texts")):  # fmt: skip
        assert all(0 <= n < len(values[table]) for n in columns[key])
    assert all(-1 <= n < sections for n in columns["section"])
    for flat in columns["links"]:
        for _, digits, via, value, _ in zip(*(flat[i::5] for i in range(5)), strict=True):
            assert 0 <= digits < len(values["digits"])
            assert -1 <= via < len(values["texts"])
            assert 0 <= value < count
    for section in record["sections"]:
        nodes = section["graph"]["nodes"]
        assert all(-1 <= n["value"] < count and -1 <= n["collective"] < collectives for n in nodes)
        assert all(0 <= a < b < len(nodes) and -1 <= v < count for a, b, v in section["graph"]["edges"])
        assert len({(n["x"], n["y"]) for n in nodes}) == len(nodes)
    assert sorted(n for row in record["rows"] for n in row["members"]) == list(range(collectives))
    for engine, number, start, seconds, trips in record["timeline"]["spans"]:
        assert 0 <= number < (sections if engine == 0 else collectives)
        assert 0 <= start <= start + seconds <= record["timeline"]["seconds"] * (1 + 1e-9)
        assert trips >= 1
    assert all(-1 <= r["value"] < count for r in record["remarks"])
    assert all(0 <= a < sections and 0 <= b < sections for a, b, _ in record["links"])


def test_layers_fold() -> None:
    _, record = _made("transformer_train.hlo")
    assert record["layers"] == 2
    named = {(s["phase"], s["name"]): s["count"] for s in record["sections"]}
    assert named["update", "layers 0 to 1"] == 2
    assert {"before the layers", "after the layers", "layer 0", "layer 1"} <= {n for p, n in named if p == "forward"}
    _, scan = _made("transformer_scan_train.hlo")
    loops = [s for s in scan["sections"] if s["name"].startswith("loop ")]
    drawn = {node["opcode"] for loop in loops for node in loop["graph"]["nodes"]}
    assert "dot" in drawn
    assert "dynamic-slice" not in drawn  # the weights of a layer
    assert [(s["phase"], s["trips"]) for s in loops] == [("forward", 2), ("backward", 2)]


def test_times_and_memory_are_those_of_the_forecast(made: tuple[Reported, Record]) -> None:
    plan, record = made
    schedule = plan.forecast.schedule
    assert record["timeline"]["seconds"] == record["summary"]["seconds"] == schedule.seconds
    assert max(size for _, size in record["memory"]["curve"]) == record["memory"]["peak"] == schedule.peak
    assert all(a[0] <= b[0] for a, b in pairwise(record["memory"]["curve"]))
    states = {c.name: c.state for c in schedule.collectives}
    assert {c["name"]: c["state"] for c in record["collectives"]} == states


def test_a_program_per_device_has_no_values() -> None:
    local = hloom.partition(hloom.load(EXAMPLES / "mlp_named.hlo"))
    record = report_data("f", [reported(local, PassContext())])["plans"][0]
    assert (record["values"], record["mesh"], record["summary"]["sent_bytes"]) == (None, [], 100)


@pytest.mark.parametrize("memory", [None, 0])
def test_a_program_that_xla_has_divided_has_no_values(memory: int | None) -> None:
    """It has shardings of parameters, which are not to be propagated: its shapes are those of a device."""
    theirs = hloom.load(ROOT / "tests" / "wrong_by_xla" / "scatter_of_uneven_updates.xla.hlo")
    record = report_data("f", [reported(theirs, PassContext(), memory=memory)])["plans"][0]
    kinds = {collective["kind"] for collective in record["collectives"]}
    assert record["values"] is None
    assert kinds == {"all-gather", "all-reduce" if memory is None else "reduce-scatter"}


def test_strategies_are_plans(tmp_path: Any) -> None:
    (tmp_path / "a.toml").write_text('[shardings]\n"w*" = "-,-"\n')
    (tmp_path / "b.toml").write_text('[shardings]\n"w1" = "y,"\n"w2" = ",y"\n')
    done = command("report", EXAMPLES / "mlp_named.hlo", "--strategy", "a.toml", "--strategy", "b.toml", "--json",
                   cwd=tmp_path)  # fmt: skip
    plans = json.loads(done.out)["plans"]
    assert [p["label"] for p in plans] == ["a", "b"]
    assert plans[0]["summary"]["sent_bytes"] != plans[1]["summary"]["sent_bytes"]


def test_wrong_options() -> None:
    assert command("report", STACK, cwd=ROOT).code == 2
    assert command("report", STACK, "--json", "--memory", "1GB", cwd=ROOT).code == 2


@pytest.mark.slow
def test_buckets_do_not_tie_layers_together() -> None:
    """A schedule gathers weights of both layers at once; the layers stay apart all the same."""
    plan = reported(hloom.load(STACK), PassContext(machine=hloom.parse_machine("tpu-v4")), memory=0)
    record = report_data("f", [plan])["plans"][0]
    assert any(c["arrays"] > 1 for c in record["collectives"])
    layers = [s for s in record["sections"] if s["phase"] == "forward" and s["layers"]]
    assert len({s["multiply_adds"] // s["count"] for s in layers}) == 1
    assert sum(s["count"] for s in layers) == 2
    assert layers[0]["multiply_adds"] > 0
    assert sum(s["sent_bytes"] for s in record["sections"]) == sum(c.sent_bytes for c in hloom.collectives(plan.local))
