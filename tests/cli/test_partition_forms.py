"""`hloom partition --form`: what is printed for XLA is HLO for all devices, and XLA takes it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from hloom import parse
from support.command_line import NAMED, ROOT, hloom


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


def test_a_program_that_xla_has_divided(tmp_path: Path) -> None:
    """Replicas need its tiles alone, the manual form whole arrays, which it does not say."""
    theirs = str(ROOT / "tests" / "wrong_by_xla" / "scatter_of_uneven_updates.xla.hlo")
    done = hloom("partition", theirs, "--form", "replica", cwd=tmp_path)
    module = parse(done.out)
    assert (done.code, module.num_partitions, module.replica_count) == (0, 1, 4)
    assert "partition-id" not in opcodes(done.out)
    done = hloom("partition", theirs, "--form", "manual", cwd=tmp_path)
    assert (done.code, done.out) == (65, "")
    assert "error: the global shapes of the program are not known\n  help: it must come from hloom part" in done.err


@pytest.mark.parametrize("form", ["manual", "replica"])
def test_a_program_of_several_replicas_has_one_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / "r.hlo"
    path.write_text("""HloModule r, replica_count=2, num_partitions=2
      ENTRY e {
        x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
        ROOT y = f32[8,4] tanh(x)
      }""")
    assert hloom("partition", str(path), cwd=tmp_path).code == 0
    done = hloom("partition", str(path), "--form", form, cwd=tmp_path)
    assert (done.code, done.err) == (65, "hloom: error: code is made for one replica, this program has 2\n")
