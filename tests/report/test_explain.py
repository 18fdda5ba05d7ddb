"""Explanations: where axes come from, what stood against them, and what goes without an annotation."""

from __future__ import annotations

import hloom
import pytest
from hloom.passes.base import PassContext
from hloom.report.explain import explain, without
from hloom.report.shardings import solved

MESH = "mesh['x'=2,'y'=4]"
SOURCE = 'op_name="inputs" source_file="m.py" source_line=7'
PROGRAM = f"""ENTRY e {{
  a = f32[16,8] parameter(0), sharding={{{MESH}, [{{'x'}}, {{}}]}}, metadata={{{SOURCE}}}
  w = f32[8,32] parameter(1), sharding={{{MESH}, [{{}}, {{'y'}}]}}
  d = f32[16,32] dot(a, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[32,16] transpose(d), dimensions={{1,0}}
  n = f32[32,16] negate(t)
  ROOT r = (f32[32,16], f32[16,32]) tuple(n, d)
}}
"""


def test_chain() -> None:
    (found,) = explain(hloom.parse(PROGRAM), "n")
    assert found.sharding == "[y, x]"
    assert not found.annotated
    chains = {(r.dim, r.axis): [(s.value, s.dim, s.via) for s in r.steps] for r in found.axes}
    assert chains == {
        (0, "y"): [("n", 0, "n"), ("t", 0, "t"), ("d", 1, "d"), ("w", 1, None)],
        (1, "x"): [("n", 1, "n"), ("t", 1, "t"), ("d", 0, "d"), ("a", 0, None)],
    }
    origin = found.axes[1].steps[-1]
    assert (origin.op_name, origin.source) == ("inputs", "m.py:7")


def test_elements_of_tuples() -> None:
    module = hloom.parse(PROGRAM)
    assert [e.value for e in explain(module, "r")] == ["r[0]", "r[1]"]
    assert [e.sharding for e in explain(module, "r[1]")] == ["[x, y]"]


def test_conflict() -> None:
    """The annotation at the end takes `x` for the other dimension: what the weights ask for is given up."""
    annotation = f"o = f32[32,16] parameter(2), sharding={{{MESH}, [{{'x'}}, {{}}]}}"
    text = PROGRAM.replace(
        "ROOT r = (f32[32,16], f32[16,32]) tuple(n, d)", f"{annotation}\n  ROOT r = f32[32,16] add(n, o)")
    (found,) = explain(hloom.parse(text), "w")
    assert found.annotated
    assert [(d.via, d.lost) for d in found.disputes] == [("d", "w dimension 1: y")]
    assert found.disputes[0].received == 8 * 24 * 4


def test_without() -> None:
    changes = without(hloom.parse(PROGRAM), ["w"])
    assert {old.name: (old.axes, new.axes) for old, new in changes} == {
        "w": ("[-, y]", "replicated"),
        "d": ("[x, y]", "[x, -]"),
        "t": ("[y, x]", "[-, x]"),
        "n": ("[y, x]", "[-, x]"),
        "r[0]": ("[y, x]", "[-, x]"),
        "r[1]": ("[x, y]", "[x, -]"),
    }


def test_without_all_annotations() -> None:
    changes = without(hloom.parse(PROGRAM), ["w", "a"])
    assert {new.axes for _, new in changes} == {"replicated"}


def test_the_module_stays() -> None:
    module = hloom.parse(PROGRAM)
    before = module.to_text()
    explain(module, "n")
    without(module, ["w"])
    assert module.to_text() == before


@pytest.mark.parametrize(("name", "help"), [("negat", "values: n"), ("zzz", "values: ")])
def test_unknown_value(name: str, help: str) -> None:
    with pytest.raises(hloom.CompileError, match="there is no value") as error:
        explain(hloom.parse(PROGRAM), name)
    assert (error.value.diagnostics[0].help or "").startswith(help[:7])


@pytest.mark.parametrize(("name", "message"), [("n", "'n' is not annotated"), ("q", "'q' is no value of the program")])
def test_without_what_is_not_there(name: str, message: str) -> None:
    with pytest.raises(hloom.CompileError, match=message):
        without(hloom.parse(PROGRAM), [name])


def test_rows() -> None:
    found = solved(hloom.parse(PROGRAM), PassContext())
    rows = {row.name: row for row in found.rows()}
    assert rows["d"].why == "a, w"
    assert rows["a"].why == "annotation"
    assert rows["n"].local == "f32[8,8]"
