"""Instructions: attributes by their class, and the roles of ops."""

from __future__ import annotations

import hloom
import pytest
from hloom.ir.diagnostics import InternalError
from hloom.ir.graph.op import OPS, Role, op_named
from hloom.ir.ops.collective_groups import CollectiveAttributes, GroupAttributes
from hloom.ir.ops.shaping import TransposeAttributes
from hloom.ir.ops.structure import ParameterAttributes

TEXT = "HloModule m\n\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n"


def test_attributes_by_their_class() -> None:
    parameter = hloom.parse(TEXT).entry.root
    assert parameter.attributes_as(ParameterAttributes).number == 0
    with pytest.raises(InternalError, match="parameter p has ParameterAttributes, not TransposeAttributes"):
        parameter.attributes_as(TransposeAttributes)


def test_one_op_per_role() -> None:
    several = {Role.UPDATE, Role.DONE}
    roles = [op.role for op in OPS.values() if op.role is not None and op.role not in several]
    assert sorted(role.name for role in roles) == sorted(role.name for role in Role if role not in several)
    assert op_named("while").role is Role.LOOP
    assert op_named("while-start").role is None
    assert {op_named(name).role for name in ("while-done", "all-gather-done", "recv-done")} == {Role.DONE}


@pytest.mark.parametrize("opcode", ["all-gather", "reduce-scatter-start", "ragged-all-to-all", "collective-permute"])
def test_attributes_of_collectives_have_one_base(opcode: str) -> None:
    kind = op_named(opcode).attributes
    assert issubclass(kind, CollectiveAttributes)
    assert issubclass(kind, GroupAttributes) is (opcode != "collective-permute")
