"""What notebooks show: static HTML, short, without scripts, and with text of programs as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hloom
import pytest
from hloom.ir.diagnostics import Diagnostic, Severity
from support.command_line import EXAMPLES
from support.hostile_program import ATTACK


def _html(value: Any) -> str:
    text: str = value._repr_html_()
    assert "<script" not in text
    assert re.findall(r"</?(?:img|iframe|style|link)\b", text) == []
    assert len(text) < 30_000
    return text


def test_programs() -> None:
    module = hloom.load(EXAMPLES / "mlp_named.hlo")
    assert "mlp: global, 17 instructions" in _html(module)
    local = _html(hloom.partition(module))
    assert "2 all-reduce; 100 bytes sent per device" in local
    assert "<td>result of dot y</td>" in local
    assert "dot(%x, %w1)" in _html(module.entry)
    assert len(_html(hloom.load(EXAMPLES / "transformer_train.hlo"))) < 10_000


def test_shardings() -> None:
    mesh = hloom.Mesh.of(x=2, y=3)
    shown = _html(hloom.Sharding.over(mesh, "y", "x"))
    texts = re.findall(r'<text x="(\d+)" y="(\d+)"[^>]*>(\d)</text>', shown)
    columns, rows = (sorted({int(text[n]) for text in texts}) for n in (0, 1))
    cells = {(rows.index(int(y)), columns.index(int(x))): device for x, y, device in texts}
    assert cells == {(0, 0): "0", (0, 1): "3", (1, 0): "1", (1, 1): "4", (2, 0): "2", (2, 1): "5"}
    assert "replicated" in _html(hloom.parse_sharding("{replicated}"))


def test_forecasts_and_memory() -> None:
    found = hloom.forecast(hloom.load(EXAMPLES / "mlp_named.hlo"), "h100")
    assert "per step on 8 devices of h100" in _html(found)
    assert "all-gather" in _html(found.schedule)
    assert "<td>parameter</td>" in _html(hloom.live_memory(hloom.load(EXAMPLES / "mlp_named.hlo")))


def test_timelines() -> None:
    """A bar per collective, and none longer than the picture."""
    found = hloom.forecast(hloom.load(EXAMPLES / "mlp_train.hlo"), "h100").schedule
    shown = _html(found)
    bars = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)" [^>]*><title>(\S+): ', shown)
    assert [name for *_, name in bars] == [c.name for c in found.collectives]
    ends = [float(x) + float(width) for x, _, width, _ in bars]
    assert max(ends) <= 891
    for c, (x, _, width, _) in zip(found.collectives, bars, strict=True):
        assert float(x) == pytest.approx(130 + 760 * c.start / found.seconds, abs=0.1)
        assert float(width) == pytest.approx(max(1.0, 760 * c.seconds / found.seconds), abs=0.1)


@pytest.mark.slow
def test_plans() -> None:
    pytest.importorskip("highspy")
    plan = hloom.plan(hloom.load(EXAMPLES / "mlp_named.hlo"), "h100", seconds=1)
    shown = _html(plan)
    assert "plan for 8 devices of h100, mesh x=2,y=4" in shown
    assert all(candidate.name in shown for candidate in plan.candidates)


def test_diagnostics() -> None:
    with pytest.raises(hloom.CompileError) as caught:
        hloom.parse("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) y }")
    assert "error: " in _html(caught.value.diagnostics[0])
    assert "&lt;b&gt;" in _html(Diagnostic(Severity.ERROR, "<b>"))


def test_names_stay_text() -> None:
    module = hloom.parse(ATTACK)
    for value in (module, module.entry, hloom.partition(module), *(p.sharding for p in module.entry.parameters)):
        _html(value)


def test_the_page_in_a_notebook(tmp_path: Path) -> None:
    page = hloom.page(hloom.load(EXAMPLES / "mlp_named.hlo"), "h100", schedule=True)
    assert repr(page) == f"<page about mlp, {len(page.html)} characters>"
    frame = page._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert re.fullmatch(r'<iframe srcdoc="[^"]*" width="100%" height="800"></iframe>', frame)
    page.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text() == page.html
    assert page.data["plans"][0]["summary"]["scheduled"]
