"""Every opcode of XLA is an op of Hloom.

XLA does not list its opcodes, but its library holds their names as strings: whatever there looks like one is offered to
its parser, which says whether it is.
"""

# jaxlib's internal modules have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib
import mmap
import re
from pathlib import Path
from typing import Any

import pytest
from hloom.ir.graph.op import OPS, find_op

_WORD = re.compile(rb"(?<=\0)[a-z][a-z0-9]*(?:-[a-z0-9]+){0,5}(?=\0)")

# What XLA has and we do not, with the reason.
EXCEPTIONS: dict[str, str] = {}


def _strings(library: Path) -> set[str]:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {match[0].decode() for match in _WORD.finditer(data)}


def _is_opcode(hlo: Any, word: str) -> bool:
    """The operands are wrong, so that XLA says something in any case; about the opcode if that comes first."""
    try:
        hlo.hlo_module_from_text(f"HloModule m\nENTRY e {{\n p = f32[] parameter(0)\n r = () {word} ]\n}}")
    except Exception as error:
        return not re.search(r"expects (async wrapped )?opcode", str(error))
    raise AssertionError("not reached: the text is wrong")


@pytest.mark.slow
def test_every_opcode_of_xla() -> None:
    """XLA is asked about each word in its library."""
    jaxlib: Any = pytest.importorskip("jaxlib")
    library = Path(str(jaxlib.__file__)).parent / "libjax_common.so"
    if not library.exists():
        pytest.skip("this jaxlib keeps XLA elsewhere")
    hlo = importlib.import_module("jaxlib._hlo")
    opcodes = {word for word in _strings(library) if _is_opcode(hlo, word)}
    assert len(opcodes) > 125
    assert {word for word in opcodes if find_op(word) is None} == set(EXCEPTIONS)


def test_no_opcode_of_our_own() -> None:
    pytest.importorskip("jaxlib")
    hlo = importlib.import_module("jaxlib._hlo")
    assert [opcode for opcode in OPS if not _is_opcode(hlo, opcode)] == []
