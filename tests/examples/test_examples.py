"""The example files are what their scripts write, and the scripts write programs for meshes of every kind."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMITTED = {
    "mlp_train.hlo": ["make_mlp.py"],
    "transformer_train.hlo": ["make_transformer.py"],
    "transformer_scan_train.hlo": ["make_transformer.py", "--scan"],
}


def make(script: str, *options: str) -> str:
    """What the script prints with these options."""
    pytest.importorskip("jax")
    done = subprocess.run([sys.executable, EXAMPLES / script, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made_with() -> str:
    """The JAX version that wrote the committed files."""
    found = re.search(r'^MADE_WITH = "(.+?)"', (EXAMPLES / "lowering.py").read_text(), re.MULTILINE)
    assert found
    return found[1]


def signature(text: str) -> str:
    """The types of the entry's parameters and results; the same under every JAX version."""
    return text.partition("entry_computation_layout=")[2].partition("\n")[0]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if "mlp" in name else [pytest.mark.slow]) for name in COMMITTED]
)
def test_file_is_what_the_script_writes(name: str) -> None:
    jax = pytest.importorskip("jax")
    committed, made = (EXAMPLES / name).read_text(), make(*COMMITTED[name])
    assert signature(made) == signature(committed)
    if jax.__version__ == made_with():  # other versions may word the same program differently
        assert made == committed


@pytest.mark.parametrize("name", [*COMMITTED, "mlp_named.hlo"])
def test_file_is_complete_and_portable(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert "{...}" not in text, "a constant was elided"
    assert not re.search(r'"(/|[A-Za-z]:\\)', text), "a path of the machine that wrote it"
    assert len(text) < 300_000


def test_named_file_is_hlo_to_xla() -> None:
    pytest.importorskip("jax")
    hlo: Any = importlib.import_module("jaxlib._hlo")
    module = hlo.hlo_module_from_text((EXAMPLES / "mlp_named.hlo").read_text())
    assert module.name == "mlp"


@pytest.mark.slow
def test_mesh_that_divides_nothing() -> None:
    text = make("make_transformer.py", "--mesh", "data=3,model=3", "--layers", "1")
    assert '#sdy.mesh<["data"=3, "model"=3]>' in text
    tokens = re.search(r"%tokens\S* = s32\[8,16\]\S* parameter\(\d+\)(.*)", text)
    assert tokens
    assert "xla.sdy.sharding=" not in tokens[1]  # JAX takes no uneven argument: a constraint inside says it instead
    assert re.search(r'custom-call\(%tokens\S*\), custom_call_target="Sharding", sharding={devices=\[3,1,3\]', text)


@pytest.mark.slow
def test_mesh_size_changes_shardings_only() -> None:
    """More devices make no longer program: the same instructions, whatever the mesh."""
    sizes = ["--width", "128", "--heads", "16", "--batch", "64", "--layers", "1"]

    def opcodes(mesh: str) -> list[str]:
        return re.findall(r" = \S+ ([a-z-]+)\(", make("make_transformer.py", "--mesh", mesh, *sizes))

    few = opcodes("data=2,model=4")
    assert len(few) > 400
    assert opcodes("data=64,model=16") == few


def test_misspelt_mesh_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "make_mlp.py"), "--mesh", "data"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "not of the form data=2,model=4" in done.stderr
