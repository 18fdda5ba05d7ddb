"""`hloom report --xla`: XLA's own partitioning beside Hloom's, op by op."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import hloom
import pytest
from hloom.driver.by_xla import partition_by_xla, with_fixed_ends
from hloom.passes.base import PassContext
from hloom.report.data.plan import on_mesh, reported
from hloom.report.data.record import report_data
from hloom.report.html.page import page
from hloom.report.shardings import short, solved
from support.command_line import EXAMPLES, NAMED, ROOT
from support.command_line import hloom as command
from support.xla_partitioner import XlaPartitioner

TRAIN = EXAMPLES / "mlp_train.hlo"


@pytest.mark.slow
def test_the_page_sets_both_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    done = command("report", NAMED, "--xla", "-o", "r.html", cwd=tmp_path)
    assert done.code == 0, done.err
    head, _, compared = (tmp_path / "r.html").read_text().partition("<h2>Side by side</h2>")
    assert re.findall(r'class="plan js"[^>]*>(\w+)<', head) == ["Hloom", "XLA"]
    assert "<td>sent per device</td><td class=\"r\">100 B</td><td class=\"r\">100 B</td>" in compared
    assert "Collectives that differ" not in compared  # both send the result of dot y, and of reduce total


@pytest.mark.slow
def test_bytes_are_those_of_another_dump(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    done = command("report", TRAIN, "--machine", "h100", "--xla", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    ours, theirs = json.loads(done.out)["plans"]
    assert [ours["label"], theirs["label"]] == ["Hloom", "XLA"]
    module = hloom.load(TRAIN)
    with XlaPartitioner() as xla:  # another process reads another dump
        given = with_fixed_ends(module, hloom.propagate(module))
        _, text = xla.partition(given.to_text(), given.num_partitions)
    sent = sum(c.sent_bytes for c in hloom.collectives(hloom.parse(text, verify=False)))
    assert 0 < theirs["summary"]["sent_bytes"] <= sent
    assert theirs["summary"]["utilisation"] > 0
    named = {i.name for i in module.entry}
    causes = [re.fullmatch(r"(?:operand|result) of \S+ (\S+)", c["cause"]) for c in theirs["collectives"]]
    assert all(cause is not None and cause[1] in named for cause in causes)
    lines = {c["source"] for c in theirs["collectives"]}
    assert lines <= {c["source"] for c in ours["collectives"]} | {f"make_mlp.py:{n}" for n in range(99)}


def test_the_program_of_xla_computes_the_same() -> None:
    pytest.importorskip("jax")
    module = hloom.load(NAMED)
    divided = partition_by_xla(module, hloom.propagate(module))
    local = divided.local
    verdict: Any = hloom.prove(module, local)
    assert verdict.outcome == "equal"
    assert [c.cause for c in hloom.collectives(local)] == ["result of dot y", "result of reduce total"]
    assert [c.groups for c in hloom.collectives(local)] == ["2 of 4 (y)", "4 of 2 (x)"]
    mesh = hloom.Mesh.of(x=2, y=4)
    found = {name: short(s) for name, s in on_mesh(divided.shardings, mesh).items()}
    ours = {row.name: row.axes for row in solved(hloom.load(NAMED), PassContext()).rows()}
    assert {"xw": "[x, y]", "h": "[x, y]"}.items() <= found.items()
    assert {name: ours[name] for name in found} == found


def test_shardings_that_differ_are_listed() -> None:
    ours = reported(hloom.load(NAMED), PassContext(), "Hloom")
    mesh = hloom.Mesh.of(x=2, y=4)
    found = {"xw": hloom.Sharding.over(mesh, "x", "y"), "h": hloom.Sharding.over(mesh, "y", None)}
    text = page(report_data("f", [ours, replace(ours, label="XLA", solved=None, shardings=found)]))
    listed = text.partition("Shardings that differ")[2].partition("</table>")[0]
    assert re.findall(r"<td>([^<]*)</td>", listed) == ["h", "f32[8,32]", "[x, y]", "[y, -]"]


def test_without_jax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    done = command("report", NAMED, "--xla", "-o", "r.html", cwd=tmp_path)
    assert done.code == 65
    assert "error: jax is missing, whose XLA is to divide the program\n  help: pip install 'hloom[xla]'" in done.err
    assert not (tmp_path / "r.html").exists()


def test_a_program_that_is_divided_already(tmp_path: Path) -> None:
    (tmp_path / "local.hlo").write_text(hloom.partition(hloom.load(NAMED)).to_text())
    done = command("report", "local.hlo", "--xla", "-o", "r.html", cwd=tmp_path)
    assert done.code == 65
    assert "mlp is divided already: XLA can divide it no more" in done.err


def test_what_xla_refuses_is_an_error(tmp_path: Path) -> None:
    """XLA ends its process for what it does not expect."""
    pytest.importorskip("jax")
    (tmp_path / "jax.py").write_text("import os, sys\nprint('F0000 check failed: x', file=sys.stderr)\nos.abort()")
    done = command("report", NAMED, "--xla", "-o", "r.html", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.code, done.err) == (65, "hloom: error: XLA does not divide mlp: F0000 check failed: x\n")


def test_xla_does_not_take_for_ever() -> None:
    module = hloom.load(EXAMPLES / "mlp_named.hlo")
    with pytest.raises(hloom.CompileError, match=r"XLA has not divided mlp after 0\.01 s"):
        partition_by_xla(module, hloom.propagate(module), timeout=0.01)


def test_the_help_says_what_it_needs() -> None:
    assert "--xla" in command("report", "--help", cwd=ROOT).out
