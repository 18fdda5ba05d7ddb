"""The scripts in docs/ that make pages, as modules."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from support.command_line import ROOT


def maker(name: str) -> ModuleType:
    """The module of `docs/NAME.py`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
