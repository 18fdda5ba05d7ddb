"""The rewrites on whole programs: random training steps of layered models, examples, random programs; proved, and run
by XLA as well.

Where the order of sums is kept, results are equal to the bit.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import hloom
import numpy as np
import pytest
from hloom.codegen import manual_module
from hloom.ir.graph.module import Module, clone_module
from hloom.passes.annotating.strategy import apply_strategy
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.proof.prove import prove
from programs.random.generate import inputs_of, program
from support.command_line import ROOT
from support.compare import compare
from support.layered_programs import Model
from support.partition_check import partitioned
from support.rewrites import collectives, rewritten
from support.xla_runner import run_manual

EXACT = (
    "common-gathers", "hoist-gathers{growth=9}", "prefetch-gathers", "prefetch-gathers{peel=false}",
    "carry-reduce-scatters", "carry-reduce-scatters{peel=false}", "prefetch-gathers,carry-reduce-scatters",
    "prefetch-gathers{peel=false},carry-reduce-scatters{peel=false}",
    "carry-reduce-scatters,prefetch-gathers,combine-collectives",
    "combine-collectives,prefetch-gathers,carry-reduce-scatters",
    "rotate-loops{least=-1}", "prefetch-gathers,rotate-loops{least=-1,peel=false}",
)  # fmt: skip
ALL = (
    "all-reduce-to-reduce-scatter,reassociate-all-reduces,common-gathers,sink-all-reduces{least-gain=-1},"
    "hoist-gathers{growth=0.2},prefetch-gathers,carry-reduce-scatters,hierarchical-collectives,cse,dce"
)
BOUNDED = (
    "all-reduce-to-reduce-scatter", "reassociate-all-reduces", "sink-all-reduces{least-gain=-9}",
    "hierarchical-collectives", ALL,
)  # fmt: skip
AHEAD, SUNK = "prefetch-gathers,carry-reduce-scatters", "sink-all-reduces,hierarchical-collectives"
ROTATED = "rotate-loops{least=-1,tries=4}"
LEVELS = hloom.parse_machine("", "1us/100GB;2:5us/0.001GB")  # small arrays pay off, too
KINDS = ("dp", "fsdp", "tp", "both")


def check(local: Module, inputs: list[np.ndarray], passes: str, exact: bool) -> bool:  # type: ignore[type-arg]
    """Whether the passes changed the program; asserts that it computes the same."""
    module, remarks = rewritten(clone_module(local), passes, LEVELS)
    if module.to_text() == local.to_text():
        return False
    with np.errstate(all="ignore"):
        expected = hloom.simulate(local, inputs, poison=True)
        result = compare(hloom.simulate(module, inputs, poison=True), expected, scale=0 if exact else 1)
    assert result.equal, f"{passes}: {result}\n{remarks}\n{local.to_text()}"
    return True


def layered(seed: int) -> tuple[Module, list[np.ndarray]]:  # type: ignore[type-arg]
    chosen = Model.random(random.Random(seed).randint, KINDS[seed % len(KINDS)])
    module = hloom.parse(chosen.text())
    return partitioned(module), make_inputs([p.shape for p in module.entry.parameters], seed=seed)


@pytest.mark.slow
def test_layered_models() -> None:
    changed = dict.fromkeys((*EXACT, *BOUNDED), 0)
    for seed in range(8):
        local, inputs = layered(seed)
        for passes in (random.Random(seed).sample(EXACT, 3)):
            changed[passes] += check(local, inputs, passes, exact=True)
        changed[ALL] += check(local, inputs, ALL, exact=False)
    assert sum(changed.values()) > 12, changed


@pytest.mark.slow
def test_many_layered_models() -> None:
    changed = dict.fromkeys((*EXACT, *BOUNDED), 0)
    for seed in range(100, 140):
        local, inputs = layered(seed)
        for passes in changed:
            changed[passes] += check(local, inputs, passes, exact=passes in EXACT)
    seldom = {passes for passes, count in changed.items() if count < 5}
    assert seldom <= {"all-reduce-to-reduce-scatter", "reassociate-all-reduces", "common-gathers"}, changed


@pytest.mark.slow
def test_random_programs() -> None:
    """Small programs of all ops, in which rewrites seldom apply, and must not where they look as if."""
    changed, start, seed = 0, time.monotonic(), 0
    while time.monotonic() - start < 100:
        seed += 1
        module = program(random.Random(seed).randint, max_ops=8)
        inputs = inputs_of(module)
        try:
            local = partitioned(module)
            hloom.simulate(local, inputs)
        except hloom.CompileError:
            continue
        changed += sum(check(local, inputs, passes, exact=False) for passes in (*BOUNDED, "common-gathers"))
    assert changed > 20


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", KINDS)
def test_loops_compute_what_layers_written_out_do(kind: str) -> None:
    model = Model(layers=3, batch=36, width=7, hidden=9, data=2, model=2, kind=kind)
    looped, written = (hloom.parse(m.text()) for m in (model, replace(model, loop=False)))
    inputs = make_inputs([p.shape for p in looped.entry.parameters], seed=3)
    module, _ = rewritten(partitioned(looped), ALL, LEVELS)
    result = compare(hloom.simulate(module, inputs, poison=True), hloom.simulate(partitioned(written), inputs))
    assert result.equal, result


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", KINDS)
def test_proved(kind: str) -> None:
    module = hloom.parse(Model(layers=3, batch=36, width=8, hidden=6, data=2, model=2, kind=kind, micro=2).text())
    for passes in (AHEAD, SUNK, *([ROTATED] if kind == "tp" else [])):
        local, _ = rewritten(partitioned(module), passes, LEVELS)
        verdict = prove(module, local, trials=1)
        assert verdict.outcome == "equal", str(verdict)


FSDP = {  # weights of the transformer example, divided by the batch's axis
    "*'query']": ",data,,", "*'key']": ",data,,", "*'value']": ",data,,", "*'output']": ",,,data",
    "*'gate']": ",data,", "*'up']": ",data,", "*'down']": ",,data",
}  # fmt: skip


def fsdp_example() -> Module:
    module = hloom.load(ROOT / "examples" / "transformer_scan_train.hlo")
    apply_strategy(module, FSDP, mesh={"data": 4})
    return module


@pytest.mark.slow
def test_the_transformer_example() -> None:
    """FSDP of a scan over layers: each pass, to the bit; all together are proved."""
    module = hloom.load(ROOT / "examples" / "transformer_scan_train.hlo")
    inputs = [abs(x) for x in make_inputs([p.shape for p in module.entry.parameters], seed=1)]
    local = partitioned(module)
    for passes in EXACT:
        check(local, inputs, passes, exact=True)
    combined, _ = rewritten(clone_module(local), ALL, LEVELS)
    verdict = hloom.prove(module, combined, trials=1)  # shows sums that tokens choose on terms
    assert verdict.outcome == "equal", str(verdict)


@pytest.mark.parametrize(
    ("kind", "passes"),
    [("fsdp", AHEAD), *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        ("fsdp", SUNK), ("dp", SUNK), ("tp", ROTATED), ("fsdp", ROTATED)))],
)
def test_run_by_xla(kind: str, passes: str) -> None:
    """The printed text is a program that XLA reads, compiles and runs, with the same results."""
    pytest.importorskip("jax")
    module = hloom.parse(Model(layers=3, batch=32, width=7, hidden=9, data=4, kind=kind, micro=2).text())
    inputs = make_inputs([p.shape for p in module.entry.parameters], seed=2)
    local, remarks = rewritten(partitioned(module), passes, LEVELS)
    assert any("beside" in r or "in place of" in r or "runs after" in r or "one trip ahead" in r for r in remarks)
    shapes = [s.dims for s in module.entry.root.shape.leaves()]
    outputs = run_manual(manual_module(local).to_text(), inputs, 4, shapes)
    result = compare(outputs, hloom.simulate(local, inputs))
    assert result.equal, result


def test_what_is_left_in_the_loops() -> None:
    """FSDP: each trip of both loops starts the gathers of the next, and the backward one reduces what the one before
    computed; nothing is sent twice.
    """
    module = hloom.parse(Model(layers=4, batch=64, width=8, hidden=8, data=4, kind="fsdp").text())
    local = partitioned(module)
    assert collectives(local) == {"all-gather@up": 2, "all-gather@down": 2, "reduce-scatter@down": 2}
    ahead, _ = rewritten(clone_module(local), AHEAD)
    assert collectives(ahead)["all-gather@up"] == 2
    assert collectives(ahead)["all-gather@down"] == 2
    assert collectives(ahead)["reduce-scatter@down"] == 2
    sent = [sum(c.sent_bytes for c in hloom.collectives(m)) for m in (local, ahead)]
    assert sent[0] == sent[1]
    for name in ("up", "down"):
        body = list(next(c for c in ahead if c.name.startswith(name)))
        first_dot = next(n for n, i in enumerate(body) if i.opcode == "dot")
        assert all(n < first_dot for n, i in enumerate(body) if i.op.is_collective)
