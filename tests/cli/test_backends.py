"""`--backend`: the examples and random programs give the same numbers whoever computes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hloom.cost.kernels import is_worth_compiling
from hloom.driver.backend import BACKENDS, Backend
from hloom.frontends import parse
from hloom.ir.graph.module import Module
from hloom.runtime.evaluator import evaluate
from hloom.runtime.inputs.inputs import make_inputs
from hloom.runtime.native.kernels import NativeKernels
from hloom.runtime.ranks.launch import find_mpiexec
from hloom.runtime.simulator import simulate
from hypothesis import HealthCheck, given, settings
from programs.random.generate import REGIONS, programs, special_inputs_of
from support.calls import calls
from support.command_line import EXAMPLES, ROOT, have_mpi, hloom, process
from support.compare import compare
from support.loop_kernels import needs_llvm
from support.partition_check import partitioned

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "name", ["mlp_named", *(pytest.param(f"transformer_{n}", marks=pytest.mark.slow) for n in ("train", "scan_train"))]
)
def test_examples_pass_the_check(name: str, backend: str, tmp_path: Path) -> None:
    done = hloom("run", EXAMPLES / f"{name}.hlo", "--check", "--backend", backend, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "check passed" in done.out


def asked(*command: str | Path, cwd: Path, text: str | None = None, **variables: str) -> list[str]:
    """The backends that a command line takes."""
    with calls(Backend.kernels) as made:
        assert hloom(*command, cwd=cwd, text=text, **variables).code == 0
    return [call["self"].name for call in made]


@needs_llvm
def test_the_environment_names_the_default(tmp_path: Path) -> None:
    assert asked("eval", EXAMPLES / "mlp_named.hlo", cwd=tmp_path, HLOOM_BACKEND="native") == ["native"]


CHAIN = """HloModule chain
ENTRY e {
  x = f32[%d] parameter(0)
  a = f32[%d] exponential(x)
  ROOT b = f32[%d] multiply(a, a)
}
"""


@needs_llvm
def test_native_code_is_taken_where_it_saves_more_than_it_costs(tmp_path: Path) -> None:
    small, large = (CHAIN % ((n,) * 3) for n in (100, 4_000_000))
    taken: list[str] = []
    for text, more in ((small, []), (large, []), (large, ["--devices", "4"]), (small, ["--repeat", "200"])):
        command = ["run", "-", "--devices", "1", *more] if more else ["eval", "-"]
        taken += asked(*command, "--inputs", "zeros", cwd=tmp_path, text=text, HLOOM_BACKEND="auto")
    assert taken == ["reference", "native", "native", "native"]


LOOP = """HloModule loop
body {
  s = (s32[], f32[100]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[100] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[100] tanh(x)
  ROOT t = (s32[], f32[100]) tuple(n, y)
}
test {
  s = (s32[], f32[100]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = s32[] constant(1000)
  ROOT r = pred[] compare(i, c), direction=LT
}
ENTRY e {
  x = f32[100] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[100]) tuple(zero, x)
  w = (s32[], f32[100]) while(s), condition=test, body=body
  ROOT r = f32[100] get-tuple-element(w), index=1
}
"""


def nested_calls(levels: int) -> str:
    """Each level calls the one below twice."""
    below = "f0 { p = f32[4] parameter(0) ROOT r = f32[4] negate(p) }"
    call = "f%d { p = f32[4] parameter(0) c = f32[4] call(p), to_apply=f%d ROOT r = f32[4] call(c), to_apply=f%d }"
    functions = [below, *(call % (n, n - 1, n - 1) for n in range(1, levels))]
    entry = f"ENTRY e {{ p = f32[4] parameter(0) ROOT r = f32[4] call(p), to_apply=f{levels - 1} }}"
    return "\n".join(["HloModule calls", *functions, entry])


def test_calls_are_inlined_unless_the_program_grows_too_much() -> None:
    def calls(text: str) -> int:
        return sum(i.opcode == "call" for c in Backend("native").prepared(parse(text)) for i in c)

    assert not calls(nested_calls(2))
    assert calls(nested_calls(40)) == 79


def test_the_rule_counts_executions() -> None:
    small = parse(CHAIN % ((100,) * 3))
    assert [is_worth_compiling(small, times) for times in (1, 40, 400)] == [False, False, True]
    assert is_worth_compiling(parse(LOOP))
    assert not is_worth_compiling(parse(LOOP.replace("constant(1000)", "constant(10)")))


# Ways to be without native code.
MISSING = ("llvmlite", "multiply-add")


@pytest.mark.parametrize("missing", [MISSING[0], pytest.param(MISSING[1], marks=pytest.mark.slow)])
def test_without_native_code_numpy_computes(missing: str, tmp_path: Path) -> None:
    variables = {"HLOOM_CPU": "-fma,-neon"}
    if missing == "llvmlite":
        (tmp_path / "llvmlite.py").write_text("raise ImportError('no module named llvmlite')")
        variables = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / '.import'}"}
    file = EXAMPLES / "mlp_named.hlo"
    done = process("run", file, "--check", "--backend", "native", cwd=tmp_path, **variables)
    assert (done.code, done.out.splitlines()[-1]) == (0, "check passed"), done.err
    assert "remark: there is no native code here: numpy runs the program op by op" in done.err
    done = process("bench", file, "--backend", "native", "--repeat", "1", cwd=tmp_path, **variables)
    assert "backend reference (there is no native code here: native code needs llvmlite" in done.out
    (tmp_path / "chain.hlo").write_text(CHAIN % ((4_000_000,) * 3))
    done = process("eval", "chain.hlo", "--json", "--backend", "auto", cwd=tmp_path, **variables)
    assert (done.code, json.loads(done.out)["backend"], done.err) == (0, "reference", "")


@needs_llvm
@pytest.mark.skipif(not have_mpi(), reason="there is no mpiexec")
def test_ranks_without_native_code_decide_for_all(tmp_path: Path) -> None:
    """Native code and numpy round differently: devices of two ranks would disagree about a tile that both hold."""
    run = [sys.executable, "-m", "hloom", "run", str(EXAMPLES / "mlp_named.hlo"), "--json", "--backend", "native"]
    known = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHONPATH": str(ROOT / ".import"),
             "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe"}  # fmt: skip
    command = [find_mpiexec(), "-n", "1", *run, ":", "-n", "1", "env", "HLOOM_CPU=-fma,-neon", *run]
    done = subprocess.run(command, env=os.environ | known, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["backend"] == "reference"
    assert "remark: there is no native code on " in done.stderr


@pytest.mark.slow
@needs_llvm
def test_code_without_some_features_has_the_same_bits(tmp_path: Path) -> None:
    found: list[bytes] = []
    for hidden in ("", "-avx512f,-avx2"):
        done = process("eval", EXAMPLES / "mlp_train.hlo", "--backend", "native", "--out", "o", cwd=tmp_path,
                       HLOOM_CPU=hidden, HLOOM_CACHE=str(tmp_path / "cache"))  # fmt: skip
        assert (done.code, done.err) == (0, "")
        found.append(b"".join(p.read_bytes() for p in sorted((tmp_path / "o").iterdir())))
    assert found[0] == found[1]


def test_unknown_features_are_refused(tmp_path: Path) -> None:
    done = hloom("eval", EXAMPLES / "mlp_named.hlo", "--backend", "native", cwd=tmp_path, HLOOM_CPU="sse9")
    assert done.code == 65
    assert "error: HLOOM_CPU: 'sse9' hides no feature of the processor" in done.err


def test_unknown_backends_are_refused(tmp_path: Path) -> None:
    for arguments, variables in ((["--backend", "fast"], {}), ([], {"HLOOM_BACKEND": "fast"})):
        done = hloom("eval", EXAMPLES / "mlp_named.hlo", *arguments, cwd=tmp_path, **variables)
        assert done.code == 2
        assert "fast" in done.err


def agree(module: Module, special: bool = False) -> None:
    """Compares both programs, fused and with native kernels for all sizes, with the reference; on `special` numbers, by
    the signs of zeros too.
    """
    shapes = [p.shape for p in module.entry.parameters]
    inputs = special_inputs_of(module) if special else make_inputs(shapes, seed=3)
    local, fuse = partitioned(module), Backend("native").prepared
    with np.errstate(all="ignore"):
        pairs = [
            (simulate(fuse(local), inputs, True, NativeKernels()), simulate(local, inputs)),
            (evaluate(fuse(module), inputs, NativeKernels()), evaluate(module, inputs)),
        ]
    for found, expected in pairs:
        same = compare(found, expected, signs=special)
        assert same.equal, f"{same}\n{module.to_text()}"


@settings(max_examples=6, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_random_programs_agree(module: Module) -> None:
    agree(module)


@needs_llvm
@settings(max_examples=4, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(programs(outer=REGIONS))
def test_random_programs_of_special_numbers_agree(module: Module) -> None:
    agree(module, special=True)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=QUIET)
@given(programs(outer=REGIONS))
def test_many_random_programs_agree(module: Module) -> None:
    agree(module)
    agree(module, special=True)
