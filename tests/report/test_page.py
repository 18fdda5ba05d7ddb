"""The page of `hloom report`: it asks for nothing, text of programs stays text, and its tables need no script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zlib
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hloom
import pytest
from hloom.cost.sizes import sized
from hloom.passes.base import PassContext
from hloom.report.data.plan import reported
from hloom.report.data.record import report_data
from hloom.report.html.page import page
from support.command_line import EXAMPLES
from support.command_line import hloom as command
from support.hostile_program import ATTACK


class _Reader(HTMLParser):
    """Collects the elements of a page with their attributes, and its text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.code: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in self.code else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        (self.code[self._inside] if self._inside else self.text).append(data)


@cache
def _page(name: str) -> tuple[dict[str, Any], str]:
    data = report_data(name, [reported(hloom.load(EXAMPLES / name), PassContext())])
    return data, page(data)


def test_the_page_asks_for_nothing() -> None:
    found = _Reader(_page("transformer_train.hlo")[1])
    assert {tag for tag, _ in found.elements} & {"img", "link", "iframe", "object", "base", "form"} == set()
    named = {name for _, attributes in found.elements for name in attributes}
    assert {n for n in named if n in ("src", "href", "style", "action") or n.startswith("on")} == set()
    script = found.code["script"][1]
    assert re.findall(r"https?://[^\"]*", script) == ["http://www.w3.org/2000/svg"]  # the name of a language
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(", "XMLHttp", "import("):
        assert word not in script
    assert "url(" not in found.code["style"][0]
    policy = next(a["content"] or "" for _, a in found.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind, code in (("script", script), ("style", found.code["style"][0])):
        hashed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{hashed}'" in policy


def test_the_page_holds_its_data_and_tables() -> None:
    data, text = _page("transformer_train.hlo")
    found = _Reader(text)
    held = json.loads(zlib.decompress(base64.b64decode(found.code["script"][0])))
    assert [s["name"] for s in held["plans"][0]["sections"]] == [s["name"] for s in data["plans"][0]["sections"]]
    words = " ".join(found.text)
    for word in ("time of a step", "5 all-gather, 33 all-reduce", "137 KB", "layers 0 to 1", "Largest buffers"):
        assert word in words
    for row in data["plans"][0]["rows"]:
        assert row["cause"] in words
    for remark in data["plans"][0]["remarks"]:
        assert remark["message"] in words
    assert len(text) < 120_000


def test_the_same_program_makes_the_same_bytes() -> None:
    module = hloom.load(EXAMPLES / "mlp_named.hlo")
    first, second = (page(report_data("f", [reported(module, PassContext())])) for _ in range(2))
    assert first == second


def test_text_of_a_program_stays_text() -> None:
    data = report_data("<b>.hlo", [reported(hloom.parse(ATTACK), PassContext(), "<i>one"),
                                   reported(hloom.parse(ATTACK), PassContext(), "</div>two")])  # fmt: skip
    found = _Reader(page(data))
    assert {tag for tag, _ in found.elements} & {"img", "u"} == set()
    assert [tag for tag, _ in found.elements].count("i") == 0
    assert sum(tag == "script" for tag, _ in found.elements) == 2
    words = "".join(found.text)
    assert "</script><img src=x onerror=alert(1)>" in words
    assert "<i>a" in words
    assert "<b>.hlo" in words


def test_strategies_stand_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[shardings]\n"w*" = "-,-"\n')
    (tmp_path / "b.toml").write_text('[shardings]\n"w1" = "y,"\n"w2" = ",y"\n')
    done = command("report", EXAMPLES / "mlp_named.hlo", "--strategy", "a.toml", "--strategy", "b.toml", "-o", "r.html",
                   cwd=tmp_path)  # fmt: skip
    assert (done.code, done.out) == (0, f"mlp: r.html, {sized((tmp_path / 'r.html').stat().st_size)}\n")
    words = "|".join(_Reader((tmp_path / "r.html").read_text()).text)
    assert "Side by side|" in words
    assert "Collectives that differ, in bytes sent" in words
    differs = words.partition("Shardings that differ")[2]
    assert differs.startswith("|value|shape|a|b|w1|f32[16,32]|replicated|[y, -]|w2|")


def test_too_much_memory_is_marked() -> None:
    data, text = _page("mlp_named.hlo")
    summary = data["plans"][0]["summary"]
    assert "card over" not in text
    little = {**data, "plans": [{**data["plans"][0], "summary": {**summary, "capacity": summary["peak"] - 1}}]}
    found = page(little)
    assert found.count('class="card over"') == 1
    assert "more than 1.16 KB at y" in found


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    done = command("report", EXAMPLES / "mlp_named.hlo", "-o", "no/r.html", cwd=tmp_path)
    assert (done.code, done.err) == (74, "hloom: error: no/r.html cannot be written: No such file or directory\n")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="JAX writes the program")
def test_the_page_of_many_layers_is_small() -> None:
    sizes = "--batch 128 --sequence 16 --width 256 --heads 128 --hidden 256 --vocabulary 256 --layers 32"
    command = [sys.executable, EXAMPLES / "make_transformer.py", "--mesh", "data=2,model=4", *sizes.split()]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    machine = hloom.parse_machine("h100")
    data = report_data("f", [reported(hloom.parse(text), PassContext(machine=machine))])
    assert len(page(data)) <= 600_000
    sections = data["plans"][0]["sections"]
    assert ("forward", "layers 0 to 30", 31) in [(s["phase"], s["name"], s["count"]) for s in sections]
    assert len(sections) < 12
