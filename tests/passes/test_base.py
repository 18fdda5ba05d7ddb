"""Passes keep what they promise: one that reports no change changes nothing, one that breaks a module is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hloom
import pytest
from comm_programs.cases import programs
from hloom.passes.base import Pass, PassContext, run_pass, run_pipeline
from hloom.passes.pipelines import PARTITION, PIPELINE
from support.command_line import EXAMPLES


def _unreported(module: hloom.Module) -> list[str]:
    """The passes of the pipeline that report no change and change the text all the same."""
    context, found = PassContext(num_devices=8), list[str]()
    before = module.to_text()
    for step in PIPELINE:
        changed = run_pass(step, module, context)
        after = module.to_text()
        if not changed and step.produces is None and after != before:
            found.append(step.name)
        before = after
    return found


@pytest.mark.share(3)
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.hlo")), ids=lambda p: p.stem)
def test_passes_report_their_changes(path: Path) -> None:
    assert _unreported(hloom.load(path)) == []


def test_passes_report_their_changes_to_small_programs() -> None:
    assert {name: found for name, text in programs().items() if (found := _unreported(hloom.parse(text)))} == {}


@dataclass(frozen=True)
class Broken(Pass):
    """Leaves an instruction of a wrong shape."""

    name = "broken"

    def run(self, module: hloom.Module, context: PassContext) -> bool:
        module.entry.root.shape = hloom.parse_shape("f32[3]")
        return True


@dataclass(frozen=True)
class Raising(Pass):
    """Raises whatever it is given."""

    error: Exception
    name = "raising"

    def run(self, module: hloom.Module, context: PassContext) -> bool:
        raise self.error


NEGATION = "ENTRY e { x = f32[4] parameter(0), sharding={devices=[2]<=[2]} ROOT y = f32[4] negate(x) }"
WHOSE = rf"pass broken \(Broken of {re.escape(__name__)}\): left an invalid module: .*declared shape f32\[3\]"


@pytest.mark.parametrize("verify", ["foreign", "each"])
def test_a_pass_that_breaks_a_module_is_named(verify: Any) -> None:
    module = hloom.parse(NEGATION)
    with pytest.raises(hloom.InternalError, match=WHOSE):
        run_pipeline([Broken()], module, PassContext(verify=verify))


def test_passes_of_an_embedder_are_checked_unless_it_says_otherwise() -> None:
    module = hloom.parse(NEGATION)
    passes = (*PIPELINE, Broken())
    with pytest.raises(hloom.InternalError, match=WHOSE):
        hloom.partition(module, passes=passes)
    with pytest.raises(hloom.InternalError, match="the pipeline: left an invalid module"):
        hloom.partition(module, passes=passes, verify="end")
    assert hloom.partition(module, passes=passes, verify="none").entry.root.shape == hloom.parse_shape("f32[3]")
    with pytest.raises(TypeError, match="verify must be 'foreign', 'each', 'end' or 'none', found str 'all'"):
        hloom.partition(module, verify="all")  # pyright: ignore[reportArgumentType]


def test_a_pass_that_raises_is_named() -> None:
    module, error = hloom.parse(NEGATION), KeyError("x")
    with pytest.raises(hloom.InternalError, match="raised KeyError: 'x'") as raised:
        hloom.partition(module, passes=(Raising(error), *PIPELINE))
    assert raised.value.pass_name == f"pass raising (Raising of {__name__})"
    assert raised.value.__cause__ is error
    refusal = hloom.CompileError([])
    with pytest.raises(hloom.CompileError) as refused:
        hloom.partition(module, passes=(Raising(refusal), *PIPELINE))
    assert refused.value is refusal


def _wrong_shape(local: hloom.LocalOp) -> hloom.Instruction:
    return local.emitter.constant(0.0, local.instruction.shape.element)


def _raising(local: hloom.LocalOp) -> hloom.Instruction:
    raise ValueError("no")


def _nothing(local: hloom.LocalOp) -> Any:
    return None


@pytest.mark.parametrize(("form", "message"), [(_wrong_shape, r"gives f32\[\], the tile is f32\[2\]"),
                                               (_nothing, "gives None, not an Instruction"),
                                               (_raising, "raised ValueError: no")])  # fmt: skip
def test_a_local_form_that_fails_is_named(form: Callable[[Any], hloom.Instruction], message: str) -> None:
    forms = hloom.local_forms().override("negate", hloom.LocalForm(form))
    with pytest.raises(hloom.InternalError, match=message) as raised:
        hloom.partition(hloom.parse(NEGATION), forms=forms)
    assert raised.value.pass_name == f"local form of negate ({form.__name__} of {__name__})"


SHARDED = {
    "pad": "ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]} z = f32[] constant(0) "
           "p = f32[10] pad(x, z), padding=1_1, sharding={devices=[2]<=[2]} "
           "ROOT s = f32[8] slice(p), slice={[2:10]}, sharding={devices=[2]<=[2]} }",
    "dead": "ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]} d = f32[8] negate(x), "
            "sharding={devices=[2]<=[2]} ROOT y = f32[8] exponential(x), sharding={devices=[2]<=[2]} }",
    "sort": "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b), direction=LT } "
            "ENTRY e { x = f32[64] parameter(0), sharding={devices=[2]<=[2]} "
            "s = f32[64] sort(x), dimensions={0}, to_apply=less, sharding={devices=[2]<=[2]} "
            "ROOT y = f32[4] slice(s), slice={[0:4]}, sharding={replicated} }",
    "branch": "yes { p = f32[8] parameter(0), sharding={maximal device=1} ROOT n = f32[8] negate(p) } "
              "no { p = f32[8] parameter(0) ROOT n = f32[8] exponential(p) } "
              "ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]} c = pred[] parameter(1) "
              "ROOT y = f32[8] conditional(c, x, x), true_computation=yes, false_computation=no }",
}  # fmt: skip
"""Programs by the pass that edits them between propagation and partitioning, or settles their shardings."""


def _state(module: hloom.Module) -> object:
    return [[(id(i), id(i.parent), i.name, list(map(id, i.operands)), list(i.users.items()), i.sharding, i.attributes)
             for i in c] for c in module]  # fmt: skip


@pytest.mark.parametrize("name", [*SHARDED, "none"])
def test_partitioning_a_sharded_module_leaves_it_as_it_is(name: str) -> None:
    module = hloom.parse("HloModule m, num_partitions=2\n" + SHARDED.get(name, NEGATION))
    sharded = hloom.propagate(module) if name in ("branch", "none") else module
    sharded.stage = hloom.Stage.SHARDED
    before, text, whole = _state(sharded), sharded.to_text(), hloom.partition(copy(sharded), passes=PARTITION)
    local = hloom.partition(sharded)
    assert _state(sharded) == before
    assert sharded.to_text() == text
    assert all(c.parent is sharded for c in sharded)
    assert local.to_text() == whole.to_text()
    assert local.remarks == whole.remarks
    assert not {i for c in local for i in c} & {i for c in sharded for i in c}


def test_a_global_module_stays_as_it_is() -> None:
    for text in list(programs().values())[::5]:
        module = hloom.parse(text)
        before = _state(module)
        sharded = hloom.propagate(module, num_devices=8)
        local = hloom.partition(module, num_devices=8)
        assert _state(module) == before
        assert all(c.parent is module for c in module)
        assert local.to_text() == hloom.partition(sharded).to_text()
        assert not {i for c in (*sharded, *local) for i in c} & {i for c in module for i in c}


def test_idle_passes_change_nothing() -> None:
    """A pass that says that it is idle does nothing, wherever in the pipeline the module is."""
    idle = set[str]()
    for text in (*list(programs().values())[::7], *SHARDED.values()):
        module, context = hloom.parse(text), PassContext(num_devices=8 if text not in SHARDED.values() else 2)
        for step in PIPELINE:
            if step.is_idle(module):
                before = module.to_text()
                assert not step.run(module, context)
                assert module.to_text() == before, step.name
                idle.add(step.name)
            run_pass(step, module, context)
    assert idle == {"library-calls", "synchronous", "single-replica", "shardy-regions", "call-inliner", "slice-of-pad",
                    "sort-prefix", "dce"}
