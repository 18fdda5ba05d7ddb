"""Golden cases: `golden/*.hlo`, one test per case.

    // CASE name
    // RUN call-inliner,cse            run these passes, compare the text, and run the program before and after
    ...input...
    // ==>
    ...expected...

`RUN pass links=..` gives the machine of the passes these links, `RUN pass rounds=N` allows N times the error of other
passes. The shortest case of each pass is its example in
docs/passes.md. Other verbs, after CASE: `EVAL [seed=N]` partitions, runs on all devices with poisoned padding and
compares with one device; `COLLECTIVES kind=n ..` compares the counts after partitioning; `BUDGET all_gather=0
bytes_at_most=100 ..` gives these arguments to `assert_collectives`; `ERROR line:col text` expects that diagnostic
(lines count from the first line of the input); `RULE opcode text` expects that sharding rule of the entry's first such
instruction. `pytest --bless` rewrites the expected text.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import hloom
import pytest
from hloom.ir.graph.module import Module
from hloom.ir.ops.calls.custom_call import is_unknown
from hloom.ir.tools.spmd import is_per_device
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from hloom.passes.pipelines import partition
from hloom.runtime.inputs.inputs import inputs_for_module, make_inputs
from hloom.runtime.simulator import SimulatedProgram
from support.compare import compare
from support.golden import ARROW, Case, all_cases


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.file.stem}-{c.name}") for c in reversed(all_cases())])
def test_golden(case: Case, request: pytest.FixtureRequest) -> None:
    assert case.verbs, "a case without a verb checks nothing"
    for verb in case.verbs:
        word, _, rest = verb.partition(" ")
        if word == "RUN":
            _run(case, rest, bool(request.config.getoption("--bless")))
        else:
            VERBS[word](case, rest)


def _run(case: Case, rest: str, bless: bool) -> None:
    pipeline, _, links = rest.partition(" links=")
    pipeline, _, rounds = pipeline.partition(" rounds=")
    module = hloom.parse(case.text)
    context = PassContext(verify="each", machine=hloom.parse_machine("", links))
    run_pipeline(parse_pipeline(pipeline), module, context)
    found = module.to_text().strip()
    _compute_the_same(hloom.parse(case.text), hloom.parse(found), float(rounds or 1))
    if bless and found != case.expected:
        # Cases run from the last to the first, so that the places of earlier ones stay right.
        lines = case.file.read_text().splitlines()
        start, end = case.lines
        head = lines[:start] if lines[start - 1 : start] == [ARROW] else [*lines[:end], ARROW]
        case.file.write_text("\n".join([*head, *found.splitlines(), "", *lines[end:]]).rstrip() + "\n")
        return
    assert found == case.expected


def _compute_the_same(before: Module, after: Module, scale: float) -> None:
    """Per-device programs on every device; not programs with custom-calls that nothing evaluates."""
    if any(is_unknown(i) for c in before for i in c):
        return
    inputs = inputs_for_module(before)
    if is_per_device(before):
        found, expected = (
            [result for device in SimulatedProgram(m).per_device(inputs) for result in device] for m in (after, before)
        )
    else:
        found = (hloom.simulate if is_per_device(after) else hloom.evaluate)(after, inputs)
        expected = hloom.evaluate(before, inputs)
    result = compare(found, expected, scale)
    assert result.equal, result


def _eval(case: Case, rest: str) -> None:
    seed = int(rest.removeprefix("seed=")) if rest else 0
    module = hloom.parse(case.text)
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=seed)
    local = hloom.partition(module)
    assert local.num_partitions > 1, "the case names no mesh"
    result = compare(hloom.simulate(local, inputs, poison=True), hloom.evaluate(module, inputs))
    assert result.equal, result


def _collectives(case: Case, rest: str) -> None:
    wanted = {kind: int(n) for kind, n in (part.split("=") for part in rest.split())}
    found = Counter(c.kind for c in hloom.collectives(hloom.partition(hloom.parse(case.text))))
    assert dict(found) == wanted


def _budget(case: Case, rest: str) -> None:
    budget: dict[str, Any] = {}
    for name, wanted in (part.split("=") for part in rest.split()):
        most = wanted.removeprefix("range(").removesuffix(")")
        budget[name] = int(wanted) if most == wanted else range(int(most))
    assert budget
    hloom.assert_collectives(hloom.partition(hloom.parse(case.text)), **budget)


def _error(case: Case, rest: str) -> None:
    place, _, message = rest.partition(" ")
    with pytest.raises(hloom.CompileError) as caught:
        partition(hloom.parse(case.text))
    first = caught.value.diagnostics[0]
    assert message in first.message
    assert f"{first.line}:{first.column}" == place


def _rule(case: Case, rest: str) -> None:
    opcode, _, text = rest.partition(" ")
    instruction = next(i for i in hloom.parse(case.text).entry if i.opcode == opcode)
    assert str(instruction.op.sharding_rule(instruction.call)) == text


VERBS = {"EVAL": _eval, "COLLECTIVES": _collectives, "BUDGET": _budget, "ERROR": _error, "RULE": _rule}
