"""Passes that schedule take programs of each device that another compiler made: XLA's, and hand-written ones."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.cost.presets import PRESETS
from hloom.cost.timeline import timeline
from hloom.ir.graph.module import Module, Stage, clone_module
from hloom.passes.base import PassContext, run_pipeline
from hloom.passes.named import parse_pipeline
from support.command_line import hloom as command

PASSES = ("schedule", "overlap", "bucket{rule=size}", "memory-order", "common-gathers,schedule{form=xla}")
BY_HAND = """HloModule two, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[2,4] parameter(0)
  v = f32[2,4] parameter(1)
  w = f32[2,4] parameter(2)
  g = f32[4,4] all-gather(v), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}
  y = f32[2,4] dot(x, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[4,4] all-gather(w), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}
  z = f32[2,4] dot(y, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = u32[] partition-id()
  f = f32[] convert(n)
  b = f32[2,4] broadcast(f), dimensions={}
  s = f32[2,4] add(z, b)
  ROOT r = f32[2,4] all-reduce(s), channel_id=3, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
}
"""


def compiled() -> str:
    """Returns XLA's program per device for the gradient of three layers, on eight devices."""
    jax: Any = pytest.importorskip("jax")
    jnp: Any = pytest.importorskip("jax.numpy")
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:8]), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", None))

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x * x).sum()

    jitted = jax.jit(jax.grad(loss), in_shardings=([rows] * 3, rows), out_shardings=[rows] * 3)
    return jitted.lower([np.ones((16, 16), np.float32)] * 3, np.ones((8, 16), np.float32)).compile().as_text()


def count(module: Module) -> int:
    return sum(i.op.is_collective for c in module for i in c)


def rewritten(module: Module, passes: str) -> Module:
    module = clone_module(module)
    run_pipeline(parse_pipeline(passes), module, PassContext(machine=PRESETS["h100"], verify="each"))
    assert module.stage is Stage.GLOBAL
    return hloom.parse(module.to_text())


@pytest.mark.parametrize("made", [lambda: BY_HAND, compiled], ids=["by hand", "XLA"])
@pytest.mark.parametrize(
    "passes", [pytest.param(p, marks=[] if "schedule" in p else [pytest.mark.slow]) for p in PASSES]
)
def test_programs_keep_their_bits(made: Any, passes: str) -> None:
    module = hloom.parse(made())
    rng = np.random.default_rng(0)
    dims = [(16, 16)] * 3 + [(8, 16)] if made is compiled else [(2, 2, 4)] * 3
    inputs = [rng.standard_normal(d).astype(np.float32) for d in dims]
    expected, new = hloom.simulate(module, inputs), rewritten(module, passes)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(hloom.simulate(new, inputs), expected, strict=True))
    if "schedule" in passes:
        old, found = (timeline(m, PRESETS["h100"]).seconds for m in (module, new))
        assert found < old
        assert count(new) <= count(module)


def test_the_command_schedules_what_has_no_schedule(tmp_path: Path) -> None:
    file = tmp_path / "two.hlo"
    file.write_text(BY_HAND)
    done = command("schedule", file, "--machine", "h100", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "before: " in done.out
    file.write_text(BY_HAND.replace("HloModule two", "HloModule two, is_scheduled=true"))
    done = command("schedule", file, "--machine", "h100", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "before: " not in done.out


def with_start() -> str:
    start = "t = (f32[2,4], f32[4,4]) all-gather-start(v), channel_id=1, replica_groups={{0,1}}, "
    line = next(line for line in BY_HAND.splitlines() if " g = " in line)
    return BY_HAND.replace(line, f"  {start}use_global_device_ids=true, dimensions={{0}}\n"
                                 "  g = f32[4,4] all-gather-done(t)")  # fmt: skip


def test_the_command_schedules_what_has_starts(tmp_path: Path) -> None:
    """Those that are in no order yet: others keep theirs."""
    file = tmp_path / "two.hlo"
    seconds: list[float] = []
    for text in (BY_HAND, with_start()):
        file.write_text(text)
        done = command("schedule", file, "--machine", "h100", "--json", cwd=tmp_path)
        assert done.code == 0, done.err
        seconds.append(json.loads(done.out)["seconds"])
    assert seconds[0] == seconds[1]


def test_starts_are_refused_with_what_to_do() -> None:
    text = with_start()
    with pytest.raises(hloom.CompileError, match="pass schedule cannot look into all-gather-start t") as error:
        rewritten(hloom.parse(text), "schedule")
    assert error.value.diagnostics[0].help == "run pass synchronous before it"
    assert count(rewritten(hloom.parse(text), "synchronous,schedule")) == 2


def test_global_programs_are_refused() -> None:
    text = "HloModule m, num_partitions=2\nENTRY e { ROOT x = f32[2] parameter(0) }"
    with pytest.raises(hloom.CompileError, match="pass schedule needs a LOCAL or SCHEDULED module"):
        rewritten(hloom.parse(text), "schedule")
