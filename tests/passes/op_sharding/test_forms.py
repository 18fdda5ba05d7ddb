"""Local forms from the context: costs and the partitioner ask the same registry, and nothing is overwritten unasked."""

from __future__ import annotations

from dataclasses import replace

import hloom
import pytest
from hloom.ir.diagnostics import InternalError
from hloom.ir.graph.attributes import NONE
from hloom.ir.graph.instruction import Instruction
from hloom.passes.base import PassContext
from hloom.passes.op_sharding.assignment import Assignment, LocalForm, OpSharding
from hloom.passes.op_sharding.forms import LocalForms
from hloom.passes.pipelines import partition
from hloom.passes.spmd.emit.local_op import LocalOp
from hloom.passes.spmd.local_forms import joined, local_forms

SLICED = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[64,8] parameter(0), sharding={devices=[4,1]<=[4]}
  ROOT y = f32[32,8] slice(x), slice={[16:48], [0:8]}, sharding={devices=[4,1]<=[4]}
}
"""


def _kinds(context: PassContext) -> list[str]:
    return [c.kind for c in hloom.collectives(partition(hloom.parse(SLICED), context))]


def test_a_form_of_the_context_takes_the_place_of_the_built_in_one() -> None:
    used: list[LocalOp] = []
    forms = local_forms()
    plain = forms.of("slice", NONE)
    assert plain is not None

    def noted(local: LocalOp) -> Instruction:
        used.append(local)
        return plain.emit(local)

    context = PassContext(forms=forms.override("slice", replace(plain, emit=noted)))
    assert _kinds(context) == _kinds(PassContext()) == ["collective-permute"]
    assert len(used) == 1
    assert forms.of("slice", NONE) is plain


def test_what_a_form_exchanges_decides_how_the_op_is_divided() -> None:
    forms = local_forms()
    plain = forms.of("slice", NONE)
    assert plain is not None

    def dear(_: OpSharding, assignment: Assignment) -> float:
        return 1e9 if any(assignment.values()) else 0.0

    context = PassContext(forms=forms.override("slice", replace(plain, exchanged=dear)))
    assert _kinds(context) == ["all-gather"]


def test_a_target_of_custom_calls_has_a_form_of_its_own() -> None:
    def negated(local: LocalOp) -> Instruction:
        return local.emitter.add("negate", [v.instruction for v in local.operands])

    forms = local_forms().override("custom-call mine", LocalForm(negated))
    module = hloom.parse("""HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  ROOT y = f32[8] custom-call(x), custom_call_target="mine"
}
""")
    assert partition(module, PassContext(num_devices=1, forms=forms)).entry.root.opcode == "negate"


def test_two_built_in_forms_of_one_name_are_a_mistake() -> None:
    with pytest.raises(InternalError, match="slice has two local forms"):
        joined([local_forms().entries, {"slice": LocalForm(lambda local: local.emit())}])


def test_a_registry_without_the_built_in_forms_is_refused() -> None:
    module = hloom.parse(SLICED)
    for entries in ({}, {"slice": local_forms().entries["slice"]}):
        with pytest.raises(hloom.CompileError, match=r"lacks the local forms of .*topk") as caught:
            hloom.partition(module, forms=LocalForms(entries))
        assert caught.value.diagnostics[0].help == "begin with hloom.local_forms() and override those that differ"
