"""`hloom from-jax`: what it writes, and errors at the user's own lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hloom import load, parse
from support.command_line import EXAMPLES, hloom, process

pytest.importorskip("jax")
modules: dict[str, Any] = sys.modules

STEP = EXAMPLES / "train_step.py"

PROGRAMS = """import jax, jax.numpy as jnp
import neighbour

def f(x):
    return jnp.sin(x) @ jnp.ones((3, 5))

def pair(): return f, (jax.ShapeDtypeStruct((2, 3), jnp.float32),)
def lowered(): return jax.jit(f).lower(jnp.ones((2, 3)))
def traced(): return jax.jit(f).trace(jnp.ones((2, 3)))
def wrong_shape(): return f, (jax.ShapeDtypeStruct((2, 4), jnp.float32),)
def number(): return 3
def no_arguments(): return f, 3
def leaves(): raise SystemExit(3)
def big_mesh(): return jax.make_mesh((640,), ("x",))
def uneven():
    return f, (jax.ShapeDtypeStruct((5, 3), "f4", sharding=jax.NamedSharding(MESH, jax.P("x"))),)
MESH = jax.sharding.AbstractMesh((2,), ("x",))
def uneven_inside():
    divided = lambda x: jax.lax.with_sharding_constraint(x, jax.NamedSharding(MESH, jax.P("x")))
    return lambda x: f(divided(x)), (jax.ShapeDtypeStruct((5, 3), "f4"),)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "programs.py").write_text(PROGRAMS)
    (tmp_path / "neighbour.py").touch()
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    return tmp_path


def test_out_is_a_program_with_the_users_names(tmp_path: Path) -> None:
    done = hloom("from-jax", f"{STEP}:program", "--out", "step.hlo", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("step.hlo: jit_train_step, 5 parameters, ")
    assert {"data", "model"} == {name for name, _ in load(tmp_path / "step.hlo").meshes["mesh"].axes}
    assert "buffer_donor={ (0, {}), (1, {}), (2, {}) }" in (tmp_path / "step.hlo").read_text()
    checked = hloom("run", "step.hlo", "--check", cwd=tmp_path)
    assert checked.code == 0
    assert "check passed" in checked.out
    explained = hloom("explain", "step.hlo", "params['w1']", cwd=tmp_path)
    assert "model" in explained.out
    assert "train_step.py:27" in hloom("comm", "step.hlo", cwd=tmp_path).out


@pytest.mark.parametrize("name", ["pair", "lowered", "traced"])
def test_what_a_function_may_return(name: str, folder: Path) -> None:
    done = hloom("from-jax", f"programs.py:{name}", cwd=folder)
    assert (done.code, done.err) == (0, "")
    assert "f32[2,3]" in done.out
    assert "sine" in done.out


def test_other_commands_take_functions(folder: Path) -> None:
    done = hloom("show", "programs.py:pair", cwd=folder)
    assert (done.code, done.err) == (0, "")
    written = hloom("from-jax", "programs.py:pair", cwd=folder).out
    assert done.out.partition("\n\n")[0] == written.partition("\n\n")[0]
    assert load(folder / "programs.py:pair").entry.root.shape == parse(written).entry.root.shape
    wrong = hloom("forecast", "programs.py:none", "--machine", "h100", cwd=folder)
    assert wrong.code == 65
    assert "programs.py has no function 'none'" in wrong.err


MISTAKES = {
    "programs.py:wrong_shape": ("programs.py:5:12: error: TypeError: dot_general requires contracting dimensions",
                                "5 |     return jnp.sin(x) @ jnp.ones((3, 5))"),
    "programs.py:big_mesh": ("programs.py:14:24: error: ValueError: ", "hloom from-jax --devices N gives JAX N"),
    "programs.py:uneven": ("programs.py:4:1: error: IndivisibleError: ", "4 | def f(x):",
                           "help: JAX divides arguments and results evenly: give these without a sharding"),
    "programs.py:leaves": ("programs.py:13:", "error: SystemExit: 3"),
    "programs.py:number": ("returns an object of type int", "help: return (f, args), where"),
    "programs.py:no_arguments": ("returns an object of type tuple: function, int", "where args is a tuple"),
    "programs.py:f": ("programs.py:f has parameters (x), which nothing gives", "help: name one without any"),
    "programs.py:none": ("programs.py has no function 'none'", "functions in it: big_mesh, f, leaves, "),
    "missing.py:f": ("missing.py cannot be read: No such file", ""),
    "broken.py:f": ("broken.py:2:7: error: SyntaxError: invalid syntax", "2 | def f(:"),
}  # fmt: skip


@pytest.mark.parametrize("place", MISTAKES)
def test_mistakes(place: str, folder: Path) -> None:
    done = hloom("from-jax", place, cwd=folder)
    assert (done.code, done.out) == (65, "")
    for part in MISTAKES[place]:
        assert part in done.err


SOLVED = """import jax, jax.numpy as jnp, numpy as np
MESH = jax.sharding.AbstractMesh((2,), ("x",))
def f(a, b, factor, key):
    b = jax.lax.with_sharding_constraint(b, jax.NamedSharding(MESH, jax.P(None, "x")))
    factors = jax.scipy.linalg.cho_factor(a)
    return jax.scipy.linalg.cho_solve(factors, b) * factor + jax.random.normal(key, b.shape)
A = np.ones((6, 6)) + 6 * np.eye(6)
def arrays(): return f, (A, jnp.ones((6, 4)), 2.0, jax.random.key(1))
def shapes(): return f, (jax.ShapeDtypeStruct((6, 6), "f4"), jnp.ones((6, 4)), 2.0, jax.random.key(1))
"""


def test_arrays_of_a_function_are_the_inputs_of_a_run(tmp_path: Path) -> None:
    """Of random numbers nobody takes the Cholesky factor. A double of numpy is a float of the program."""
    (tmp_path / "solved.py").write_text(SOLVED)
    for call, *given in ((hloom,), (hloom, "--inputs", "example"), (process, "--ranks", "2")):
        done = call("run", "solved.py:arrays", "--check", *given, cwd=tmp_path)
        assert (done.code, done.out.splitlines()[-1:]) == (0, ["check passed"]), done.err
    for place, *given in (("shapes",), ("arrays", "--seed", "1"), ("arrays", "--inputs", "random")):
        assert "contain NaN" in hloom("run", f"solved.py:{place}", "--check", *given, cwd=tmp_path).out
    module = load(f"{tmp_path}/solved.py:arrays")
    assert [(a.shape, a.dtype.name) for a in module.example] == [
        ((6, 6), "float32"), ((6, 4), "float32"), ((), "float32"), ((2,), "uint32")]  # fmt: skip
    refused = hloom("eval", "solved.py:shapes", "--inputs", "example", cwd=tmp_path)
    assert refused.code == 65
    assert "came without arrays" in refused.err


def test_uneven_arrays_are_divided_inside(folder: Path) -> None:
    done = hloom("run", "programs.py:uneven_inside", "--check", cwd=folder)
    assert (done.code, done.err) == (0, "")
    assert "2 simulated devices" in done.out


def test_output_that_cannot_be_written(folder: Path) -> None:
    done = hloom("from-jax", "programs.py:pair", "--out", "no/such/folder.hlo", cwd=folder)
    assert done.code == 74
    assert "folder.hlo cannot be written" in done.err


@pytest.mark.parametrize("place", ["programs.py", "programs.py:", ":f", "programs.py:a b"])
def test_places_of_another_form(place: str, folder: Path) -> None:
    done = hloom("from-jax", place, cwd=folder)
    assert done.code == 2
    assert "is not of the form FILE.py:FUNCTION" in done.err


@pytest.mark.slow
def test_virtual_devices(folder: Path) -> None:
    (folder / "mesh.py").write_text(PROGRAMS.replace("(640,)", "(12,)").replace("return jax.make_mesh", "jax.make_mesh")
                                    + "    return pair()\n")  # fmt: skip
    text = (folder / "mesh.py").read_text().replace("def big_mesh(): ", "def big_mesh():\n    ")
    (folder / "mesh.py").write_text(text)
    done = process("from-jax", "mesh.py:big_mesh", "--devices", "12", cwd=folder)
    assert (done.code, done.err) == (0, "")


def test_without_jax(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jax", "jaxlib"):
        monkeypatch.setitem(modules, name, None)
    done = hloom("from-jax", "programs.py:pair", cwd=folder)
    assert done.code == 65
    assert "error: jax is missing, which is needed to read programs from JAX" in done.err
    assert "help: pip install 'hloom[xla]'" in done.err
