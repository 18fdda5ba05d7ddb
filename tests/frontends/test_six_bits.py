"""Floats of six bits, serialized: XLA has no code for their literals and ends the process, so only shapes meet it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hloom.frontends import parse
from hloom.frontends.proto import read_module, write_module

TYPES = ("f6e2m3fn", "f6e3m2fn")


@pytest.mark.parametrize("element", TYPES)
def test_shapes_are_numbered_as_by_xla(element: str) -> None:
    pytest.importorskip("jax")
    xla: Any = importlib.import_module("jaxlib._hlo")
    text = f"HloModule m\n\nENTRY e {{\n  ROOT x = {element}[2,3]{{0,1}} parameter(0)\n}}\n"
    theirs: bytes = xla.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    assert f"{element}[2,3]{{0,1}} parameter(0)" in read_module(theirs).to_text()
    ours = xla.HloModule.from_serialized_hlo_module_proto(write_module(parse(text)))
    assert f"{element}[2,3]{{0,1}} parameter(0)" in ours.to_string()


@pytest.mark.parametrize("element", TYPES)
def test_literals_come_back(element: str) -> None:
    constant = f"{element}[2,2]{{0,1}} constant({{ {{1, -0.5}}, {{-0.0, 7}} }})"
    module = parse(f"HloModule m\nENTRY e {{ ROOT c = {constant} }}")
    assert constant in " ".join(read_module(write_module(module)).to_text().split())
