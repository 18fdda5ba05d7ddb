"""Stacks on the host: the bits of the program, less memory of the device, and time only where the link is slow."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.cost.machine import SECOND, Cluster
from hloom.cost.memory import live_memory
from hloom.cost.presets import PRESETS
from hloom.cost.seconds import FROM_HOST, TO_HOST, Clock
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, clone_module
from hloom.ir.tools.verifier import check
from hloom.ir.types.shape import Shape
from hloom.passes.base import PassContext
from hloom.passes.schedule.on_host import moves_to_host
from hloom.passes.schedule.rematerialize import rematerialize
from hloom.passes.schedule.saved import free_saved
from hloom.passes.scheduling import schedule
from hloom.runtime import evaluate
from hloom.runtime.inputs.inputs import inputs_for_module
from support.command_line import ROOT, environment, have_mpi
from support.layered_programs import Model
from support.scans import LOOPS, STACK, random_layers, random_scan
from support.xla_runner import compile_text

FAST, SLOW = (replace(PRESETS["cpu-cluster"], host_bytes=rate) for rate in (1e15, 1e3))
PROGRAM = Path(__file__).with_name("rank_host.py")
UNLINKED = PRESETS["cpu-cluster"]


def kept(module: Module, machine: Cluster = FAST, excess: float = 1e9, run: bool = True) -> Module:
    """The module with as many stacks as possible on the host, or recomputed; it runs with the same bits."""
    new = clone_module(module)
    free_saved(new, Clock.of(new, machine), excess, offload=True)
    check(new)
    new = hloom.parse(new.to_text())
    inputs = inputs_for_module(module, seed=3) if run else None
    for a, b in zip(evaluate(new, inputs), evaluate(module, inputs), strict=True) if inputs is not None else ():
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return new


def test_stacks_lie_on_the_host() -> None:
    module = hloom.parse(LOOPS)
    new = kept(module)
    assert moves_to_host(new) == 3
    assert live_memory(new).peak < live_memory(module).peak - 2 * STACK
    assert "S(5)" in new.to_text()
    assert '_xla_buffer_placement="pinned_host"' in new.to_text()


def test_moves_take_the_time_of_the_link_on_engines_of_their_own() -> None:
    new = kept(hloom.parse(LOOPS))
    rate, launch = 1e9, UNLINKED.launch / SECOND  # each move is launched
    line = timeline(new, replace(UNLINKED, host_bytes=rate))
    assert line.busy[TO_HOST] == pytest.approx(3 * (STACK / rate + 5 * launch))
    # once more than there are trips
    assert line.busy[FROM_HOST] == pytest.approx(3 * ((STACK + STACK / 5) / rate + 6 * launch))
    assert timeline(new, FAST).seconds < line.seconds < timeline(new, SLOW).seconds
    assert timeline(new, SLOW).seconds > 3 * STACK / 1e3
    assert not any(e.is_collective for e in line.events)


def test_a_slow_link_is_not_used() -> None:
    """t is computed again from x, which is cheaper; a machine without a link moves nothing."""
    module = hloom.parse(LOOPS)
    assert moves_to_host(kept(module, SLOW, 1.0)) == 0
    assert moves_to_host(kept(module, FAST, 1.0)) == 1
    text = LOOPS.replace("[5,", "[2,").replace("constant(5)", "constant(2)").replace("constant(4)", "constant(1)")
    assert moves_to_host(kept(hloom.parse(text))) == 0  # the device would hold both entries
    new = clone_module(module)
    assert rematerialize(new, Clock.of(new, UNLINKED), 0.0) > 0
    assert moves_to_host(new) == 0


def test_what_else_reads_a_stack_keeps_it() -> None:
    result = "ROOT r = (f32[8,64], f32[5,8,64]) tuple(h, gs)"
    text = LOOPS.replace(result, f"both = f32[5,8,64] add(gs, xs)\n  {result.replace('gs', 'both')}")
    assert moves_to_host(kept(hloom.parse(text))) == 2
    text = LOOPS.replace("(zero, x, empty, empty", "(zero, x, given, empty").replace(
        "  f = f32[] constant(0)\n", "  f = f32[] constant(0)\n  given = f32[5,8,64] parameter(2)\n")
    assert moves_to_host(kept(hloom.parse(text))) == 2  # one does not begin with one number


def test_xla_compiles_and_runs_it() -> None:
    new, module = kept(hloom.parse(LOOPS)), hloom.parse(LOOPS)
    inputs = [np.asarray(i) for i in inputs_for_module(module)]
    for ours, theirs in zip(evaluate(new, inputs), compile_text(new.to_text()).run([inputs])[0], strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))])
def test_random_scans(seed: int) -> None:
    """Gradients of random layers keep their bits, whether stacks are recomputed as well or not."""
    module = random_scan(seed)
    new = kept(module)
    assert live_memory(new).peak < live_memory(module).peak
    kept(new)
    kept(module, replace(UNLINKED, host_bytes=1e9), live_memory(module).peak / 8)


def test_on_four_devices_it_is_proved() -> None:
    """Each device keeps its part of the stacks on its host."""
    rows = "sharding={devices=[4,1]<=[4]}"
    text = LOOPS.replace("HloModule m", "HloModule m, num_partitions=4")
    whole = hloom.parse(text.replace("x = f32[8,64] parameter(0)", f"x = f32[8,64] parameter(0), {rows}"))
    local = hloom.partition(whole).module
    new = kept(local, run=False)
    assert moves_to_host(new) == 3
    assert "f32[5,2,64]{2,1,0:S(5)}" in new.to_text()
    inputs = inputs_for_module(whole)
    for backend in ("reference", "native"):
        ours, plain = (hloom.compile(m, backend=backend).simulate(inputs) for m in (new, local))
        assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(ours, plain, strict=True))
    assert hloom.prove(whole, new).is_equal


def test_a_schedule_tries_it_within_memory() -> None:
    """A program fits that does not where nothing can lie on the host."""
    local = hloom.partition(hloom.parse(LOOPS.replace("HloModule m", "HloModule m, num_partitions=4"))).module
    limit = int(0.7 * live_memory(local).peak)
    context = PassContext(machine=FAST)
    new = schedule(clone_module(local), context, memory=limit)
    assert live_memory(new).peak <= limit
    assert any(f"{moves_to_host(new)} lie on the host" in d.message for d in context.diagnostics.found)
    with pytest.raises(hloom.CompileError, match="more than the limit"):
        schedule(clone_module(local), PassContext(machine=UNLINKED), memory=limit)


def test_shapes_on_the_host() -> None:
    shape = hloom.parse_shape("bf16[2,3]{0,1:T(8,128)(2,1)}")
    there = shape.on_host()
    assert str(there) == "bf16[2,3]{0,1:T(8,128)(2,1)S(5)}"
    assert there.is_on_host
    assert there.on_device() == shape
    assert there.on_host() is there
    assert (there.byte_size, there.device_bytes) == (12, 0)
    plain = hloom.parse_shape("f32[2,3]")
    assert plain.on_host().on_device() == plain
    both: Shape = hloom.parse_shape("(f32[2,3], f32[2,3]{1,0:S(5)})")
    assert both.device_bytes == 24


def texts(whole: Module, folder: Path, name: str) -> int:
    """Writes a program, that of a device, and that with as much as possible on the host, proved; returns its moves."""
    local = hloom.partition(clone_module(whole))
    new = clone_module(local)
    rematerialize(new, Clock.of(new, FAST), 0.0, offload=True)
    assert hloom.prove(whole, new).is_equal
    for kind, module in (("whole", whole), ("plain", local), ("moved", new)):
        (folder / f"{name}.{kind}").write_text(module.to_text())
    return moves_to_host(new)


@pytest.mark.slow
@pytest.mark.parametrize("collectives", ["shared", "mpi"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_on_ranks(ranks: int, collectives: str, tmp_path: Path) -> None:
    """The bits of one process, which the same program without moves has as well; four devices on 2 and 4 ranks."""
    if not have_mpi():
        pytest.skip("there is no mpiexec")
    rows = "sharding={devices=[4,1]<=[4]}"
    text = LOOPS.replace("HloModule m", "HloModule m, num_partitions=4")
    text = text.replace("x = f32[8,64] parameter(0)", f"x = f32[8,64] parameter(0), {rows}")
    moves = texts(hloom.parse(text), tmp_path, "loops")
    moves += sum(texts(random_layers(seed, 4), tmp_path, str(seed)) for seed in range(4))
    written = Model(layers=3, batch=64, width=8, hidden=16, data=2, model=2, kind="both", loop=False)
    moves += texts(hloom.parse(written.text()), tmp_path, "written")
    variables = environment(PYTHONPATH=f"{ROOT / '.import'}:{ROOT / 'tests'}", HLOOM_COLLECTIVES=collectives)
    command = [sys.executable, ROOT / "tests" / "support" / "on_ranks.py", PROGRAM, str(ranks), tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == moves > 20
