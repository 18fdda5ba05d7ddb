"""Training: the same losses whether the run goes through, stops and resumes, or resumes on another mesh."""

from __future__ import annotations

import json
import math
from pathlib import Path

import hloom
import numpy as np
import pytest
from hloom.cost.goodput.pod import daly_interval
from hloom.driver.training.cadence import Cadence
from hloom.driver.training.loop import state_count
from hloom.driver.training.metrics import MetricsFile, StepRecord
from hloom.driver.training.step_inputs import StepInputs
from hloom.ir.diagnostics import CompileError
from hloom.ir.types.literal import Array

STEP = """HloModule step, num_partitions={n}
plus {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  w = f32[8,6] parameter(0), sharding={{devices=[{n},1]<=[{n}]}}
  count = s32[] parameter(1)
  x = f32[8,6] parameter(2), sharding={{devices=[{n},1]<=[{n}]}}
  half = f32[] constant(0.5)
  halves = f32[8,6] broadcast(half), dimensions={{}}
  move = f32[8,6] subtract(x, w)
  by = f32[8,6] multiply(halves, move)
  next = f32[8,6] add(w, by), sharding={{devices=[{n},1]<=[{n}]}}
  one = s32[] constant(1)
  more = s32[] add(count, one)
  zero = f32[] constant(0)
  sum = f32[] reduce(move, zero), dimensions={{0,1}}, to_apply=plus
  ROOT t = (f32[8,6], s32[], f32[]) tuple(next, more, sum)
}}
"""


def program(devices: int = 4) -> hloom.Module:
    return hloom.parse(STEP.format(n=devices))


def batch(step: int) -> list[Array]:
    return [np.random.default_rng(step).normal(size=(8, 6)).astype(np.float32)]


def expected(steps: int) -> tuple[list[Array], list[float]]:
    """Runs the steps one by one, as users did by hand."""
    made, losses = hloom.compile(program()), list[float]()
    state: list[Array] = [np.zeros((8, 6), np.float32), np.asarray(0, np.int32)]
    for step in range(steps):
        *state, loss = made.simulate([*state, *batch(step)])
        losses.append(loss.item())
    return state, losses


def test_training_is_the_loop_by_hand() -> None:
    state, losses = expected(4)
    done = hloom.train(program(), 4, batch, initial="zeros")
    assert done.losses == losses
    assert [a.tobytes() for a in done.state] == [a.tobytes() for a in state]
    assert done.records[2].scalars == {"sum": losses[2]}
    named = hloom.train(program(), 4, lambda step: {"x": batch(step)[0]}, initial="zeros")
    assert named.losses == losses


def test_a_run_resumes_where_it_stopped_also_on_another_mesh(tmp_path: Path) -> None:
    losses = expected(7)[1]
    lines = tmp_path / "metrics.jsonl"

    def part(steps: int, devices: int, every: str) -> list[float | None]:
        found = hloom.train(program(devices), steps, batch, initial="zeros", checkpoint=tmp_path / "steps",
                            every=every, metrics=lines)  # fmt: skip
        assert found.step == steps
        return found.losses

    assert part(3, 4, "2") == losses[:3]
    lines.write_text(lines.read_text() + '{"step": 3, "loss": 1}\n{"step": 4, "lo')  # ran on, and was killed
    on_two = part(5, 2, "auto")  # sums in another order
    assert on_two == pytest.approx(losses[3:5], rel=1e-5)
    assert part(7, 4, "60s") == losses[5:]  # the state has no sums
    assert [json.loads(line)["step"] for line in lines.read_text().splitlines()] == list(range(7))
    assert part(7, 4, "1") == []


def test_a_checkpoint_that_cannot_be_written_ends_the_run_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(hloom.checkpoint.CheckpointError, match="cannot be written to"):
        hloom.train(program(), 2, batch, checkpoint=tmp_path / "file", every="1")


def test_metrics_do_not_replace_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    for text in (b"notes\n", b"notes", b'{"a": 1}\n', b'{"step": 0}\n\xff\n', b"[" * 9**5 + b"\n"):
        path.write_bytes(text)
        with pytest.raises(hloom.CompileError, match=r"m\.jsonl has lines that are no steps of a run"):
            MetricsFile(path, 0)
        assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("m.jsonl", text)]


def test_state_is_found_and_refused() -> None:
    local = hloom.partition(program())
    assert state_count(local) == 2
    assert state_count(local, 1) == 1
    with pytest.raises(CompileError, match="the state cannot have 3 arrays: result 2 of step is not like parameter 2"):
        state_count(local, 3)
    other = STEP.replace("add(w, by), sharding={{devices=[{n},1]<=[{n}]}}", "add(w, by), sharding={{replicated}}")
    with pytest.raises(CompileError, match="array 0 is no state: step takes it divided in one way"):
        state_count(hloom.partition(hloom.parse(other.format(n=4))))
    none = hloom.parse("HloModule none\nENTRY e { x = f32[4] parameter(0)\n ROOT r = s32[4] convert(x) }")
    with pytest.raises(CompileError, match="none has no state"):
        hloom.train(none, 1)


def test_inputs_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for step in range(2):
        np.savez(f"batch-{step}.npz", x=batch(step)[0])
    files = StepInputs(program(), 2, "batch-{step}.npz")
    assert all((files.at(step)[0] == batch(step)[0]).all() for step in range(2))
    with pytest.raises(CompileError, match=r"batch-2\.npz"):
        files.at(2)
    random = StepInputs(program(), 2, "x=uniform[0,1)", seed=3)
    assert random.at(0)[0].tobytes() == StepInputs(program(), 2, "x=uniform[0,1)", seed=3).at(0)[0].tobytes()
    assert random.at(0)[0].tobytes() != random.at(1)[0].tobytes()
    Path("own.py").write_text("import numpy as np\ndef some(step):\n    return {'x': np.full((8, 6), step, 'f')}\n"
                              "def wrong(step):\n    return [1, 2]\ndef bad(step):\n    return 1 / step\n")  # fmt: skip
    assert StepInputs(program(), 2, "own.py:some").at(5)[0].max() == 5
    for name, message in (("wrong", "are not one array for each"), ("bad", "ZeroDivisionError"), ("no", "no function")):
        with pytest.raises(CompileError, match=message):
            StepInputs(program(), 2, f"own.py:{name}").at(0)


def test_cadence() -> None:
    assert [Cadence.parse("5").next(step, 1.0, 1.0) for step in (0, 4, 5, 11)] == [5, 5, 10, 15]
    assert Cadence.parse("60s").next(100, 0.5, None) == 220
    assert Cadence.parse("auto").next(0, None, None) == 3
    machines = 64
    between = 86400 / 0.0008 / machines
    assert Cadence.parse("auto", machines).next(1000, 2.0, 20.0) == 1000 + round(daly_interval(20.0, between) / 2)
    for text in ("0", "soon", "-3", "1.5", "0s"):
        with pytest.raises(CompileError, match="is neither auto, nor a number"):
            Cadence.parse(text)


@pytest.mark.parametrize(("write", "between"), [(20.0, 1e5), (120.0, 2e4), (5.0, 3600.0)])
def test_daly_loses_little_more_than_the_best_interval(write: float, between: float) -> None:
    """Expected time per second of work, of a write after each interval and failures at any time (Daly, equation 13)."""

    def cost(interval: float) -> float:
        return between * (math.exp((interval + write) / between) - 1) / interval

    best = min(cost(interval) for interval in np.geomspace(write, 10 * between, 2000))
    assert cost(daly_interval(write, between)) <= best * 1.001


def test_a_line_that_a_lost_rank_has_not_written_comes_from_another(tmp_path: Path) -> None:
    def record(step: int) -> StepRecord:
        return StepRecord(step, 0.1, {"loss": float(step)})

    path = tmp_path / "m.jsonl"
    first = MetricsFile(path, 0)
    for step in range(3):
        first.write(record(step))
    first.close()
    path.write_text(path.read_text() + '{"step": 3, "lo')  # the rank died
    MetricsFile(path, 4, [record(step) for step in (2, 3, 4)]).close()
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [0.0, 1.0, 2.0, 3.0]
