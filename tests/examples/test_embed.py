"""The embedding example: it runs with public names alone, its output runs on XLA, and docs/embedding.md quotes it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import hloom
import numpy as np
import pytest
from support.command_line import EXAMPLES, ROOT, environment

EMBED = EXAMPLES / "embed.py"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the example prints, and the program that it writes; it registers an op, so it has a process of its own."""
    out = tmp_path_factory.mktemp("embed") / "layer.hlo"
    done = subprocess.run([sys.executable, EMBED, out], capture_output=True, text=True, check=True, env=environment())
    return done.stdout, out


def test_example(ran: tuple[str, Path]) -> None:
    printed, out = ran
    assert "needs dimension 1 of operand 0 (f32[64,128]) whole" in printed
    assert "operand of row-norm row-norm: 8192 bytes, least 8192" in printed
    (difference,) = re.findall(r"largest difference (\S+)", printed)
    assert 0 <= float(difference) < 2e-6
    opcodes = {i.opcode for c in hloom.load(out) for i in c}
    assert {"tanh", "rsqrt", "all-gather"} <= opcodes
    assert not {"row-norm", "logistic"} & opcodes


def test_its_output_runs_on_xla(ran: tuple[str, Path]) -> None:
    pytest.importorskip("jax")
    from support.xla_runner import run_manual

    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=dims).astype(np.float32) for dims in ((64, 32), (32, 128)))
    (found,) = run_manual(ran[1].read_text(), [x, w], 4, [(64, 128)])
    y = 1 / (1 + np.exp(-(x.astype(float) @ w)))
    np.testing.assert_allclose(found, -y / np.sqrt((y * y).mean(1, keepdims=True)), rtol=2e-5, atol=1e-6)


def test_it_uses_public_names_alone() -> None:
    tree = ast.parse(EMBED.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("hloom")]
    assert {name for name in imported if name.startswith("hloom")} == {"hloom"}
    used = {node.attr for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hloom"}
    assert used <= set(hloom.__all__)
    assert len(used) > 15


def test_the_page_quotes_the_example() -> None:
    page = (ROOT / "docs" / "embedding.md").read_text()
    quoted = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(quoted) == 5
    for text in quoted:
        assert text in EMBED.read_text()
