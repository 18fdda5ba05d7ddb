"""`hloom partition --form`: what is printed for XLA is HLO for all devices, and XLA takes it."""

from __future__ import annotations

import ctypes
import importlib
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hloom import parse
from hloom.codegen.native import compile_c
from support.command_line import EXAMPLES, NAMED, hloom


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


def test_kernels_in_c(tmp_path: Path) -> None:
    """A C file with a function per kernel and a comment that names its ops."""
    done = hloom("partition", EXAMPLES / "transformer_train.hlo", "--form", "c", cwd=tmp_path)
    assert done.code == 0
    comments = re.findall(r"/\* computes (.*)\n   ops: (.*)\n((?:   buffers\[\d+\].*\n?)+) \*/\nvoid (\w+)\(", done.out)
    assert [name for *_, name in comments] == [f"kernel_{n}" for n in range(len(comments))]
    assert len(comments) > 10
    fusions = [name for found, *_ in comments for name in found.split(", ")]
    assert len(fusions) == len(set(fusions)) > len(comments)
    assert any("exponential" in ops and "reduce" in ops for _, ops, *_ in comments)
    if compiler := compile_c.compiler():
        (tmp_path / "k.c").write_text(done.out)
        subprocess.run([compiler, *compile_c.FLAGS, "-march=native", "-c", "k.c"], cwd=tmp_path, check=True)


def test_kernels_in_c_compute_the_program(tmp_path: Path) -> None:
    if not (compiler := compile_c.compiler()):
        pytest.skip("there is no C compiler")
    text = """HloModule m
ENTRY e {
  x = f32[5,7] parameter(0)
  y = f32[5,7] abs(x)
  ROOT z = f32[5,7] add(y, x)
}"""
    done = hloom("partition", "-", "--devices", "1", "--form", "c", cwd=tmp_path, text=text)
    (tmp_path / "k.c").write_text(done.out)
    command = [compiler, *compile_c.FLAGS, "-march=native", "-shared", "-fPIC", "-o", "k.so", "k.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x = np.arange(-17, 18, dtype=np.float32).reshape(5, 7)
    found = np.zeros_like(x)
    ctypes.CDLL(str(tmp_path / "k.so")).kernel_0((ctypes.c_void_p * 2)(x.ctypes.data, found.ctypes.data))
    np.testing.assert_array_equal(found, np.abs(x) + x)
