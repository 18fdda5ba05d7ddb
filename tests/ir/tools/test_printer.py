"""The printer: exact texts of small things. Whole programs are compared through XLA in tests/frontends."""

from __future__ import annotations

import pytest
from hloom.frontends import parse, parse_sharding
from hloom.ir.graph.instruction import Metadata
from hloom.ir.graph.module import Stage
from hloom.ir.strings import BracedText
from hloom.ir.tools.printer import computation_text, instruction_text

TEXT = """HloModule m, entry_computation_layout={(f32[4,8]{1,0})->f32[4]{0}}

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

ENTRY %e (p: f32[4,8]) -> f32[4] {
  %p = f32[4,8]{1,0} parameter(0)
  %i = f32[] constant(0)
  ROOT %r = f32[4]{0} reduce(%p, %i), dimensions={1}, to_apply=%sum
  %after = f32[4]{0} negate(%r)
}
"""


def test_a_module_prints_as_it_was_read() -> None:
    assert parse(TEXT).to_text() == TEXT


@pytest.mark.parametrize("name", ["token", "inf", "manual", "f32"])
def test_a_module_of_a_function_whose_name_is_a_keyword(name: str) -> None:
    """XLA takes such names behind a `%` alone."""
    module = parse(TEXT)
    module.name = name
    text = module.to_text()
    assert text.startswith(f"HloModule %{name}, ")
    assert parse(text).name == name
    hlo = pytest.importorskip("jaxlib._hlo")
    hlo.hlo_module_from_text(text)


def test_one_instruction_with_everything() -> None:
    module = parse(TEXT)
    root = module.entry.root
    assert instruction_text(root) == "%r = f32[4]{0} reduce(%p, %i), dimensions={1}, to_apply=%sum"
    root.sharding = parse_sharding("{devices=[4]<=[4]}")
    root.frontend_attributes = {"b": BracedText("{x}"), "a": 'say "é"'}
    root.control_predecessors = (module.entry.parameters[0],)
    root.other = (("origin", '{{"r"}}'),)
    root.metadata = Metadata.named("f/reduce")
    root.backend_config = "text"
    assert instruction_text(root) == (
        "%r = f32[4]{0} reduce(%p, %i), dimensions={1}, to_apply=%sum, sharding={devices=[4]<=[4]}, "
        'frontend_attributes={a="say \\"\\303\\251\\"",b={x}}, control-predecessors={%p}, origin={{"r"}}, '
        'metadata={op_name="f/reduce"}, backend_config="text"'
    )
    root.backend_config = BracedText("{k: 1}")
    assert instruction_text(root).endswith("backend_config={k: 1}")


def test_computations() -> None:
    module = parse(TEXT)
    assert computation_text(module.computations[0]) in TEXT
    assert computation_text(module.entry) in TEXT
    module.entry.execution_thread = "host"
    assert computation_text(module.entry).endswith('}, execution_thread="host"')


def test_the_entry_layout_is_derived_where_absent() -> None:
    module = parse(TEXT)
    module.entry_layout = None
    assert module.to_text() == TEXT


def test_stages_are_marked() -> None:
    module = parse(TEXT)
    module.stage = Stage.LOCAL
    module.frontend_attributes = {"k": "v"}
    assert ', frontend_attributes={hloom.stage="local",k="v"}\n' in module.to_text()
    assert parse(module.to_text()).frontend_attributes == {"k": "v"}


def test_every_fifth_entry_is_numbered() -> None:
    text = "HloModule m\nENTRY e { p = s32[] parameter(0)\n t = tuple(p, p, p, p, p, p) }"
    printed = parse(text).to_text()
    assert "tuple(%p, %p, %p, %p, %p, /*index=5*/%p)" in printed
    assert "(s32[], s32[], s32[], s32[], s32[], /*index=5*/s32[]) tuple" in printed
