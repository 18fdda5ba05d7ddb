"""`hloom partition --form`: what is printed for XLA is HLO for all devices, and XLA takes it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from hloom import parse
from support.command_line import NAMED, hloom


def printed(form: str, cwd: Path) -> str:
    done = hloom("partition", NAMED, "--form", form, cwd=cwd)
    assert (done.code, done.err) == (0, "")
    return done.out


def opcodes(text: str) -> list[str]:
    return [i.opcode for c in parse(text) for i in c]


def test_local_is_the_default(tmp_path: Path) -> None:
    assert printed("local", tmp_path) == hloom("partition", NAMED, cwd=tmp_path).out


def test_manual(tmp_path: Path) -> None:
    """Whole arrays outside, one device's work inside, between the two custom calls of manual partitioning."""
    text = printed("manual", tmp_path)
    module = parse(text)
    assert (module.num_partitions, module.replica_count) == (8, 1)
    assert [p.shape.dims for p in module.entry.parameters] == [(8, 16), (8, 4), (16, 32), (32, 4)]
    assert text.count('custom_call_target="SPMDFullToShardShape"') == 4
    assert text.count('custom_call_target="SPMDShardToFullShape"') == 2
    assert re.search(r"%h = f32\[4,8\]\S* tanh\(%xw\), sharding={manual}", text)
    assert opcodes(text).count("all-reduce") == 2


def test_replica(tmp_path: Path) -> None:
    """Each replica has its own tiles; groups are of replicas, so there are no channels."""
    text = printed("replica", tmp_path)
    module = parse(text)
    assert (module.num_partitions, module.replica_count) == (1, 8)
    assert [p.shape.dims for p in module.entry.parameters] == [(4, 16), (4, 4), (16, 8), (8, 4)]
    assert opcodes(text).count("all-reduce") == 2
    assert "channel_id" not in text
    assert "partition-id" not in opcodes(text)
    assert "sharding={" not in text


@pytest.mark.parametrize("form", ["local", "manual", "replica"])
def test_xla_reads_every_form(form: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    xla: Any = importlib.import_module("jaxlib._hlo")
    module = xla.hlo_module_from_text(printed(form, tmp_path))
    assert module.name == "mlp"


def test_unknown_form_is_a_usage_error(tmp_path: Path) -> None:
    done = hloom("partition", NAMED, "--form", "global", cwd=tmp_path)
    assert done.code == 2
    assert "invalid choice: 'global'" in done.err
