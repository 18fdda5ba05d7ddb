"""`hloom forecast`: the text, JSON, the critical path, and wrong options."""

from __future__ import annotations

import json

from support.command_line import EXAMPLES, ROOT, hloom

TRAIN = EXAMPLES / "transformer_train.hlo"


def test_a_training_step() -> None:
    done = hloom("forecast", TRAIN, "--machine", "h100", "--batch-of", "tokens", "--remarks", "none", cwd=ROOT)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("jit_train_step: ")
    assert lines[0].endswith(" per step on 8 devices of h100")
    assert any(line.startswith("rate: ") and " tokens per second" in line for line in lines)
    assert "critical path" not in done.out


def test_json_and_the_schedule_agree() -> None:
    step = EXAMPLES / "mlp_train.hlo"
    found = json.loads(hloom("forecast", step, "--machine", "tpu-v4", "--json", cwd=ROOT).out)
    schedule = json.loads(hloom("schedule", step, "--machine", "tpu-v4", "--json", cwd=ROOT).out)
    for key in ("program", "devices", "machine", "seconds", "exposed"):
        assert found[key] == schedule[key]
    assert found["peak"] < schedule["peak"]  # without values that only kernels see
    assert abs(sum(part["seconds"] for part in found["parts"]) - found["seconds"]) < 1e-9 * found["seconds"]
    assert found["bound"]["length"] <= found["bound"]["seconds"] <= found["seconds"] * (1 + 1e-9)
    assert found["buffers"][0]["bytes"] >= found["buffers"][-1]["bytes"]
    assert found["error"] is None
    assert sorted(found["layout"]["order"]["perm"]) == [0, 1, 2]
    assert found["layout"]["seconds"] <= found["layout"]["by_rows"]


def test_the_critical_path_comes_first() -> None:
    done = hloom("forecast", TRAIN, "--machine", "tpu-v4", "--critical", "--as-is", "--remarks", "none", cwd=ROOT)
    assert done.out.startswith("critical path")
    assert "along this path" in done.out


def test_wrong_options() -> None:
    done = hloom("forecast", TRAIN, "--as-is", "--memory", "1GB", cwd=ROOT)
    assert done.code == 2
    assert "--as-is asks for none" in done.err
    done = hloom("forecast", EXAMPLES / "mlp_train.hlo", "--batch-of", "token", cwd=ROOT)
    assert done.code == 65
    assert "no parameter of jit_train_step is the array 'token'" in done.err
    assert "known: " in done.err
