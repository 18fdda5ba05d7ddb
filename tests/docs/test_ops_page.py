"""The page of ops says what the classes of the ops say."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from hloom.ir.graph.op import OPS
from support.command_line import ROOT


def _maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_ops", ROOT / "docs" / "make_ops.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "ops.md").read_text()
    assert page == _maker().page(), "run `python docs/make_ops.py`"


def test_every_op_is_on_the_page() -> None:
    lines = (ROOT / "docs" / "ops.md").read_text().splitlines()
    assert [op for op in OPS if f"### {op}" not in lines] == []
