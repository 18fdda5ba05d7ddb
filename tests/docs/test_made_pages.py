"""The pages of ops and of passes say what their classes say, and show each pass at work."""

from __future__ import annotations

import pytest
from hloom.frontends import parse
from hloom.ir.graph.op import OPS
from hloom.passes.named import PASSES
from support.command_line import ROOT
from support.docs_makers import maker
from support.golden import pass_examples


@pytest.mark.parametrize("name", ["ops", "passes"])
def test_page_is_up_to_date(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text()
    assert page == maker(f"make_{name}").page(), f"run `python docs/make_{name}.py`"


def test_every_op_is_on_the_page() -> None:
    lines = (ROOT / "docs" / "ops.md").read_text().splitlines()
    assert [op for op in OPS if f"### {op}" not in lines] == []


def test_every_pass_has_a_golden_case_that_it_changes() -> None:
    examples = pass_examples()
    assert [name for name in PASSES if name not in examples] == []
    unchanged = [name for name, (_, case) in examples.items() if parse(case.text).to_text().strip() == case.expected]
    assert unchanged == []
